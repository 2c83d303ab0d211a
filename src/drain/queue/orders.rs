//! Any order of events: what must hold at every step, and that a drain ends once all is well.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::tests::{LIMITS, RULES, at, plain, pod, refusal, unreachable};
use super::*;

/// One thing that can happen, with numbers to choose among what is there.
#[derive(Debug, Clone)]
enum Happening {
    Arrive {
        pod: usize,
        critical: bool,
    },
    Change {
        pod: usize,
        phase: usize,
        terminating: bool,
    },
    /// Its controller lets go of it, or takes it back.
    Adopt {
        pod: usize,
        owned: bool,
    },
    Vanish(usize),
    Relist,
    Answer {
        which: usize,
        answer: Answer,
    },
    Time(Duration),
}

fn answers() -> impl Strategy<Value = Answer> {
    let says = || "says".to_owned();
    prop_oneof![
        Just(Answer::Accepted),
        Just(Answer::Gone),
        Just(Answer::Elsewhere),
        (0..2usize).prop_map(|n| refusal(["x", "y"][n])),
        Just(Answer::BudgetExhausted { budget: None, says: says(), retry_after: None }),
        Just(Answer::BudgetBusy { budget: Some("x".into()), says: says(), retry_after: at(10.0) }),
        Just(Answer::TooManyRequests { says: says(), retry_after: Some(at(1.0)) }),
        Just(Answer::TooManyRequests { says: says(), retry_after: None }),
        Just(Answer::SeveralBudgets { says: says() }),
        Just(Answer::NamespaceTerminating),
        Just(Answer::CredentialRefused { says: says() }),
        Just(Answer::ApiTrouble { says: says() }),
        Just(unreachable()),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        2 => (0..12usize, any::<bool>())
            .prop_map(|(pod, critical)| Happening::Arrive { pod, critical }),
        2 => (0..12usize, 0..3usize, any::<bool>())
            .prop_map(|(pod, phase, terminating)| Happening::Change { pod, phase, terminating }),
        2 => (0..12usize, any::<bool>())
            .prop_map(|(pod, owned)| Happening::Adopt { pod, owned }),
        1 => (0..12usize).prop_map(Happening::Vanish),
        1 => Just(Happening::Relist),
        6 => (0..8usize, answers())
            .prop_map(|(which, answer)| Happening::Answer { which, answer }),
        3 => (0..20_000u64).prop_map(|ms| Happening::Time(Duration::from_millis(ms))),
    ];
    proptest::collection::vec(one, 0..80)
}

/// The pods of a node and the requests under way; checks what must hold at every step.
struct World {
    queue: Queue,
    now: Duration,
    present: BTreeMap<String, Pod>,
    vanished: BTreeSet<String>,
    told_gone: BTreeSet<String>,
    flying: Vec<String>,
    parallel: usize,
}

impl World {
    fn ask(&mut self) {
        for ask in self.queue.next(self.now) {
            let uid = ask.pod.uid;
            assert!(!self.flying.contains(&uid), "{uid} asked twice at once");
            assert!(!self.vanished.contains(&uid), "{uid} asked after it vanished");
            assert!(!self.told_gone.contains(&uid), "{uid} asked after it was said to be gone");
            let pod = &self.present[&uid];
            assert!(!is_terminating(pod), "{uid} asked while it terminates");
            self.flying.push(uid);
        }
        assert!(self.flying.len() <= self.parallel);
        assert_eq!(self.queue.in_flight(), self.flying.len());
        if self.queue.standing() == Standing::Empty {
            let left = |pod: &&Pod| matches!(classify(pod, None, &RULES), Verdict::Evict { .. });
            assert_eq!(self.present.values().filter(left).count(), 0, "empty too early");
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { pod: n, critical } => {
                let uid = format!("p{n}");
                if !self.vanished.contains(&uid) && !self.present.contains_key(&uid) {
                    let owner = format!("o{}", n / 4);
                    let priority = if critical { 2_000_000_000 } else { 0 };
                    let new = pod(&uid, &owner, |p| p["spec"]["priority"] = json!(priority));
                    self.queue.seen(&new, None, self.now);
                    self.present.insert(uid, new);
                }
            }
            Happening::Change { pod: n, phase, terminating } => {
                if let Some(pod) = self.present.get_mut(&format!("p{n}")) {
                    let phase = ["Pending", "Running", "Succeeded"][phase];
                    let ended = pod.status.as_ref().and_then(|s| s.phase.as_deref());
                    if ended != Some("Succeeded") {
                        pod.status.as_mut().unwrap().phase = Some(phase.into());
                    }
                    if terminating {
                        pod.metadata.deletion_timestamp =
                            super::tests::terminating("t", "t").metadata.deletion_timestamp;
                    }
                    self.queue.seen(pod, None, self.now);
                }
            }
            Happening::Adopt { pod: n, owned } => {
                if let Some(pod) = self.present.get_mut(&format!("p{n}")) {
                    let owner = plain("x", &format!("o{}", n / 4)).metadata.owner_references;
                    pod.metadata.owner_references = owner.filter(|_| owned);
                    self.queue.seen(pod, None, self.now);
                }
            }
            Happening::Vanish(n) => {
                let uid = format!("p{n}");
                if self.present.remove(&uid).is_some() {
                    self.queue.gone(&uid);
                    self.vanished.insert(uid);
                }
            }
            Happening::Relist => {
                for pod in self.present.values() {
                    self.queue.seen(pod, None, self.now);
                }
                self.queue.listed(&self.present.keys().cloned().collect());
            }
            Happening::Answer { which, answer } => {
                if !self.flying.is_empty() {
                    let uid = self.flying.remove(which % self.flying.len());
                    if matches!(answer, Answer::Gone | Answer::Elsewhere) {
                        self.told_gone.insert(uid.clone());
                    }
                    self.queue.answered(&uid, &answer, self.now);
                }
            }
            Happening::Time(passes) => self.now += passes,
        }
        self.ask();
    }

    /// From now on everything works; returns whether the drain ends.
    fn settle(&mut self) -> bool {
        self.happen(Happening::Relist);
        for _ in 0..500 {
            if let Some(uid) = self.flying.pop() {
                self.queue.answered(&uid, &Answer::Accepted, self.now);
            } else if self.queue.standing() == Standing::Empty {
                return true;
            } else if let Some(wake) = self.queue.wake(self.now) {
                self.now = wake;
            }
            let leaving: Vec<String> = self
                .queue
                .pods
                .iter()
                .filter(|(_, entry)| matches!(entry.state, State::Leaving))
                .map(|(uid, _)| uid.clone())
                .collect();
            for uid in leaving {
                self.present.remove(&uid);
                self.queue.gone(&uid);
                self.vanished.insert(uid);
            }
            self.ask();
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_keeps_the_rules_and_ends(
        happenings in happenings(),
        parallel in 1..5usize,
        seed in any::<u64>(),
    ) {
        let mut world = World {
            queue: Queue::new(RULES, Limits { parallel, ..LIMITS }, seed),
            now: Duration::ZERO,
            present: BTreeMap::new(),
            vanished: BTreeSet::new(),
            told_gone: BTreeSet::new(),
            flying: Vec::new(),
            parallel,
        };
        for happening in happenings {
            world.happen(happening);
        }
        prop_assert!(world.settle(), "stuck: {:?}", world.queue);
    }
}
