//! All chance of a run comes from one seed.

use std::time::Duration;

/// splitmix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in so many of a thousand cases.
    pub(crate) fn permille(&mut self, rate: u64) -> bool {
        self.below(1000) < rate
    }

    /// From `least` seconds to less than `most`, in milliseconds.
    pub(crate) fn seconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least * 1000 + self.below((most - least) * 1000))
    }
}
