//! Where Zincati's calls wait, and where they are answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::fleetlock::{Operation, clean_kind, clean_value};
use crate::lifecycle::Event;

use super::line::{Grant, Line};

/// Calls that are held open at once. Zincati makes one; of more, the oldest is answered.
pub const CALLS_MAX: usize = 16;

/// How long writing a grant may take: some hundred bytes into an empty socket of this host.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Where Zincati's calls wait for their answer. A clone is the same desk.
///
/// Without a listener nobody ever calls: then nothing is granted.
#[derive(Debug, Clone, Default)]
pub struct Desk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something may have to be told.
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that wait, by the order in which they came.
    calls: BTreeMap<u64, Call>,
    next: u64,
    words: Words,
    /// The last [`Event::ZincatiWaits`] that was told.
    told: bool,
    /// No pre-reboot call was open at some time since then.
    dipped: bool,
    /// A pre-reboot call came since then.
    again: bool,
    /// A steady-state call came and was not told.
    steady: bool,
}

#[derive(Debug)]
struct Call {
    operation: Operation,
    line: Line,
    answer: oneshot::Sender<Verdict>,
}

/// How a call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// 200.
    Yes,
    /// An error of the protocol with these words.
    No(Words),
    /// More calls came than are held open.
    TooMany,
}

/// A bounded word and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) kind: String,
    pub(super) value: String,
}

/// A call that waits; when it is dropped, its caller has gone or has its answer.
#[derive(Debug)]
pub(super) struct OpenCall {
    desk: Desk,
    number: u64,
    answer: oneshot::Receiver<Verdict>,
}

// === impl Desk ===

impl Desk {
    /// Answers every open pre-reboot call with 200. True only if at least one of these answers was
    /// written to a caller that had not hung up: then Zincati finalizes and reboots at once.
    ///
    /// Whether a caller hung up is looked at right before its answer is written. An answer that was
    /// not written within 10 s, or when the future is dropped, never will be.
    /// [`Event::ZincatiWaits`]`(false)` follows, since no call is open any more.
    pub async fn grant(&self) -> bool {
        let answered = self.answer_all(Operation::PreReboot, &Verdict::Yes);
        let grants: Vec<Grant> = answered.into_iter().map(Grant::new).collect();
        let all = async {
            for grant in &grants {
                grant.settled().await;
            }
        };
        if timeout(WRITTEN_WITHIN, all).await.is_err() {
            tracing::warn!("an answer to Zincati could not be written, and will not be");
        }
        grants.into_iter().fold(false, |any, grant| grant.was_written() | any)
    }

    /// Answers every open pre-reboot call with an error of the protocol: `kind` is a word out of a
    /// bounded set, since Zincati makes it a metrics label; `value` the sentence for people.
    pub fn refuse(&self, kind: &str, value: &str) {
        self.answer_all(Operation::PreReboot, &Verdict::No(Words::new(kind, value)));
    }

    /// The words for calls, of both operations, whose time is over: what is waited for. They stand
    /// until others are said; `kind` and `value` as for [`Self::refuse`].
    pub fn say(&self, kind: &str, value: &str) {
        self.state().words = Words::new(kind, value);
    }

    /// Answers every open steady-state call with 200: the slot has been given back.
    pub fn steady(&self) {
        self.answer_all(Operation::SteadyState, &Verdict::Yes);
    }

    /// Puts a call on the desk.
    pub(super) fn open(&self, operation: Operation, line: &Line) -> OpenCall {
        let (answer, receiver) = oneshot::channel();
        let number = self.change(|state| {
            let number = state.next;
            state.next = state.next.wrapping_add(1);
            state.calls.insert(number, Call { operation, line: line.clone(), answer });
            match operation {
                Operation::PreReboot => state.again = true,
                Operation::SteadyState => state.steady = true,
            }
            while state.calls.len() > CALLS_MAX {
                let Some((_, oldest)) = state.calls.pop_first() else { break };
                // Its caller may have gone at this moment.
                let _ = oldest.answer.send(Verdict::TooMany);
            }
            number
        });
        OpenCall { desk: self.clone(), number, answer: receiver }
    }

    /// The next that the heart should hear; waits until there is something.
    pub(super) async fn news(&self) -> Event {
        loop {
            if let Some(event) = self.state().news() {
                return event;
            }
            self.shared.news.notified().await;
        }
    }

    /// Answers the open calls of an operation; gives their lines.
    fn answer_all(&self, operation: Operation, verdict: &Verdict) -> Vec<Line> {
        self.change(|state| {
            let all = std::mem::take(&mut state.calls);
            let (answered, left) =
                all.into_iter().partition(|(_, call)| call.operation == operation);
            state.calls = left;
            let answered: BTreeMap<u64, Call> = answered;
            let mut lines = Vec::new();
            for call in answered.into_values() {
                if operation == Operation::PreReboot && *verdict == Verdict::Yes {
                    // Before the answer: from here on, what is written is a grant.
                    call.line.grants();
                    lines.push(call.line);
                }
                // Its caller may have gone at this moment; the line tells.
                let _ = call.answer.send(verdict.clone());
            }
            lines
        })
    }

    /// Takes a call back; `None`: it has been answered.
    fn withdraw(&self, number: u64) -> Option<Words> {
        self.change(|state| state.calls.remove(&number).map(|_| state.words.clone()))
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let before = state.asks();
        let result = act(&mut state);
        state.dipped |= before && !state.asks();
        drop(state);
        self.shared.news.notify_one();
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; if it did, the calls would still be there.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn asks(&self) -> bool {
        self.calls.values().any(|call| call.operation == Operation::PreReboot)
    }

    /// What should be told next. However much happened meanwhile, it is four events at most: a
    /// caller in a loop fills no channel.
    fn news(&mut self) -> Option<Event> {
        let asks = self.asks();
        if self.told && (self.dipped || !asks) {
            (self.told, self.dipped) = (false, false);
            return Some(Event::ZincatiWaits(false));
        }
        self.dipped = false;
        if std::mem::take(&mut self.steady) {
            return Some(Event::ZincatiSteady);
        }
        let again = std::mem::take(&mut self.again);
        if asks && (again || !self.told) {
            self.told = true;
            return Some(Event::ZincatiWaits(true));
        }
        None
    }
}

// === impl OpenCall ===

impl OpenCall {
    /// Waits for the answer; after `hold` it is what is waited for.
    pub(super) async fn verdict(mut self, hold: Duration) -> Verdict {
        let answer = match timeout(hold, &mut self.answer).await {
            Ok(answer) => answer,
            Err(_) => match self.desk.withdraw(self.number) {
                Some(words) => return Verdict::No(words),
                // Answered in the moment in which its time was over: a grant must be told.
                None => (&mut self.answer).await,
            },
        };
        // An answer is sent before its sender goes.
        answer.unwrap_or_else(|_| Verdict::No(Words::default()))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.desk.withdraw(self.number);
    }
}

// === impl Words ===

impl Words {
    fn new(kind: &str, value: &str) -> Self {
        let (kind, value) = (clean_kind(kind), clean_value(value));
        let default = Self::default();
        // The protocol wants both.
        Self {
            kind: if kind.is_empty() { default.kind } else { kind },
            value: if value.is_empty() { default.value } else { value },
        }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self {
            kind: "waiting".to_owned(),
            value: "the agent has not said yet what it waits for; ask again".to_owned(),
        }
    }
}
