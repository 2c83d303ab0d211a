//! The only one that changes the slots.
//!
//! Requests queue in front of it. It takes all that wait, decides them one after the other, writes
//! once, and answers them together: one fsync carries as many decisions as came during the last.
//! A request that finds no slot free stands in [line](super::line) for a moment before it is denied.
//! A write that fails answers all of them with the failure, and leaves things as they were.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::line::Line;
use super::slots::{Ask, Decision, Policies, Slots};
use super::store::{Store, StoreError};
use crate::fleetlock::Operation;

/// Requests that may wait in front of the desk; beyond, a request waits for its place. As many as
/// there can be connections.
const QUEUE_LENGTH: usize = 512;
/// After so many writes in a row that took no longer than [`QUICK`], one for a lone client is done
/// without a thread of its own, which would cost it a third of its answer's time.
const QUICK_IN_A_ROW: u32 = 16;
const QUICK: Duration = Duration::from_millis(5);
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

/// One request, and where its answer goes.
#[derive(Debug)]
pub(super) struct Slip {
    pub(super) ask: Ask,
    reply: oneshot::Sender<Result<Decision, DeskError>>,
    /// Until when it stands in line, once it does.
    pub(super) until: Option<Instant>,
}

/// What came of the requests that were decided together.
struct Round {
    next: Slots,
    changed: bool,
    decided: Vec<(Slip, Decision)>,
}

/// The desk's own side.
struct Clerk {
    policies: Policies,
    /// What the last write that succeeded has on disk.
    kept: Slots,
    line: Line,
    /// A write failed half-way: the disk may be ahead of `kept`. No answer before a write succeeds,
    /// also where nothing changes, or a power loss could make it untrue.
    unsure: bool,
    /// Writes in a row that were [`QUICK`]. A disk that stalls stops the answers to all but those that
    /// only look: these, too, for the one write in which it begins to.
    quick: u32,
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
        let line = Line::default();
        let clerk = Clerk {
            policies,
            kept: slots,
            line,
            unsure: false,
            quick: 0,
            clock,
            view: view_sender,
        };
        let closing = CancellationToken::new();
        let task = tokio::spawn(clerk.work(store, queue, closing.clone()));
        (Self { slips, closing, view }, task)
    }

    /// Takes no more requests. Those that wait are still answered, those in line at once; then the
    /// task ends.
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
        let slip = Slip { ask, reply, until: None };
        self.slips.send(slip).await.map_err(|_| DeskError::Closed)?;
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
            let next_in_line = self.line.next();
            tokio::select! {
                biased;
                () = closing.cancelled(), if !queue.is_closed() => {
                    queue.close();
                    batch.extend(self.line.close());
                }
                count = queue.recv_many(&mut batch, BATCH_LENGTH_MAX) => if count == 0 {
                    batch.extend(self.line.close());
                    if batch.is_empty() {
                        return;
                    }
                },
                () = sleep_until(next_in_line.unwrap_or_else(Instant::now)),
                    if next_in_line.is_some() => {}
            }
            let Round { next, changed, decided } = self.decide(batch.drain(..));
            if !changed && !self.unsure || decided.is_empty() {
                answer(decided, &Ok(()));
                continue;
            }
            // Where more are asking, they are heard while the write goes on: they share the next one.
            let alone = decided.len() == 1 && self.line.len() == 0;
            let began = Instant::now();
            let (next, result) = if self.quick >= QUICK_IN_A_ROW && alone {
                let result = store.write(&next);
                (next, result)
            } else {
                let writing = tokio::task::spawn_blocking(move || {
                    let result = store.write(&next);
                    (store, next, result)
                });
                // Without its store the desk is closed; whoever supervises it sees it end.
                let Ok((returned, next, result)) = writing.await else { return };
                store = returned;
                (next, result)
            };
            let quick = began.elapsed() <= QUICK;
            self.quick = if quick { self.quick.saturating_add(1) } else { 0 };
            let result = self.note(next, result);
            answer(decided, &result);
        }
    }

    /// Decides what has come, each over what the ones before it left.
    fn decide(&mut self, batch: impl Iterator<Item = Slip>) -> Round {
        let next = self.kept.clone();
        let mut round = Round { next, changed: false, decided: Vec::new() };
        let due = self.line.due(Instant::now());
        for slip in batch.chain(due) {
            self.decide_one(slip, &mut round);
        }
        round
    }

    fn decide_one(&mut self, slip: Slip, round: &mut Round) {
        let locks = slip.ask.operation == Operation::PreReboot;
        if locks && slip.reply.is_closed() {
            return;
        }
        if !locks {
            // Who gives back waits no longer: its request came first, so it is answered first.
            for mut waiting in self.line.of_id(&slip.ask) {
                waiting.until = Some(Instant::now());
                self.decide_one(waiting, round);
            }
        }
        let (decision, changes) = round.next.decide(&self.policies, &slip.ask, (self.clock)());
        round.changed |= changes;
        if matches!(decision, Decision::Full { .. }) {
            if let Some(slip) = self.line.enter(slip, Instant::now()) {
                round.decided.push((slip, decision));
            }
            return;
        }
        let freed = (!locks && changes).then(|| slip.ask.group.clone());
        round.decided.push((slip, decision));
        // What is given back is the next one's in line; behind one that found nothing is nothing.
        while let Some(waiting) = freed.as_ref().and_then(|group| self.line.first_of(group)) {
            let before = self.line.len();
            self.decide_one(waiting, round);
            if self.line.len() > before {
                break;
            }
        }
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
