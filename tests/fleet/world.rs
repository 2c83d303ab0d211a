//! The fleet: what can happen, in the order of its time.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lockkeeper::lifecycle::{
    self, AfterRollback, Effect, Event, KubernetesPolicy, Lane, OnDeadline, OnForeignUncordon,
    OnUsers, Policy, SlotPolicy, Start, Step,
};
use lockkeeper::model::Now;
use lockkeeper::schedule::{Window, Windows};

use crate::broken::Broken;
use crate::node::Node;
use crate::profile::{Fault, Profile};
use crate::random::Random;
use crate::server::{Message, Server, group};

pub(crate) const HOUR: u64 = 3_600_000;

/// How long an answer of the server may take, milliseconds.
pub(crate) const ANSWER_WITHIN: u64 = 600_000;

/// More than any fleet needs.
const EVENTS_MAX: u64 = 5_000_000;

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

/// What can happen; numbers tell an effect, a life of an agent and a boot from later ones.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    Start,
    Wake(u64),
    News,
    Finish { life: u64, number: u64, effect: Effect },
    Reach { life: u64, number: u64, message: Message },
    Told { life: u64, number: u64, lane: Lane, event: Event },
    Prepare(bool),
    Down { boots: u32, boot: Boot },
    Up(Boot),
    Ready(u32),
    PodsCome,
    Stage,
    DiskIsFree,
    Synchronised,
    Resume,
    Mishap,
    ApiMishap,
    People,
}

/// What was counted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) reboots: u64,
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
    /// Releases may arrive after the next request of their node.
    pub(crate) late_releases: bool,
    /// Until when the API server is away.
    pub(crate) api_away_until: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) policy: Policy,
    /// The last update that there will be.
    pub(crate) latest: String,
    pub(crate) counts: Counts,
    pub(crate) faults: BTreeMap<Fault, u64>,
    hash: DefaultHasher,
    /// A promise that was broken, and where.
    pub(crate) wrong: Option<(usize, String)>,
}

/// What people configured: some of it is the seed's choice.
fn policy(profile: &Profile, seed: u64) -> Policy {
    let choice = Random::new(!seed).next();
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let window = Window::new(&days, "09:00", "6h", "UTC").expect("a window");
    let windows = if profile.window { Windows::new(vec![window]) } else { Windows::default() };
    Policy {
        kubernetes: KubernetesPolicy::Required,
        slot: SlotPolicy::Server,
        slot_place: Some("server".to_owned()),
        answer_timeout: Duration::from_millis(ANSWER_WITHIN),
        confirm_every: Duration::from_secs(300),
        denial_retry: Duration::from_secs(30),
        windows,
        drain_deadline: Duration::from_secs(900),
        on_deadline: match choice % 4 {
            0 => OnDeadline::Delete,
            1 => OnDeadline::Reboot,
            _ => OnDeadline::Yield,
        },
        delete_timeout: Duration::from_secs(60),
        on_foreign_uncordon: match (choice >> 8) % 2 {
            0 => OnForeignUncordon::Yield,
            _ => OnForeignUncordon::Cordon,
        },
        rehearsal_every: Duration::from_secs(600),
        reboot_estimate: Duration::from_secs(300),
        shutdown_wait: Duration::from_secs(60),
        zincati: false,
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
        let like = |at: usize| if at < profile.clones * 2 { at - at % 2 } else { at };
        let nodes =
            (0..profile.nodes).map(|at| Node::new(at, like(at), group(at % groups))).collect();
        let mut world = Self {
            profile,
            broken,
            random: Random::new(seed),
            clock: 0,
            number: 0,
            queue: BTreeMap::new(),
            server: Server::new(&profile, broken),
            late_releases: false,
            api_away_until: 0,
            nodes,
            policy: policy(&profile, seed),
            latest: format!("u{}", profile.updates),
            counts: Counts::default(),
            faults: BTreeMap::new(),
            hash: DefaultHasher::new(),
            wrong: None,
        };
        for at in 0..profile.nodes {
            let begin = world.random.seconds(0, 60);
            world.soon(at, begin, Happening::Start);
            let staged = world.random.seconds(60, 1200);
            world.soon(at, staged, Happening::Stage);
            for later in 1..profile.updates {
                let hour = Duration::from_secs(3600) * u32::try_from(later).expect("few");
                let staged = hour + world.random.seconds(0, 3600);
                world.soon(at, staged, Happening::Stage);
            }
            let mishap = world.random.seconds(0, 3600);
            world.soon(at, mishap, Happening::Mishap);
            world.soon(at, Duration::from_millis(profile.hours * HOUR), Happening::People);
        }
        world.soon(0, Duration::from_secs(1800), Happening::ApiMishap);
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
            let was_down = self.nodes[at].is_down();
            self.happen(at, what);
            self.check(at, was_down);
            if self.counts.events > EVENTS_MAX {
                self.breaks(at, "something goes round without end (promise 5)");
            }
        }
    }

    /// Whether faults still come.
    pub(crate) fn faulty(&self) -> bool {
        self.clock < self.profile.hours * HOUR
    }

    /// A fault of this kind comes now.
    pub(crate) fn fault(&mut self, fault: Fault) -> bool {
        let comes = self.faulty() && self.random.permille(self.profile.rate(fault));
        if comes {
            *self.faults.entry(fault).or_insert(0) += 1;
        }
        comes
    }

    /// The newest update that is out.
    pub(crate) fn published(&self) -> String {
        let hour = usize::try_from(self.clock / HOUR).expect("few");
        format!("u{}", (hour + 1).min(self.profile.updates))
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
        let node = &mut self.nodes[at];
        if !node.on || node.agent.is_some() {
            return;
        }
        if node.going_down {
            // Nothing is started while a shutdown is under way; it may be abandoned.
            return self.soon(at, Duration::from_secs(5), Happening::Start);
        }
        let damaged = std::mem::take(&mut node.damaged);
        if damaged {
            // What was known of the targets is lost with it.
            node.disk = None;
            node.fell_back.clear();
            node.tries.clear();
        }
        let start = Start {
            boot: node.boot_mark(),
            kubelet_unit: true,
            config_wrong: None,
            record_set_aside: damaged.then(|| "the checksum does not fit".to_owned()),
            seed: u64::try_from(at).expect("few"),
        };
        let record = node.disk.as_ref().map(|(bytes, _)| serde_json::from_slice(bytes));
        let record = record.transpose().expect("as it was written").unwrap_or_default();
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
        let killed = self.fault(Fault::Kill).then(|| self.random.below(3));
        if killed == Some(0) {
            return self.kill(at, "before the record is written");
        }
        let node = &mut self.nodes[at];
        let changed = node.disk.as_ref().is_none_or(|(_, kept)| *kept != step.next.record);
        let failed = changed && node.disk_full;
        let late = self.broken == Broken::AgentWritesLate && killed.is_some();
        if changed && !failed && !late {
            let bytes = serde_json::to_vec(&step.next.record).expect("JSON");
            node.disk = Some((bytes, step.next.record.clone()));
        }
        let unwritable = step.next.unwritable.is_some();
        node.agent = Some(step.next);
        node.waiting = Some(step.waiting);
        if killed == Some(1) && !late {
            return self.kill(at, "between the record and what follows");
        }
        let wake = self.number();
        self.nodes[at].wake = wake;
        self.nodes[at].wakes = step.wake.is_some();
        if let Some(next) = &step.wake {
            self.soon(at, next.after, Happening::Wake(wake));
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
        if killed.is_some() {
            return self.kill(at, "after its effects began");
        }
        for event in news {
            self.deliver(at, event);
        }
    }

    pub(crate) fn kill(&mut self, at: usize, when: &str) {
        self.tell(at, format!("the agent is killed {when}"));
        // What it had begun may be done all the same; nobody hears how it went.
        for effect in std::mem::take(&mut self.nodes[at].under_way).into_values() {
            if effect.needs_record() && self.random.permille(500) {
                self.outcome(at, &effect);
            }
        }
        self.nodes[at].lose_agent();
        let delay = self.random.seconds(1, 60);
        self.soon(at, delay, Happening::Start);
    }
}
