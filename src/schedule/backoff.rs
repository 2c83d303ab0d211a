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
    // Divided before it is multiplied, and added with saturation: no base is long enough to panic.
    base.saturating_add((base / 4000).saturating_mul(share))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_doubles_up_to_its_bound() {
        let minutes = |m: u64| Duration::from_secs(m * 60);
        let waits: Vec<u64> =
            (0..6).map(|n| backoff(minutes(5), minutes(60), n).as_secs() / 60).collect();
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
        assert_eq!(backoff(minutes(5), minutes(60), u32::MAX), minutes(60));
        assert_eq!(backoff(minutes(90), minutes(60), 0), minutes(60), "the bound wins");
        assert_eq!(backoff(Duration::MAX, Duration::MAX, 3), Duration::MAX);
    }

    #[test]
    fn nodes_that_fail_together_come_back_apart() {
        let base = Duration::from_secs(600);
        let waits: std::collections::BTreeSet<Duration> =
            (0..100).map(|seed| jittered(base, seed, 1)).collect();
        assert!(waits.len() > 90, "only {} of 100 seeds differ", waits.len());
        let spread = waits.last().unwrap().saturating_sub(*waits.first().unwrap());
        assert!(spread > Duration::from_secs(120), "all within {spread:?}");
    }

    proptest! {
        #[test]
        fn jitter_adds_at_most_a_quarter_and_repeats_itself(
            millis in 0_u64..10_000_000_000, seed: u64, salt: u64,
        ) {
            let base = Duration::from_millis(millis);
            let wait = jittered(base, seed, salt);
            prop_assert!(wait >= base && wait <= base + base / 4);
            prop_assert_eq!(wait, jittered(base, seed, salt));
        }

        #[test]
        fn no_base_is_too_long(seed: u64, salt: u64) {
            prop_assert_eq!(jittered(Duration::MAX, seed, salt), Duration::MAX.saturating_add(Duration::ZERO));
        }
    }
}
