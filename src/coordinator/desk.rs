//! The only one that changes the slots.
//!
//! Requests queue in front of it. It takes all that wait, decides them one after the other, writes
//! once, and answers them together: one fsync carries as many decisions as came during the last.
//! A write that fails answers all of them with the failure, and leaves things as they were.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::slots::{Ask, Decision, Policies, Slots};
use super::store::{Store, StoreError};
use crate::fleetlock::Operation;

/// Requests that may wait in front of the desk; beyond, a request waits for its place. As many as
/// there can be connections.
const QUEUE_LENGTH: usize = 512;
/// Requests decided under one write.
const BATCH_LENGTH_MAX: usize = 256;

/// A place to ask at. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk {
    slips: mpsc::Sender<Slip>,
    closing: CancellationToken,
    view: watch::Receiver<Arc<View>>,
}

/// What is on disk, for those who only look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Who holds what.
    pub slots: Slots,
    /// Why the last write failed, if it did.
    pub trouble: Option<String>,
    /// Writes since the start.
    pub writes: u64,
    /// Those that failed.
    pub failed_writes: u64,
}

/// Why a request was not decided. Nothing was granted and nothing released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// The change could not be written.
    #[error("the slots could not be written, so that nothing was changed: {0}")]
    NotWritten(String),
    /// The desk has closed.
    #[error("the coordinator is going down; nothing was changed")]
    Closed,
}

#[derive(Debug)]
struct Slip {
    ask: Ask,
    reply: oneshot::Sender<Result<Decision, DeskError>>,
}

/// The desk's own side.
struct Clerk {
    policies: Policies,
    /// What the last write that succeeded has on disk.
    kept: Slots,
    /// A write failed half-way: the disk may be ahead of `kept`. No answer before a write succeeds,
    /// also where nothing changes, or a power loss could make it untrue.
    unsure: bool,
    clock: fn() -> Timestamp,
    view: watch::Sender<Arc<View>>,
}

// === impl Desk ===

impl Desk {
    /// Opens a desk over a store that keeps `slots`. The task ends once it is closed, or all
    /// desks are dropped, and what waits is answered.
    pub fn open(
        store: impl Store,
        slots: Slots,
        policies: Policies,
        clock: fn() -> Timestamp,
    ) -> (Self, JoinHandle<()>) {
        let (slips, queue) = mpsc::channel(QUEUE_LENGTH);
        let first = View { slots: slots.clone(), ..View::default() };
        let (view_sender, view) = watch::channel(Arc::new(first));
        let clerk = Clerk { policies, kept: slots, unsure: false, clock, view: view_sender };
        let closing = CancellationToken::new();
        let task = tokio::spawn(clerk.work(store, queue, closing.clone()));
        (Self { slips, closing, view }, task)
    }

    /// Takes no more requests. Those that wait are still answered; then the task ends.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Asks and waits until the answer is on disk.
    ///
    /// Who stops waiting before its turn has not asked, if it wanted a slot: nobody would know of
    /// the grant. A release counts all the same.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn ask(&self, ask: Ask) -> Result<Decision, DeskError> {
        let (reply, answer) = oneshot::channel();
        self.slips.send(Slip { ask, reply }).await.map_err(|_| DeskError::Closed)?;
        answer.await.map_err(|_| DeskError::Closed)?
    }

    /// What is on disk now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Follows what is on disk.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }
}

// === impl Clerk ===

impl Clerk {
    async fn work(
        mut self,
        mut store: impl Store,
        mut queue: mpsc::Receiver<Slip>,
        closing: CancellationToken,
    ) {
        let mut batch = Vec::with_capacity(BATCH_LENGTH_MAX);
        loop {
            let count = tokio::select! {
                biased;
                () = closing.cancelled(), if !queue.is_closed() => {
                    queue.close();
                    continue;
                }
                count = queue.recv_many(&mut batch, BATCH_LENGTH_MAX) => count,
            };
            if count == 0 {
                return;
            }
            let (next, changed, decided) = self.decide(batch.drain(..));
            if !changed && !self.unsure {
                answer(decided, &Ok(()));
                continue;
            }
            let writing = tokio::task::spawn_blocking(move || {
                let result = store.write(&next);
                (store, next, result)
            });
            // Without its store the desk is closed; whoever supervises it sees it end.
            let Ok((returned, next, result)) = writing.await else { return };
            store = returned;
            let result = self.note(next, result);
            answer(decided, &result);
        }
    }

    /// Decides what waits, each over what the ones before it left.
    fn decide(&self, batch: impl Iterator<Item = Slip>) -> (Slots, bool, Vec<(Slip, Decision)>) {
        let mut next = self.kept.clone();
        let mut changed = false;
        let mut decided = Vec::new();
        for slip in batch {
            if slip.ask.operation == Operation::PreReboot && slip.reply.is_closed() {
                continue;
            }
            let (decision, changes) = next.decide(&self.policies, &slip.ask, (self.clock)());
            changed |= changes;
            decided.push((slip, decision));
        }
        (next, changed, decided)
    }

    /// Takes over what was written, or stays with what was.
    fn note(&mut self, next: Slots, result: Result<(), StoreError>) -> Result<(), DeskError> {
        let mut view = View::clone(&self.view.borrow());
        view.writes += 1;
        let result = match result {
            Ok(()) => {
                if view.trouble.take().is_some() {
                    tracing::info!("the slots can be written again");
                }
                self.unsure = false;
                self.kept = next;
                view.slots = self.kept.clone();
                Ok(())
            }
            Err(error) => {
                let text = chain(&error);
                if view.trouble.as_ref() != Some(&text) {
                    tracing::error!(error = text, "the slots cannot be written");
                }
                view.failed_writes += 1;
                view.trouble = Some(text.clone());
                self.unsure = true;
                Err(DeskError::NotWritten(text))
            }
        };
        self.view.send_replace(Arc::new(view));
        result
    }
}

fn answer(decided: Vec<(Slip, Decision)>, result: &Result<(), DeskError>) {
    for (slip, decision) in decided {
        // Who asked may have gone; what is written stays written.
        let _ = slip.reply.send(result.clone().map(|()| decision));
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
