//! How long to wait before trying again: doubling, bounded, jittered by a seed.

use std::time::Duration;

/// `first · 2^failures`, at most `max`; `failures` counts those before the last one.
pub fn backoff(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures.min(20))).min(max)
}

/// `base` plus up to a quarter of it, decided by `seed` and `salt` alone, so that nodes that fail
/// together do not come back together, and a test sees the same each time.
pub fn jittered(base: Duration, seed: u64, salt: u64) -> Duration {
    let mut x = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let share = u32::try_from(x % 1000).unwrap_or(0);
    base + base / 4 * share / 1000
}
