//! The line in front of a full group.
//!
//! A request that finds no slot free is not denied at once: for a moment it waits in line, and gets
//! the slot of whoever gives one back meanwhile, in the same write as the release. So the next node
//! need not ask again, and a client that asks without a pause gets one answer a moment, not thousands.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::desk::Slip;
use super::slots::Ask;

/// How long a request stands in line before it is denied: short enough that who waits is soon told
/// for whom, and long enough that asking again and again brings nobody forward.
pub(super) const LINE_WAIT: Duration = Duration::from_secs(1);

/// Requests for a slot that found none free, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: VecDeque<Slip>,
    closed: bool,
}

// === impl Line ===

impl Line {
    /// Takes a request in, or hands it back if it has waited long enough.
    pub(super) fn enter(&mut self, mut slip: Slip, now: Instant) -> Option<Slip> {
        let until = *slip.until.get_or_insert(now + LINE_WAIT);
        if self.closed || until <= now {
            return Some(slip);
        }
        // Who stood in it before comes back to its place.
        let at = self.waiting.partition_point(|other| other.until <= slip.until);
        self.waiting.insert(at, slip);
        None
    }

    /// How many stand in it.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the first of them has waited long enough.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.front().and_then(|slip| slip.until)
    }

    /// Those that have waited long enough.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Slip> {
        self.leave(|slip| slip.until.is_none_or(|until| until <= now))
    }

    /// The one of this group that came first.
    pub(super) fn first_of(&mut self, group: &str) -> Option<Slip> {
        let at = self.waiting.iter().position(|slip| slip.ask.group == group)?;
        self.waiting.remove(at)
    }

    /// Those under the id that gives back: it does not want any more what it waits for.
    pub(super) fn of_id(&mut self, release: &Ask) -> Vec<Slip> {
        self.leave(|slip| slip.ask.group == release.group && slip.ask.id == release.id)
    }

    /// Nobody enters any more. Those that wait.
    pub(super) fn close(&mut self) -> Vec<Slip> {
        self.closed = true;
        std::mem::take(&mut self.waiting).into()
    }

    fn leave(&mut self, who: impl Fn(&Slip) -> bool) -> Vec<Slip> {
        let all = std::mem::take(&mut self.waiting);
        let (leaving, staying) = all.into_iter().partition(who);
        self.waiting = staying;
        leaving.into()
    }
}
