//! The fleet: what can happen, in the order of its time, and what must be true whatever happens.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lockkeeper::coordinator::slots::Ask;
use lockkeeper::lifecycle::{
    self, AfterRollback, Effect, Event, KubernetesPolicy, Lane, OnDeadline, OnForeignUncordon,
    OnUsers, Policy, SlotPolicy, Stage, Start, Step,
};
use lockkeeper::model::Now;
use lockkeeper::schedule::Windows;

use crate::broken::Broken;
use crate::node::Node;
use crate::profile::Profile;
use crate::random::Random;
use crate::server::{Server, group};

pub(crate) const HOUR: u64 = 3_600_000;

/// How long an answer of the server may take, milliseconds.
pub(crate) const ANSWER_WITHIN: u64 = 600_000;

/// How a host comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boot {
    /// As it was: the power failed, and what was staged is lost.
    Unchanged,
    /// The update that was staged, or what ran where none was.
    Staged,
    /// The shutdown failed to write it.
    NotWritten,
    /// It was written and did not come up.
    FellBack,
}

/// What can happen; numbers tell an effect and a life of an agent from later ones.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    Start,
    Wake(u64),
    News,
    Finish { life: u64, number: u64, effect: Effect },
    Reach { life: u64, number: u64, ask: Ask },
    Told { life: u64, number: u64, lane: Lane, event: Event },
    Prepare,
    Down(Boot),
    Up(Boot),
    Ready,
    Stage(&'static str),
    DiskIsFree,
    Resume,
    Mishap,
    People,
}

/// What was counted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) reboots: u64,
    pub(crate) faults: u64,
}

/// The fleet.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) broken: Broken,
    pub(crate) random: Random,
    /// Milliseconds since it began.
    pub(crate) clock: u64,
    number: u64,
    queue: BTreeMap<(u64, u64), (usize, Happening)>,
    pub(crate) server: Server,
    pub(crate) nodes: Vec<Node>,
    policy: Policy,
    pub(crate) latest: &'static str,
    pub(crate) counts: Counts,
    hash: DefaultHasher,
    /// A promise that was broken, and where.
    pub(crate) wrong: Option<(usize, String)>,
}

fn policy() -> Policy {
    Policy {
        kubernetes: KubernetesPolicy::Required,
        slot: SlotPolicy::Server,
        slot_place: Some("server".to_owned()),
        answer_timeout: Duration::from_millis(ANSWER_WITHIN),
        confirm_every: Duration::from_secs(300),
        denial_retry: Duration::from_secs(30),
        windows: Windows::default(),
        drain_deadline: Duration::from_secs(900),
        on_deadline: OnDeadline::Yield,
        delete_timeout: Duration::from_secs(60),
        on_foreign_uncordon: OnForeignUncordon::Yield,
        rehearsal_every: Duration::from_secs(600),
        reboot_estimate: Duration::from_secs(300),
        shutdown_wait: Duration::from_secs(60),
        users: OnUsers::Wait,
        minimum_uptime: Duration::from_secs(60),
        boot_free: 0,
        settle_time: Duration::from_secs(30),
        settle_deadline: Duration::from_secs(600),
        check_every: Duration::from_secs(60),
        attempt_limit: 3,
        backoff_first: Duration::from_secs(300),
        backoff_max: Duration::from_secs(3600),
        after_rollback: AfterRollback::Halt,
    }
}

// === impl World ===

impl World {
    pub(crate) fn new(profile: Profile, seed: u64, broken: Broken) -> Self {
        let groups = profile.slots.len();
        let nodes = (0..profile.nodes).map(|at| Node::new(at, group(at % groups))).collect();
        let mut world = Self {
            profile,
            broken,
            random: Random::new(seed),
            clock: 0,
            number: 0,
            queue: BTreeMap::new(),
            server: Server::new(&profile, broken),
            nodes,
            policy: policy(),
            latest: if profile.second_update { "newer" } else { "new" },
            counts: Counts::default(),
            hash: DefaultHasher::new(),
            wrong: None,
        };
        for at in 0..profile.nodes {
            let begin = world.random.seconds(0, 60);
            world.soon(at, begin, Happening::Start);
            let staged = world.random.seconds(60, 1200);
            world.soon(at, staged, Happening::Stage("new"));
            if profile.second_update {
                let staged = world.random.seconds(3600, 7200);
                world.soon(at, staged, Happening::Stage("newer"));
            }
            let mishap = world.random.seconds(0, 3600);
            world.soon(at, mishap, Happening::Mishap);
            world.soon(at, Duration::from_millis(profile.hours * HOUR), Happening::People);
        }
        world
    }

    /// Until then, milliseconds.
    pub(crate) fn play(&mut self, until: u64) {
        while self.wrong.is_none() {
            let Some(entry) = self.queue.first_entry() else { return };
            if entry.key().0 > until {
                return;
            }
            let ((clock, _), (at, what)) = entry.remove_entry();
            self.clock = clock;
            self.counts.events += 1;
            self.happen(at, what);
            let node = &self.nodes[at];
            if node.person_cordoned && !node.unschedulable {
                self.breaks(at, "a person's cordon was lifted (promise 3)");
            }
        }
    }

    /// Whether faults still come.
    pub(crate) fn faulty(&self) -> bool {
        self.clock < self.profile.hours * HOUR
    }

    /// A fault of this rate comes now.
    pub(crate) fn fault(&mut self, rate: u64) -> bool {
        let comes = self.faulty() && self.random.permille(rate);
        self.counts.faults += u64::from(comes);
        comes
    }

    pub(crate) fn breaks(&mut self, at: usize, promise: &str) {
        self.tell(at, format!("BROKEN: {promise}"));
        self.wrong.get_or_insert_with(|| (at, promise.to_owned()));
    }

    pub(crate) fn tell(&mut self, at: usize, text: String) {
        (self.clock, at, &text).hash(&mut self.hash);
        self.nodes[at].tell(self.clock, text);
    }

    /// Tells one run from another.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    pub(crate) fn soon(&mut self, at: usize, delay: Duration, what: Happening) {
        // Never before its time.
        let time = self.clock + u64::try_from(delay.as_nanos().div_ceil(1_000_000)).expect("hours");
        let number = self.number();
        self.queue.insert((time, number), (at, what));
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The Node or the deployments may be others now: the watches tell.
    pub(crate) fn news(&mut self, at: usize) {
        let delay = self.random.seconds(0, 2);
        self.soon(at, delay, Happening::News);
    }

    pub(crate) fn now(&self, at: usize) -> Now {
        let node = &self.nodes[at];
        let start = Timestamp::from_second(1_800_000_000 + node.wall_off).expect("in range");
        let wall = start + SignedDuration::from_millis(i64::try_from(self.clock).expect("hours"));
        Now { wall, since_boot: Duration::from_millis(self.clock - node.boot_at) }
    }

    // === The agent ===

    pub(crate) fn start(&mut self, at: usize) {
        let node = &self.nodes[at];
        if !node.on || node.going_down || node.agent.is_some() {
            return;
        }
        let start = Start {
            boot: node.boot_mark(),
            kubelet_unit: true,
            record_set_aside: None,
            seed: u64::try_from(at).expect("few"),
        };
        let record = node.disk.clone().unwrap_or_default();
        let step = lifecycle::start(&self.policy, record, start, self.now(at));
        self.tell(at, "the agent starts".to_owned());
        self.accept(at, step);
        self.news(at);
    }

    /// Gives an event to the agent, if it runs.
    pub(crate) fn deliver(&mut self, at: usize, event: Event) {
        let Some(state) = self.nodes[at].agent.clone() else { return };
        let step = self.broken.step(&self.policy, &state, self.now(at), event);
        self.accept(at, step);
    }

    /// The record first, then the effects; the agent may be killed at each point.
    fn accept(&mut self, at: usize, step: Step) {
        for change in &step.transitions {
            let (from, to, why) = (change.from.name(), change.to.name(), change.because.name());
            let detail = change.detail.as_deref().unwrap_or_default();
            self.tell(at, format!("{from} -> {to}: {why} {detail}"));
        }
        let killed = self.fault(self.profile.kill).then(|| self.random.below(3));
        if killed == Some(0) {
            self.kill(at, "before the record is written");
            return;
        }
        let node = &mut self.nodes[at];
        let changed = node.disk.as_ref() != Some(&step.next.record);
        let failed = changed && node.disk_full;
        if changed && !failed {
            node.disk = Some(step.next.record.clone());
        }
        let unwritable = step.next.unwritable.is_some();
        node.agent = Some(step.next);
        if killed == Some(1) {
            self.kill(at, "between the record and what follows");
            return;
        }
        node.wake = self.number + 1;
        if let Some(wake) = &step.wake {
            let number = self.number + 1;
            self.soon(at, wake.after, Happening::Wake(number));
        } else {
            self.number += 1;
        }
        let mut news = Vec::new();
        match (failed, unwritable) {
            (true, false) => news.push(Event::RecordUnwritable("the disk is full".to_owned())),
            (false, true) if changed => news.push(Event::RecordWritten),
            (true | false, _) => {}
        }
        for effect in step.effects {
            if failed && effect.needs_record() {
                news.push(Event::NotDone(effect.lane()));
            } else {
                self.begin(at, effect);
            }
        }
        if killed == Some(2) {
            self.kill(at, "after its effects began");
            return;
        }
        for event in news {
            self.deliver(at, event);
        }
    }

    pub(crate) fn kill(&mut self, at: usize, when: &str) {
        self.tell(at, format!("the agent is killed {when}"));
        self.nodes[at].lose_agent();
        let delay = self.random.seconds(1, 60);
        self.soon(at, delay, Happening::Start);
    }

    // === What must be true ===

    /// No more nodes of a group are drained or down by our doing than it has slots.
    pub(crate) fn check_down(&mut self, at: usize) {
        let of = self.nodes[at].group.clone();
        let counts = |node: &&Node| {
            node.group == of && (node.draining || node.down_by_us) && !node.written_off
        };
        let down = self.nodes.iter().filter(counts).count();
        let index = at % self.profile.slots.len();
        if down > usize::try_from(self.profile.slots[index]).expect("few") {
            self.breaks(at, "more nodes down than the group allows (promise 2)");
        }
    }

    /// Where everything must be once faults have stopped and people have done what only they can.
    pub(crate) fn check_end(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if node.dead {
                continue;
            }
            let holds = self.server.holds(&node.group, &node.id);
            let (rests, explained) = node.agent.as_ref().map_or((false, false), |agent| {
                let record = &agent.record;
                let rests = matches!(record.core.stage, Stage::Idle | Stage::Waiting);
                let tries = record.tries.get(self.latest).copied().unwrap_or(0);
                let denied = record.denied.contains_key(self.latest);
                (rests, denied || tries >= self.policy.attempt_limit)
            });
            let updated = node.booted == self.latest;
            let words = if node.mark.is_some() {
                "stays cordoned by us"
            } else if holds {
                "keeps a slot that it needs no longer"
            } else if !rests {
                "does not come to rest"
            } else if !updated && !explained {
                "is neither updated nor says why"
            } else {
                continue;
            };
            let text = format!("in the end, {} {words} (promise 4)", node.name);
            let others: Vec<String> = self
                .server
                .holders(&node.group)
                .iter()
                .map(|id| {
                    let of =
                        self.nodes.iter().find(|other| other.id == *id).expect("a node of ours");
                    let story = of.story.join("\n      ");
                    format!("{} holds a slot, {:?}:\n      {story}", of.name, of.stage())
                })
                .collect();
            let here = format!("{:?}; {}", node.stage(), others.join("\n"));
            self.tell(at, here);
            self.breaks(at, &text);
            return;
        }
    }
}
