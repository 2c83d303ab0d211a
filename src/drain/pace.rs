//! When an exhausted budget is probed again, and how waits grow and scatter.

use std::time::Duration;

/// Shortest time between two probes of one budget. A replacement pod takes longer to be ready.
const SHORTEST_GAP: Duration = Duration::from_millis(200);

/// Shortest and longest wait after a failure of the API server or of one request.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Jitter without a source of chance: the same seed gives the same waits, another node others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jitter(u64);

/// When one exhausted budget is probed.
///
/// A budget opens again when a replacement has become ready somewhere, which takes about as long
/// each time. So the time from one accepted eviction to the next is learnt, with how far it
/// strays: nothing is asked until shortly before it, then in short steps. What has not been learnt
/// is searched for in steps of a third of the time already waited. No step is longer than
/// `longest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pace {
    /// When the next probe is due.
    pub(super) next: Duration,
    /// The last accepted eviction, or the first refusal.
    anchor: Duration,
    /// The last refusal since then.
    refused: Option<Duration>,
    /// How long the budget stays shut, once that has been learnt.
    learnt: Option<Learnt>,
    longest: Duration,
}

/// How long a budget stays shut after an acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Learnt {
    shut: Duration,
    strays: Duration,
}

// === impl Pace ===

impl Pace {
    /// A budget that was found exhausted at `now`.
    pub(super) fn new(now: Duration, longest: Duration, jitter: &mut Jitter) -> Self {
        let longest = longest.max(SHORTEST_GAP);
        let mut pace = Self { next: now, anchor: now, refused: None, learnt: None, longest };
        pace.refused(now, None, jitter);
        pace
    }

    /// A probe was refused; `retry_after` is the server's wish.
    pub(super) fn refused(
        &mut self,
        now: Duration,
        retry_after: Option<Duration>,
        jitter: &mut Jitter,
    ) {
        self.refused = Some(now);
        let waited = now.saturating_sub(self.anchor);
        let gap = match self.learnt {
            Some(learnt) if waited < learnt.earliest_probe() => learnt.first_probe() - waited,
            Some(learnt) if waited < learnt.shut * 3 / 2 => learnt.step(),
            Some(_) | None => waited / 3,
        };
        let gap = jitter.scatter(gap.clamp(SHORTEST_GAP, self.longest));
        self.next = now + gap.max(retry_after.unwrap_or_default());
    }

    /// An eviction under the budget was accepted.
    pub(super) fn accepted(&mut self, now: Duration, jitter: &mut Jitter) {
        let waited = now.saturating_sub(self.anchor);
        self.learnt = match (self.learnt, self.refused) {
            // It opened between the last refusal and now.
            (learnt, Some(refused)) => {
                Some(Learnt::with(learnt, waited - now.saturating_sub(refused) / 2))
            }
            // The first probe came too late: the budget has become faster.
            (Some(learnt), None) => Some(learnt.faster(waited * 4 / 5)),
            (None, None) => None,
        }
        .filter(|learnt| learnt.first_probe() >= SHORTEST_GAP);
        self.anchor = now;
        self.refused = None;
        self.next = match self.learnt {
            Some(learnt) => now + jitter.scatter_down(learnt.first_probe().min(self.longest)),
            None => now,
        };
    }

    /// The server wants the budget left alone for this long.
    pub(super) fn busy(&mut self, now: Duration, retry_after: Duration, jitter: &mut Jitter) {
        self.next = now + jitter.scatter_up(retry_after);
    }
}

// === impl Learnt ===

impl Learnt {
    /// What is known after one more sample.
    fn with(known: Option<Self>, sample: Duration) -> Self {
        match known {
            None => Self { shut: sample, strays: sample / 4 },
            Some(known) => Self {
                shut: (known.shut + sample) / 2,
                strays: (known.strays * 3 + known.shut.abs_diff(sample)) / 4,
            },
        }
    }

    /// It is at most this long now.
    fn faster(self, shut: Duration) -> Self {
        Self { shut: self.shut.min(shut), ..self }
    }

    /// When the first probe is worth its request.
    fn first_probe(&self) -> Duration {
        self.shut.saturating_sub(self.strays * 2).clamp(self.shut / 2, self.shut * 9 / 10)
    }

    /// When jitter may have the first probe come; one that came before was not the first.
    fn earliest_probe(&self) -> Duration {
        self.first_probe() * 9 / 10
    }

    /// How far probes are apart once it may open at any time.
    fn step(&self) -> Duration {
        (self.strays * 5 / 6).clamp(self.shut / 14, self.shut / 5)
    }
}

// === impl Jitter ===

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between 0.9 and 1.1 of it.
    pub(super) fn scatter(&mut self, wait: Duration) -> Duration {
        wait * (900 + self.below(201)) / 1000
    }

    /// Between 0.95 of it and all.
    fn scatter_down(&mut self, wait: Duration) -> Duration {
        wait * (950 + self.below(51)) / 1000
    }

    /// Between all and 1.1 of it: a server that names a time is not asked before.
    pub(super) fn scatter_up(&mut self, wait: Duration) -> Duration {
        wait * (1000 + self.below(101)) / 1000
    }

    /// The wait after the `failures`th failure in a row.
    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.scatter((SHORTEST_WAIT * (1 << doublings)).min(LONGEST_WAIT))
    }

    /// A number below `bound`, by splitmix64.
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        u32::try_from(z % u64::from(bound)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    fn seconds(x: f64) -> Duration {
        Duration::from_secs_f64(x)
    }

    /// Plays a budget that opens `shut(n)` after the n-th acceptance; returns for each acceptance
    /// how late it came and how many refusals it took.
    fn play(rounds: usize, shut: impl Fn(usize) -> Duration) -> Vec<(Duration, u32)> {
        let mut jitter = Jitter::new(7);
        let mut opens = shut(0);
        let mut pace = Pace::new(Duration::ZERO, LONGEST, &mut jitter);
        let mut seen = Vec::new();
        for round in 1..=rounds {
            let mut refusals = 0;
            loop {
                let now = pace.next;
                if now >= opens {
                    pace.accepted(now, &mut jitter);
                    seen.push((now - opens, refusals));
                    opens = now + shut(round);
                    break;
                }
                pace.refused(now, None, &mut jitter);
                refusals += 1;
                assert!(refusals < 1000, "never asked again");
            }
        }
        seen
    }

    #[test]
    fn a_steady_budget_is_learnt() {
        let seen = play(30, |_| seconds(3.2));
        let late: Duration = seen.iter().map(|(late, _)| *late).sum();
        let refusals: u32 = seen.iter().map(|(_, refusals)| *refusals).sum();
        assert!(late < seconds(0.06 * 3.2 * 30.0), "late by {late:?}, {refusals}");
        assert!(refusals < 30 * 3, "{refusals} refusals");
    }

    #[test]
    fn the_first_probe_is_followed_by_steps() {
        let mut jitter = Jitter::new(5);
        let learnt = Learnt { shut: seconds(4.0), strays: seconds(0.4) };
        for _ in 0..50 {
            let mut pace = Pace::new(Duration::ZERO, LONGEST, &mut jitter);
            pace.learnt = Some(learnt);
            let first = jitter.scatter_down(learnt.first_probe());
            pace.refused(first, None, &mut jitter);
            let gap = pace.next - first;
            assert!(gap >= learnt.step() * 9 / 10, "asked again after {gap:?}");
        }
    }

    #[test]
    fn an_uneven_budget_is_followed() {
        let seen = play(30, |n| seconds([2.0, 3.5, 5.0][n % 3]));
        let late: Duration = seen.iter().map(|(late, _)| *late).sum();
        let refusals: u32 = seen.iter().map(|(_, refusals)| *refusals).sum();
        assert!(late < seconds(0.2 * 3.5 * 30.0), "late by {late:?}");
        assert!(refusals < 30 * 5, "{refusals} refusals");
    }

    #[test]
    fn a_budget_that_becomes_fast_is_caught_up_with() {
        let seen = play(40, |n| if n < 10 { seconds(4.0) } else { seconds(0.0) });
        let (late, refusals) = seen[39];
        assert!(late < SHORTEST_GAP && refusals == 0, "late by {late:?} after {refusals}");
    }

    #[test]
    fn a_budget_that_stays_shut_is_asked_at_the_longest_gap() {
        let mut jitter = Jitter::new(1);
        let mut pace = Pace::new(Duration::ZERO, LONGEST, &mut jitter);
        let mut asked = 0;
        while pace.next < Duration::from_secs(3600) {
            let now = pace.next;
            pace.refused(now, None, &mut jitter);
            let gap = pace.next - now;
            assert!(gap >= seconds(0.18) && gap <= seconds(5.5), "gap {gap:?}");
            asked += 1;
        }
        assert!((650..800).contains(&asked), "asked {asked} times in an hour");
    }

    #[test]
    fn a_server_that_names_a_time_is_not_asked_before() {
        let mut jitter = Jitter::new(3);
        let mut pace = Pace::new(Duration::ZERO, LONGEST, &mut jitter);
        for _ in 0..50 {
            let now = pace.next;
            pace.busy(now, seconds(10.0), &mut jitter);
            assert!(pace.next >= now + seconds(10.0));
            pace.refused(now, Some(seconds(30.0)), &mut jitter);
            assert!(pace.next >= now + seconds(30.0));
        }
    }

    #[test]
    fn waits_grow_to_their_limit() {
        let mut jitter = Jitter::new(3);
        let waits: Vec<_> = (1..=40).map(|n| jitter.backoff(n)).collect();
        assert!(waits[0] <= seconds(0.275));
        assert!(waits[39] >= seconds(9.0) && waits[39] <= seconds(11.0));
    }
}
