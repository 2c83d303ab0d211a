//! The way to the slot server and back: requests and answers are lost, late, or come twice.
//!
//! One thing is played only where it is asked for ([`World::late_releases`]): a release that arrives
//! after the next request of the same node. The server takes it for that attempt's own and frees the
//! slot, since nothing on the wire says which of the two was sent first; the node learns of it when
//! it confirms. `a_release_that_comes_too_late_frees_the_next_slot` shows that this is so.

use std::time::Duration;

use lockkeeper::fleetlock::{
    ErrorKind, Operation, ReleaseAnswer, Request, SlotAnswer, read_answer, read_release,
};
use lockkeeper::lifecycle::{Event, Lane};

use crate::profile::Fault;
use crate::server::{Answer, Message, answer, read, refusal, word};
use crate::world::{ANSWER_WITHIN, Happening, World};

impl World {
    pub(crate) fn send(
        &mut self,
        at: usize,
        number: u64,
        operation: Operation,
        attempt: Option<String>,
    ) {
        let node = &self.nodes[at];
        let body = Request::new(node.id.as_str(), node.group.as_str()).body();
        let boot = node.boot_mark().id.as_str().to_owned();
        let message = Message { operation, attempt, boot, node: node.name.clone(), body };
        let life = node.life;
        if operation == Operation::PreReboot {
            self.nodes[at].asked = number;
        }
        if self.fault(Fault::Network) {
            // Lost, or on its way for as long as a server may hold it.
            self.give_up(at, number, operation);
            if self.random.permille(500) {
                self.tell(at, format!("{operation:?} is lost"));
                return;
            }
            let delay = self.random.seconds(1, ANSWER_WITHIN / 1000 - 5);
            return self.soon(at, delay, Happening::Reach { life, number, message });
        }
        if self.fault(Fault::Network) {
            let again = Happening::Reach { life, number, message: message.clone() };
            let delay = 510 + self.random.below(2000);
            self.soon(at, Duration::from_millis(delay), again);
        }
        let delay = Duration::from_millis(10 + self.random.below(500));
        self.soon(at, delay, Happening::Reach { life, number, message });
    }

    /// The client gives up when no answer has come in time.
    fn give_up(&mut self, at: usize, number: u64, operation: Operation) {
        self.fails_to_answer(at, number, operation, true, Duration::from_millis(ANSWER_WITHIN));
    }

    fn fails_to_answer(
        &mut self,
        at: usize,
        number: u64,
        operation: Operation,
        lost: bool,
        after: Duration,
    ) {
        let life = self.nodes[at].life;
        let (kind, error) = ("timeout".to_owned(), "no answer".to_owned());
        let event = match operation {
            Operation::PreReboot => {
                Event::SlotAnswered(SlotAnswer::Failed { kind, error, answer_lost: lost })
            }
            Operation::SteadyState => {
                Event::SlotReleased(ReleaseAnswer::Failed { kind, error, retry_after: None })
            }
        };
        self.soon(at, after, Happening::Told { life, number, lane: Lane::Slot, event });
    }

    /// A request is at the server's door.
    pub(crate) fn reach(&mut self, at: usize, life: u64, number: u64, message: &Message) {
        let soon = Duration::from_millis(200);
        let operation = message.operation;
        let late = operation == Operation::SteadyState && number < self.nodes[at].asked;
        if late && !self.late_releases {
            return self.tell(at, "a release that comes too late is not played".to_owned());
        }
        if self.clock < self.server.down_until {
            return self.fails_to_answer(at, number, operation, false, soon);
        }
        let crashes = self.fault(Fault::Server).then(|| self.random.permille(500));
        let until = self.clock + 1000 * (5 + self.random.below(120));
        if crashes == Some(false) {
            self.tell(at, "the slot server is killed before it decides".to_owned());
            self.server.crash(until);
            return self.fails_to_answer(at, number, operation, true, soon);
        }
        let retry_after = 10 + self.random.below(21);
        let sent = if self.fault(Fault::Store) {
            self.tell(at, format!("{operation:?}: the slot server cannot write"));
            refusal(ErrorKind::StoreFailed, Some(retry_after))
        } else {
            let decision = self.server.decide(&read(message), self.now(at).wall);
            self.tell(at, format!("{operation:?}: {}", word(&decision)));
            self.decided(at, &decision);
            answer(&decision, retry_after)
        };
        if crashes.is_some() {
            self.tell(at, "the slot server is killed before it answers".to_owned());
            self.server.crash(until);
            return self.fails_to_answer(at, number, operation, true, soon);
        }
        if self.fault(Fault::Network) {
            return self.give_up(at, number, operation);
        }
        let Answer { status, retry_after, body } = sent;
        let (retry_after, wall) = (retry_after.as_deref(), self.now(at).wall);
        let event = match operation {
            Operation::PreReboot => {
                Event::SlotAnswered(read_answer(status, retry_after, &body, wall))
            }
            Operation::SteadyState => {
                Event::SlotReleased(read_release(status, retry_after, &body, wall))
            }
        };
        self.soon(at, soon, Happening::Told { life, number, lane: Lane::Slot, event });
    }
}
