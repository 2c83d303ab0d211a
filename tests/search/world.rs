//! A small world around the heart: hosts that boot, one slot, and everything that can go wrong.
//!
//! Its clocks stand still: the time since boot is always [`CLOCK`] and the wall shows [`wall`]. When time
//! passes, everything that the world remembers becomes older instead (`time.rs`), so that two worlds that
//! differ only in when they happen are one.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use lockkeeper::lifecycle::{
    BootMark, Effect, Event, HostView, Inhibitor, Lane, NodeTrouble, NodeView, Outcome, Policy,
    Record, Stage, State, Step,
};
use lockkeeper::model::{BootId, Deployment, NodeUid, Now, SystemView};

use crate::rules::{Kind, Rules};

/// The time since boot, always.
pub(crate) const CLOCK: Duration = Duration::from_secs(20_000);

/// The boot that runs is always called so; those before it have lower numbers.
pub(crate) const BOOT: u8 = 9;

/// The heart under search: the real one, or a copy that is broken on purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heart {
    /// What follows from an event.
    pub(crate) step: fn(&Policy, &State, Now, Event) -> Step,
    /// The shell around it writes the record after the effects have begun.
    pub(crate) writes_late: bool,
}

/// What is played: a heart in a world with these rules.
#[derive(Debug)]
pub(crate) struct Play {
    /// The heart.
    pub(crate) heart: Heart,
    /// What can happen.
    pub(crate) rules: Rules,
    /// The configuration.
    pub(crate) policy: Policy,
    /// Only breaches of this promise count.
    pub(crate) only: Option<u8>,
    /// Of several hosts one goes first where the others cannot see it.
    pub(crate) reduced: bool,
}

/// How a reboot turns out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Boot {
    /// The target boots.
    Target,
    /// The shutdown does not write it.
    FinalizeFails,
    /// It is written, and the bootloader falls back.
    FallsBack,
}

/// Whether the slot server still knows of its grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// It does.
    Knows,
    /// It forgot after the slot was confirmed last: nobody could have known.
    Forgot,
    /// It forgot before a look that is never to be left out.
    ForgotBeforeALook,
}

/// One host, its Node and its agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// Faults that may still come to this host.
    pub(crate) faults: u8,
    /// What is on disk, where that is not what the running agent knows.
    pub(crate) disk: Option<Record>,
    /// The agent, while it runs.
    pub(crate) agent: Option<State>,
    /// Effects that the agent asked for and that have not happened.
    pub(crate) pending: BTreeMap<Lane, Effect>,
    /// When the agent wants to be woken.
    pub(crate) wake: Option<Duration>,
    /// Attempts that ended with the update, up to one: a node that went round.
    pub(crate) rounds: u8,
    /// Since when it drains, as far as its record says so.
    pub(crate) draining_since: Option<Duration>,
    /// What runs.
    pub(crate) booted: &'static str,
    /// What would boot next, if staged.
    pub(crate) staged: Option<&'static str>,
    /// A target that was written but did not boot.
    pub(crate) written: Option<&'static str>,
    /// The last shutdown failed to finalize.
    pub(crate) finalize_failed: bool,
    /// The shutdown has begun, by our doing.
    pub(crate) going_down: bool,
    /// The Node's UID.
    pub(crate) uid: u8,
    /// The Node was deleted.
    pub(crate) node_gone: bool,
    /// The Node.
    pub(crate) unschedulable: bool,
    /// Our mark on it.
    pub(crate) marked: bool,
    /// A person cordoned it.
    pub(crate) person_cordoned: bool,
    /// The slot server's release lifted that cordon.
    pub(crate) lifted_by_server: bool,
    /// Since when the kubelet of this boot has reported.
    pub(crate) ready: Option<Duration>,
    /// Units and checks were well when they were last looked at in this boot.
    pub(crate) well: bool,
    /// Pods that a drain has to move.
    pub(crate) pods: bool,
    /// They came when the reboot was asked for already: nobody could have known.
    pub(crate) pods_came_late: bool,
    /// Reboots asked for by attempt.
    pub(crate) reboots: BTreeMap<String, u8>,
    /// Reboots that began by target and have not brought it.
    pub(crate) tries: BTreeMap<&'static str, u8>,
    /// Went down with the slot held, and has not proved itself well since.
    pub(crate) down_with_slot: bool,
    /// Targets that fell back.
    pub(crate) fell_back: Vec<&'static str>,
    /// Until when the server may still grant a request for whose answer nobody waits.
    pub(crate) late_grant: Option<Duration>,
    /// What the server knows of its grant.
    pub(crate) memory: Memory,
    /// The disk is full.
    pub(crate) disk_full: bool,
    /// A program blocks the shutdown for good.
    pub(crate) inhibited: bool,
    /// Pods that never leave.
    pub(crate) pods_stay: bool,
    /// Zincati waits for an answer.
    pub(crate) zincati_waits: bool,
    /// Zincati may reboot.
    pub(crate) zincati_may: bool,
    /// Zincati does nothing any more in this boot.
    pub(crate) zincati_gone: bool,
    /// A snapshot of the host: its record and what runs.
    pub(crate) snapshot: Option<(Record, &'static str)>,
}

/// All hosts and the slot.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The hosts.
    pub(crate) hosts: Vec<Host>,
    /// Who holds the slot; one more than there are hosts: somebody else.
    pub(crate) holder: Option<usize>,
    /// What the last step ended: it is told, and is no part of the world.
    pub(crate) ended: Option<Outcome>,
    /// The promise that the last step broke.
    pub(crate) broken: Option<Broken>,
}

/// A broken promise: its number and what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The number in ARCHITECTURE.md.
    pub(crate) promise: u8,
    /// What happened.
    pub(crate) what: String,
}

// === impl Host ===

impl Host {
    fn new(rules: &Rules) -> Self {
        Self {
            faults: 0,
            disk: None,
            agent: None,
            pending: BTreeMap::new(),
            wake: None,
            rounds: 0,
            draining_since: None,
            booted: "old",
            staged: None,
            written: None,
            finalize_failed: false,
            going_down: false,
            uid: 0,
            node_gone: false,
            unschedulable: rules.person_cordoned,
            marked: false,
            person_cordoned: rules.person_cordoned,
            lifted_by_server: false,
            ready: Some(Duration::ZERO),
            well: false,
            pods: true,
            pods_came_late: false,
            reboots: BTreeMap::new(),
            tries: BTreeMap::new(),
            down_with_slot: false,
            fell_back: Vec::new(),
            late_grant: None,
            memory: Memory::Knows,
            disk_full: false,
            inhibited: false,
            pods_stay: false,
            zincati_waits: false,
            zincati_may: false,
            zincati_gone: false,
            snapshot: None,
        }
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        self.agent.as_ref().map(|agent| agent.record.core.stage)
    }

    /// What would be read from disk now.
    pub(crate) fn on_disk(&self) -> Option<&Record> {
        self.disk.as_ref().or(self.agent.as_ref().map(|agent| &agent.record))
    }

    pub(crate) fn node_uid(&self) -> NodeUid {
        NodeUid(["uid-0", "uid-1", "uid-2"][usize::from(self.uid)].to_owned())
    }

    /// The Node as the API server shows it. Until the kubelet of this boot reports, it looks as well as
    /// it did before: nobody has said otherwise.
    pub(crate) fn node(&self) -> Result<NodeView, NodeTrouble> {
        if self.node_gone {
            return Err(NodeTrouble::Missing("there is no such Node".to_owned()));
        }
        let boot = if self.ready.is_some() { BOOT } else { 0 };
        Ok(NodeView {
            uid: self.node_uid(),
            unschedulable: self.unschedulable,
            mark: self.marked.then(|| "ours".to_owned()),
            hold: None,
            reboot: None,
            ready: true,
            not_ready_because: None,
            boot_id: Some(boot_mark(boot).id),
        })
    }

    pub(crate) fn system(&self) -> SystemView {
        let entry = |identity: &str, booted, staged| Deployment {
            identity: identity.to_owned(),
            version: None,
            place: None,
            booted,
            staged,
        };
        let mut deployments = Vec::new();
        deployments.extend(self.staged.map(|staged| entry(staged, false, true)));
        deployments.extend(self.written.map(|written| entry(written, false, false)));
        deployments.push(entry(self.booted, true, false));
        SystemView { deployments, ..SystemView::default() }
    }

    pub(crate) fn gates(&self, inhibited: bool) -> HostView {
        let blocker = Inhibitor { who: "backup".to_owned(), why: "runs".to_owned() };
        let inhibited = inhibited || self.inhibited;
        HostView {
            inhibitors: if inhibited { vec![blocker] } else { Vec::new() },
            finalize_unit_active: true,
            clock_synchronised: true,
            preparing_for_shutdown: self.going_down,
            ..HostView::default()
        }
    }

    /// The process ends; what it asked the slot server may still be granted.
    pub(crate) fn agent_ends(&mut self, policy: &Policy) {
        if let Some(Effect::RequestSlot { .. }) = self.pending.get(&Lane::Slot) {
            self.late_grant = Some(CLOCK + policy.answer_timeout);
        }
        if let Some(agent) = self.agent.take() {
            self.disk.get_or_insert(agent.record);
        }
        self.pending.clear();
        self.pods_came_late = false;
        self.wake = None;
        self.zincati_waits = false;
    }

    /// The host comes up again.
    pub(crate) fn come_up(&mut self, policy: &Policy, boot: Boot, by_shutdown: bool) {
        self.agent_ends(policy);
        let staged = self.staged.take();
        self.finalize_failed = false;
        if let (Some(target), true) = (staged, by_shutdown) {
            match boot {
                Boot::Target => {
                    self.booted = target;
                    self.written = None;
                    self.tries.remove(target);
                }
                Boot::FinalizeFails => self.finalize_failed = true,
                Boot::FallsBack => {
                    self.written = Some(target);
                    if !self.fell_back.contains(&target) {
                        self.fell_back.push(target);
                    }
                }
            }
        }
        self.going_down = false;
        self.zincati_may = false;
        self.zincati_gone = false;
        self.ready = None;
        self.well = false;
        self.draining_since = None;
        self.rename_boots();
    }
}

// === impl World ===

impl Play {
    pub(crate) fn new(heart: Heart, rules: Rules) -> Self {
        Self { heart, rules, policy: rules.policy(), only: None, reduced: true }
    }

    /// The world as it begins.
    pub(crate) fn first(&self) -> World {
        let host = |faults: &u8| Host { faults: *faults, ..Host::new(&self.rules) };
        World {
            hosts: self.rules.faults.iter().map(host).collect(),
            holder: None,
            ended: None,
            broken: None,
        }
    }
}

impl World {
    /// Notes a broken promise, the first of the step, if it counts.
    pub(crate) fn breaks(&mut self, play: &Play, promise: u8, what: String) {
        if self.broken.is_none() && play.only.is_none_or(|only| only == promise) {
            self.broken = Some(Broken { promise, what });
        }
    }

    /// Gives an event to an agent: the record is written before its effects begin.
    pub(crate) fn deliver(&mut self, play: &Play, at: usize, event: Event) {
        let Some(state) = self.hosts[at].agent.take() else { return };
        let step = (play.heart.step)(&play.policy, &state, now(), event);
        self.accept(play, at, Some(state.record), step);
    }

    /// Carries a step out as the agent's loop does (`src/agent/mod.rs`), and what follows from what could
    /// not be written. Only then something must be under way.
    pub(crate) fn accept(&mut self, play: &Play, at: usize, before: Option<Record>, step: Step) {
        let mut waiting = step.waiting.clone();
        let mut news = VecDeque::from(self.carry_out(play, at, before, step));
        while let Some(event) = news.pop_front() {
            let Some(state) = self.hosts[at].agent.take() else { return };
            let step = (play.heart.step)(&play.policy, &state, now(), event);
            waiting = step.waiting.clone();
            news.extend(self.carry_out(play, at, Some(state.record), step));
        }
        self.is_awaited(play, at, &waiting);
    }

    /// The record, then the effects.
    fn carry_out(
        &mut self,
        play: &Play,
        at: usize,
        before: Option<Record>,
        step: Step,
    ) -> Vec<Event> {
        let host = &mut self.hosts[at];
        let mut news = Vec::new();
        if host.disk_full {
            // What was on disk stays there.
            if host.disk.is_none() {
                host.disk = before;
            }
            if step.next.unwritable.is_none() {
                news.push(Event::RecordUnwritable("no space".to_owned()));
            }
        } else if play.heart.writes_late {
            host.disk = before;
        } else {
            host.disk = None;
        }
        let outcome = step.transitions.iter().find_map(|transition| transition.outcome);
        host.wake = step.wake.as_ref().map(|wake| CLOCK + wake.after);
        let drains = step.next.record.core.stage == Stage::Draining;
        host.draining_since = drains.then(|| host.draining_since.unwrap_or(CLOCK));
        host.agent = Some(step.next);
        for effect in step.effects {
            if effect.needs_record() && host.disk_full {
                news.push(Event::NotDone(effect.lane()));
            } else {
                host.begin(&play.policy, effect);
            }
        }
        if outcome == Some(Outcome::Updated) && play.rules.rounds > 0 {
            host.rounds = 1;
        }
        self.ended = outcome.or(self.ended);
        news
    }
}

impl Host {
    fn begin(&mut self, policy: &Policy, effect: Effect) {
        let lane = effect.lane();
        if effect == Effect::StopDrain {
            // Ends the drain that runs; its outcome says so. A rehearsal or a last look ends by itself.
            if !matches!(
                self.pending.get(&lane),
                Some(Effect::Rehearse | Effect::VerifyEmpty { .. })
            ) {
                self.pending.insert(lane, effect);
            }
        } else if let Some(Effect::RequestSlot { .. }) = self.pending.insert(lane, effect) {
            self.late_grant = Some(CLOCK + policy.answer_timeout);
        }
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hosts.hash(hasher);
        self.holder.hash(hasher);
    }
}

// === Time and names ===

pub(crate) fn wall() -> Timestamp {
    Timestamp::constant(1_800_000_000, 0)
}

pub(crate) fn now() -> Now {
    Now { wall: wall(), since_boot: CLOCK }
}

/// The mark of a boot by its number. Attempts are called by its first eight digits.
pub(crate) fn boot_mark(boot: u8) -> BootMark {
    BOOTS[usize::from(boot)].clone()
}

static BOOTS: LazyLock<Vec<BootMark>> = LazyLock::new(|| {
    let mark = |boot: u8| {
        let id = format!("{boot:08x}{:024x}", 0);
        BootMark { id: BootId::parse(&id).expect("hex digits"), soft_reboots: 0 }
    };
    (0..=BOOT).map(mark).collect()
});

impl Rules {
    /// Whether a fault of this kind can come.
    pub(crate) fn may(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}
