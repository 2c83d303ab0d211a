//! A small world around the heart: hosts that boot, one slot, and everything that can go wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lockkeeper::fleetlock::SlotAnswer;
use lockkeeper::lifecycle::{
    AfterRollback, BootMark, Effect, Event, HostView, Inhibitor, KubernetesPolicy, Lane, NodeView,
    OnDeadline, OnForeignUncordon, OnUsers, Policy, Record, SlotPolicy, Stage, State, Step,
};
use lockkeeper::model::{BootId, Deployment, NodeUid, Now, SystemView};
use lockkeeper::schedule::Windows;

/// The heart under search: the real one, or a copy that is broken on purpose.
pub(crate) type Heart = fn(&Policy, &State, Now, Event) -> Step;

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

/// One host, its Node and its agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// What is on disk.
    pub(crate) disk: Option<Record>,
    /// The agent, while it runs.
    pub(crate) agent: Option<State>,
    /// Effects that the agent asked for and that have not happened.
    pub(crate) pending: BTreeMap<Lane, Effect>,
    /// When the agent wants to be woken.
    pub(crate) wake: Option<Duration>,
    /// Boots so far.
    pub(crate) boot: u8,
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
    /// The Node.
    pub(crate) unschedulable: bool,
    /// Our mark on it.
    pub(crate) mark: Option<String>,
    /// A person's cordon from before.
    pub(crate) person_cordoned: bool,
    /// The kubelet of this boot has reported.
    pub(crate) ready: bool,
    /// Pods that a drain has to move.
    pub(crate) pods: bool,
    /// Reboots asked for by attempt.
    pub(crate) reboots: BTreeMap<String, u8>,
    /// Went down with the slot held and has not been ready since.
    pub(crate) down_with_slot: bool,
    /// Targets that fell back.
    pub(crate) fell_back: Vec<&'static str>,
    /// A request that the server may still grant although nobody waits for it.
    pub(crate) late_grant: bool,
}

/// All hosts and the slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The hosts.
    pub(crate) hosts: Vec<Host>,
    /// Who holds the slot.
    pub(crate) holder: Option<usize>,
    /// Both clocks, seconds since the world began.
    pub(crate) clock: Duration,
    /// Faults that may still come on this path.
    pub(crate) faults: u8,
    /// The policy frees the slot after a fallback, and the same update is staged again.
    pub(crate) releasing: bool,
}

/// A broken promise, in words.
pub(crate) type Broken = String;

pub(crate) fn policy() -> Policy {
    Policy {
        kubernetes: KubernetesPolicy::Required,
        slot: SlotPolicy::Server,
        slot_place: Some("server".to_owned()),
        answer_timeout: Duration::from_secs(600),
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
        minimum_uptime: Duration::ZERO,
        boot_free: 0,
        settle_time: Duration::from_secs(30),
        settle_deadline: Duration::from_secs(600),
        check_every: Duration::from_secs(60),
        attempt_limit: 2,
        backoff_first: Duration::from_secs(300),
        backoff_max: Duration::from_secs(3600),
        after_rollback: AfterRollback::Halt,
    }
}

impl Host {
    fn new(person_cordoned: bool) -> Self {
        Self {
            disk: None,
            agent: None,
            pending: BTreeMap::new(),
            wake: None,
            boot: 1,
            booted: "old",
            staged: None,
            written: None,
            finalize_failed: false,
            going_down: false,
            unschedulable: person_cordoned,
            mark: None,
            person_cordoned,
            ready: true,
            pods: true,
            reboots: BTreeMap::new(),
            down_with_slot: false,
            fell_back: Vec::new(),
            late_grant: false,
        }
    }

    pub(crate) fn stage(&self) -> Option<Stage> {
        self.agent.as_ref().map(|agent| agent.record.core.stage)
    }

    pub(crate) fn boot_mark(&self) -> BootMark {
        let id = format!("{:032x}", self.boot);
        BootMark { id: BootId::parse(&id).expect("hex digits"), soft_reboots: 0 }
    }

    pub(crate) fn node(&self) -> NodeView {
        NodeView {
            uid: NodeUid("uid".to_owned()),
            unschedulable: self.unschedulable,
            mark: self.mark.clone(),
            hold: None,
            ready: self.ready,
            not_ready_because: None,
            boot_id: self.ready.then(|| self.boot_mark().id),
        }
    }

    pub(crate) fn system(&self) -> SystemView {
        let entry = |identity: &str, booted, staged| Deployment {
            identity: identity.to_owned(),
            version: None,
            booted,
            staged,
        };
        let mut deployments = Vec::new();
        deployments.extend(self.staged.map(|staged| entry(staged, false, true)));
        deployments.extend(self.written.map(|written| entry(written, false, false)));
        deployments.push(entry(self.booted, true, false));
        SystemView { deployments }
    }

    pub(crate) fn gates(&self, inhibited: bool) -> HostView {
        let blocker = Inhibitor { who: "backup".to_owned(), why: "runs".to_owned() };
        HostView {
            inhibitors: if inhibited { vec![blocker] } else { Vec::new() },
            finalize_unit_active: true,
            clock_synchronised: true,
            preparing_for_shutdown: self.going_down,
            ..HostView::default()
        }
    }

    /// The host comes up again.
    pub(crate) fn come_up(&mut self, boot: Boot, by_shutdown: bool) {
        let staged = self.staged.take();
        self.written = None;
        self.finalize_failed = false;
        if let (Some(target), true) = (staged, by_shutdown) {
            match boot {
                Boot::Target => self.booted = target,
                Boot::FinalizeFails => self.finalize_failed = true,
                Boot::FallsBack => {
                    self.written = Some(target);
                    self.fell_back.push(target);
                }
            }
        }
        self.boot += 1;
        self.going_down = false;
        self.ready = false;
        self.agent = None;
        self.pending.clear();
        self.wake = None;
    }
}

impl World {
    pub(crate) fn new(hosts: usize, faults: u8, person_cordoned: bool) -> Self {
        let hosts = vec![Host::new(person_cordoned); hosts];
        Self { hosts, holder: None, clock: Duration::from_secs(10_000), faults, releasing: false }
    }

    pub(crate) fn releasing(self) -> Self {
        Self { releasing: true, ..self }
    }

    pub(crate) fn policy(&self) -> Policy {
        let mut policy = policy();
        if self.releasing {
            policy.after_rollback = AfterRollback::Release;
        }
        policy
    }

    pub(crate) fn now(&self) -> Now {
        let start = Timestamp::from_second(1_800_000_000).expect("in range");
        let wall = start + jiff::SignedDuration::try_from(self.clock).expect("small");
        Now { wall, since_boot: self.clock }
    }

    /// Gives an event to an agent: the record is written before its effects begin.
    pub(crate) fn deliver(&mut self, heart: Heart, at: usize, event: Event) {
        let Some(state) = self.hosts[at].agent.clone() else { return };
        let step = heart(&self.policy(), &state, self.now(), event);
        self.accept(at, step);
    }

    pub(crate) fn accept(&mut self, at: usize, step: Step) {
        let clock = self.clock;
        let host = &mut self.hosts[at];
        host.disk = Some(step.next.record.clone());
        host.agent = Some(step.next);
        host.wake = step.wake.map(|wake| clock + wake.after);
        for effect in step.effects {
            if effect == Effect::StopDrain {
                // Ends the drain that runs; its outcome says so.
                host.pending.insert(Lane::Drain, effect);
            } else if let Some(Effect::RequestSlot { .. }) =
                host.pending.insert(effect.lane(), effect)
            {
                host.late_grant = true;
            }
        }
    }

    /// What must hold in every world.
    pub(crate) fn check(&self) -> Option<Broken> {
        let down = |host: &Host| host.going_down || host.down_with_slot;
        let down = self.hosts.iter().filter(|host| down(host)).count();
        if down > 1 {
            return Some("two nodes are down at once".to_owned());
        }
        for (at, host) in self.hosts.iter().enumerate() {
            if host.person_cordoned && !host.unschedulable {
                return Some(format!("n{at}: a person's cordon was lifted"));
            }
        }
        None
    }

    /// One node has halted with the slot, and every other is idle or is told no for that reason:
    /// only a person ends this.
    pub(crate) fn halted_for_good(&self) -> bool {
        let halted = |host: &Host| host.stage() == Some(Stage::Halted);
        let settled = |host: &Host| match &host.agent {
            None => false,
            Some(agent) => match agent.record.core.stage {
                Stage::Halted | Stage::Idle => true,
                Stage::Requesting => {
                    matches!(agent.view.slot_answer, Some(SlotAnswer::Denied { .. }))
                }
                Stage::Waiting
                | Stage::Draining
                | Stage::Rebooting
                | Stage::Settling
                | Stage::Stuck
                | Stage::Uncordoning
                | Stage::Yielding
                | Stage::Releasing => false,
            },
        };
        self.hosts.len() > 1 && self.hosts.iter().any(halted) && self.hosts.iter().all(settled)
    }

    /// Where everything must end once no fault comes any more.
    pub(crate) fn at_rest(&self) -> Option<Broken> {
        for (at, host) in self.hosts.iter().enumerate() {
            let halted = host.stage() == Some(Stage::Halted);
            if host.mark.is_some() && host.unschedulable {
                return Some(format!("n{at} stays cordoned"));
            }
            if self.holder == Some(at) && !halted {
                return Some(format!("n{at} keeps the slot"));
            }
            if halted && host.fell_back.is_empty() {
                return Some(format!("n{at} halts without a fallback"));
            }
        }
        None
    }
}
