//! How long a source rests before it tries again.

use std::time::Duration;

use crate::signals::clock;

/// The rest after a first failure: it was often a service that was just leaving.
const FIRST: Duration = Duration::from_millis(100);

/// Longest rest. A node whose bus came back is seen again within this time.
const LONGEST: Duration = Duration::from_secs(30);

/// Failures in a row, and the rest that follows from them.
#[derive(Debug, Clone, Default)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    /// All is well again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure; how long to rest: short at first, then doubling from 1 s to 30 s, less up
    /// to a quarter so that many hosts do not come back together.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            return FIRST;
        }
        let doubled = Duration::from_secs(1) * (1 << (self.failures - 2).min(5));
        let rest = doubled.min(LONGEST);
        let spread = clock::since_boot().subsec_nanos() % 1000;
        rest - rest / 4 * spread / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_stay_bounded() {
        let mut retry = Retry::default();
        assert_eq!(retry.failed(), FIRST);
        for base in [1, 2, 4, 8, 16, 30, 30, 30] {
            let rest = retry.failed();
            let base = Duration::from_secs(base);
            assert!(rest <= base && rest >= base * 3 / 4, "{rest:?} for {base:?}");
        }
        for _ in 0..100 {
            assert!(retry.failed() <= LONGEST);
        }
        retry.succeeded();
        assert_eq!(retry.failed(), FIRST);
    }
}
