//! How long to rest between tries.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::schedule;

/// The first rests: short, so that a network that comes up is used within half a second.
const SHORT: Duration = Duration::from_millis(200);
/// How many of them.
const SHORT_RESTS: u32 = 5;
/// The longest rest: an API server that comes back is found by every node within it.
const LONG: Duration = Duration::from_secs(30);

/// Failures in a row and the rest that follows them: none after the first, then short, then growing.
#[derive(Debug)]
pub(crate) struct Retry {
    failures: u32,
    seed: u64,
}

impl Retry {
    /// No failure yet. The jitter differs from process to process.
    pub(crate) fn new() -> Self {
        Self { failures: 0, seed: RandomState::new().build_hasher().finish() }
    }

    /// After so many failures that every rest is a long one.
    #[cfg(test)]
    pub(crate) fn resting_long() -> Self {
        Self { failures: 40, ..Self::new() }
    }

    /// A success: the next failure is the first again.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// One failure more; how long to rest after it.
    pub(crate) fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let base = match self.failures {
            1 => return Duration::ZERO,
            n if n <= 1 + SHORT_RESTS => SHORT,
            n => schedule::backoff(SHORT, LONG, n - 1 - SHORT_RESTS),
        };
        schedule::jittered(base, self.seed, u64::from(self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_begin_short_and_stay_bounded() {
        let mut retry = Retry::new();
        assert_eq!(retry.failed(), Duration::ZERO);
        for _ in 0..SHORT_RESTS {
            let rest = retry.failed();
            assert!(rest >= SHORT && rest <= SHORT * 5 / 4, "{rest:?}");
        }
        let rests: Vec<_> = (0..40).map(|_| retry.failed()).collect();
        assert!(rests.iter().all(|rest| *rest > SHORT && *rest <= LONG * 5 / 4));
        assert!(rests.last().is_some_and(|rest| *rest >= LONG));
        assert!(Retry::resting_long().failed() >= LONG);
        retry.succeeded();
        assert_eq!(retry.failed(), Duration::ZERO);
    }
}
