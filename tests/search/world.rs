//! A small world around the heart: hosts that boot, one slot, and everything that can go wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    self, AfterRollback, BootEvidence, BootMark, CordonAnswer, DrainEnd, Effect, Event, Health,
    HostView, Inhibitor, KubernetesPolicy, Lane, NodeTrouble, NodeView, OnDeadline,
    OnForeignUncordon, OnUsers, Policy, RebootAnswer, Record, Rehearsal, SlotPolicy, Stage, Start,
    State, Step, UncordonAnswer, Verification,
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

    fn boot_mark(&self) -> BootMark {
        let id = format!("{:032x}", self.boot);
        BootMark { id: BootId::parse(&id).expect("hex digits"), soft_reboots: 0 }
    }

    fn node(&self) -> NodeView {
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

    fn system(&self) -> SystemView {
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

    fn gates(&self, inhibited: bool) -> HostView {
        let blocker = Inhibitor { who: "backup".to_owned(), why: "runs".to_owned() };
        HostView {
            inhibitors: if inhibited { vec![blocker] } else { Vec::new() },
            users: Vec::new(),
            boot_free: None,
            finalize_unit_active: true,
            legacy_lock: false,
            clock_synchronised: true,
            other_lock_client: None,
            preparing_for_shutdown: self.going_down,
            unreadable: Vec::new(),
        }
    }

    /// The host comes up again.
    fn come_up(&mut self, boot: Boot, by_shutdown: bool) {
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

    fn policy(&self) -> Policy {
        let mut policy = policy();
        if self.releasing {
            policy.after_rollback = AfterRollback::Release;
        }
        policy
    }

    fn now(&self) -> Now {
        let start = Timestamp::from_second(1_800_000_000).expect("in range");
        let wall = start + jiff::SignedDuration::try_from(self.clock).expect("small");
        Now { wall, since_boot: self.clock }
    }

    /// Gives an event to an agent: the record is written before its effects begin.
    fn deliver(&mut self, heart: Heart, at: usize, event: Event) {
        let Some(state) = self.hosts[at].agent.clone() else { return };
        let step = heart(&self.policy(), &state, self.now(), event);
        self.accept(at, step);
    }

    fn accept(&mut self, at: usize, step: Step) {
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

    /// Every world that can follow this one, with the words for what happened.
    pub(crate) fn successors(&self, heart: Heart) -> Vec<(String, Result<World, Broken>)> {
        let mut out = Vec::new();
        for at in 0..self.hosts.len() {
            self.host_moves(heart, at, &mut out);
        }
        let quiet = self.hosts.iter().all(|host| host.pending.is_empty() && host.agent.is_some());
        let wake = self.hosts.iter().filter_map(|host| host.wake).min();
        if let (true, Some(wake)) = (quiet, wake) {
            let mut next = self.clone();
            next.clock = wake.max(self.clock + Duration::from_secs(1));
            let due: Vec<usize> = (0..next.hosts.len())
                .filter(|at| next.hosts[*at].wake.is_some_and(|wake| wake <= next.clock))
                .collect();
            for at in due {
                next.deliver(heart, at, Event::Woke);
            }
            out.push(("time passes".to_owned(), Ok(next)));
        }
        out
    }

    fn host_moves(&self, heart: Heart, at: usize, out: &mut Vec<(String, Result<World, Broken>)>) {
        let host = &self.hosts[at];
        let mut push = |fault: u8, words: String, change: &dyn Fn(&mut World) -> Option<Broken>| {
            if self.faults < fault {
                return;
            }
            let mut next = self.clone();
            next.faults -= fault;
            let result = match change(&mut next) {
                Some(broken) => Err(broken),
                None => Ok(next),
            };
            out.push((format!("n{at}: {words}"), result));
        };
        if host.agent.is_none() && !host.going_down {
            push(0, "agent starts".into(), &|w| {
                w.start(at);
                None
            });
        }
        if host.agent.is_some() && !host.going_down {
            push(1, "agent is killed".into(), &|w| w.kill(at));
        }
        let again = self.releasing && host.boot == 2 && !host.fell_back.is_empty();
        if host.staged.is_none() && (again || host.boot == 1) && host.booted == "old" {
            push(0, "an update is staged".into(), &|w| {
                w.hosts[at].staged = Some("new");
                None
            });
        }
        if host.agent.as_ref().is_some_and(|agent| agent.view.system != Some(host.system())) {
            push(0, "the update system is read".into(), &|w| {
                let view = w.hosts[at].system();
                w.deliver(heart, at, Event::System(view));
                None
            });
        }
        if host.agent.as_ref().is_some_and(|a| a.view.node != Some(Ok(host.node()))) {
            push(0, "the watch shows the Node".into(), &|w| {
                let view = w.hosts[at].node();
                w.deliver(heart, at, Event::Node(view));
                None
            });
        }
        if !host.ready && !host.going_down {
            push(0, "the kubelet reports".into(), &|w| {
                w.hosts[at].ready = true;
                w.hosts[at].pods = true;
                w.hosts[at].down_with_slot = false;
                None
            });
        }
        if host.going_down {
            if host.agent.as_ref().is_some_and(|agent| !agent.view.preparing_for_shutdown) {
                push(0, "logind prepares".into(), &|w| {
                    w.deliver(heart, at, Event::PreparingForShutdown(true));
                    None
                });
            }
            push(0, "the host reboots".into(), &|w| w.reboots(at, Boot::Target, true));
            push(1, "the host reboots, unfinalized".into(), &|w| {
                w.reboots(at, Boot::FinalizeFails, true)
            });
            push(1, "the host falls back".into(), &|w| w.reboots(at, Boot::FallsBack, true));
        } else {
            push(1, "power is cut".into(), &|w| w.reboots(at, Boot::Target, false));
        }
        if host.staged.is_some() && !host.going_down {
            push(1, "the update is withdrawn".into(), &|w| {
                w.hosts[at].staged = None;
                None
            });
        }
        if host.mark.is_some() && host.unschedulable && !host.going_down {
            push(1, "a person uncordons".into(), &|w| {
                w.hosts[at].unschedulable = false;
                None
            });
        }
        if host.late_grant && self.holder.is_none() {
            push(1, "a lost request is granted late".into(), &|w| {
                w.hosts[at].late_grant = false;
                w.holder = Some(at);
                None
            });
        }
        for effect in host.pending.values() {
            for (fault, words, outcome) in outcomes(effect) {
                push(fault, words.to_owned(), &|w| w.happen(heart, at, effect, outcome));
            }
        }
    }

    fn start(&mut self, at: usize) {
        let host = &self.hosts[at];
        let start = Start {
            boot: host.boot_mark(),
            kubelet_unit: true,
            record_set_aside: None,
            seed: u64::try_from(at).unwrap_or(0),
        };
        let record = host.disk.clone().unwrap_or_default();
        let step = lifecycle::start(&self.policy(), record, start, self.now());
        self.accept(at, step);
    }

    fn kill(&mut self, at: usize) -> Option<Broken> {
        let host = &mut self.hosts[at];
        if let Some(Effect::RequestSlot { .. }) = host.pending.get(&Lane::Slot) {
            host.late_grant = true;
        }
        host.agent = None;
        host.pending.clear();
        host.wake = None;
        None
    }

    fn reboots(&mut self, at: usize, boot: Boot, by_shutdown: bool) -> Option<Broken> {
        let holds = self.holder == Some(at);
        let host = &mut self.hosts[at];
        host.down_with_slot = holds;
        host.come_up(boot, by_shutdown);
        None
    }
}

/// Which way an effect turns out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Works,
    WorksButAnswerLost,
    Fails,
    NeverComes,
}

fn outcomes(effect: &Effect) -> Vec<(u8, &'static str, Way)> {
    match effect {
        Effect::Inspect => vec![(0, "host is looked at", Way::Works), (1, "inhibited", Way::Fails)],
        Effect::ReadBoot => vec![(0, "boot is read", Way::Works)],
        Effect::ReadNode => vec![(0, "Node is read", Way::Works), (1, "API away", Way::Fails)],
        Effect::Rehearse => vec![
            (0, "rehearsal passes", Way::Works),
            (1, "rehearsal is blocked", Way::Fails),
            (1, "no rehearsal: API away", Way::NeverComes),
        ],
        Effect::RequestSlot { .. } => vec![
            (0, "slot is asked for", Way::Works),
            (1, "slot is asked for, answer lost", Way::WorksButAnswerLost),
            (1, "slot server away", Way::Fails),
        ],
        Effect::ReleaseSlot => vec![
            (0, "slot is released", Way::Works),
            (1, "slot is released, answer lost", Way::WorksButAnswerLost),
            (1, "slot server away", Way::Fails),
        ],
        Effect::Cordon { .. } | Effect::Uncordon | Effect::RestoreCordon => vec![
            (0, "cordon is changed", Way::Works),
            (1, "cordon is changed, answer lost", Way::WorksButAnswerLost),
            (1, "cordon: API away", Way::Fails),
        ],
        Effect::Drain { .. } => {
            vec![(0, "drain ends empty", Way::Works), (1, "drain passes deadline", Way::Fails)]
        }
        Effect::StopDrain => vec![(0, "drain stops", Way::Works)],
        Effect::VerifyEmpty { .. } => {
            vec![(0, "node is verified", Way::Works), (1, "verify: API away", Way::Fails)]
        }
        Effect::Reboot { .. } => vec![
            (0, "reboot is accepted", Way::Works),
            (1, "reboot is accepted, answer lost", Way::WorksButAnswerLost),
            (1, "reboot is refused", Way::Fails),
            (1, "reboot is accepted and never comes", Way::NeverComes),
        ],
        Effect::UndoReboot { .. } => {
            vec![(0, "reboot is undone", Way::Works), (1, "undo fails", Way::Fails)]
        }
        Effect::CheckHealth => vec![(0, "health is well", Way::Works), (1, "not well", Way::Fails)],
    }
}

fn away() -> NodeTrouble {
    NodeTrouble::Unreachable("away".to_owned())
}

impl World {
    /// Lets an effect happen, and checks what must hold at that moment.
    fn happen(&mut self, heart: Heart, at: usize, effect: &Effect, way: Way) -> Option<Broken> {
        self.hosts[at].pending.remove(&effect.lane());
        let event = match effect {
            Effect::Inspect => Event::Inspected(self.hosts[at].gates(way == Way::Fails)),
            Effect::ReadBoot => {
                let failed = self.hosts[at].finalize_failed;
                let finalize_failure = failed.then(|| "no space".to_owned());
                Event::BootRead(BootEvidence { finalize_failure })
            }
            Effect::ReadNode => Event::NodeRead(match way {
                Way::Fails => Err(away()),
                Way::Works | Way::WorksButAnswerLost | Way::NeverComes => Ok(self.hosts[at].node()),
            }),
            Effect::Rehearse => Event::Rehearsed(match way {
                Way::Fails => Rehearsal::Blocked(vec![obstacle()]),
                Way::NeverComes => Rehearsal::Failed(away()),
                Way::Works | Way::WorksButAnswerLost => Rehearsal::Passes,
            }),
            Effect::RequestSlot { .. } => self.request(at, way),
            Effect::ReleaseSlot => match self.release(at, way) {
                Ok(event) => event,
                Err(broken) => return Some(broken),
            },
            Effect::Cordon { attempt, .. } => self.cordon(at, attempt.as_str(), way),
            Effect::Uncordon => self.uncordon(at, way),
            Effect::RestoreCordon => self.restore(at, way),
            Effect::Drain { .. } => {
                if self.holder != Some(at) {
                    return Some(format!("n{at} evicts without the slot"));
                }
                if !self.hosts[at].unschedulable && way == Way::Works {
                    // Somebody uncordoned: pods may come again, the last look has to see it.
                    self.hosts[at].pods = true;
                } else if way == Way::Works {
                    self.hosts[at].pods = false;
                }
                Event::DrainEnded(match way {
                    Way::Fails => DrainEnd::DeadlinePassed(Progress::default()),
                    Way::Works | Way::WorksButAnswerLost | Way::NeverComes => DrainEnd::Empty,
                })
            }
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { pods_may_stay, .. } => {
                let host = &self.hosts[at];
                Event::Verified(match way {
                    Way::Fails => Verification::Failed(away()),
                    _ if !host.unschedulable => Verification::Uncordoned,
                    _ if host.pods && !pods_may_stay => Verification::NotEmpty(vec![obstacle()]),
                    Way::Works | Way::WorksButAnswerLost | Way::NeverComes => Verification::Good,
                })
            }
            Effect::Reboot { attempt, target } => {
                let (attempt, target) = (attempt.as_str().to_owned(), target.identity.clone());
                match self.ask_reboot(at, &attempt, &target, way) {
                    Ok(event) => event,
                    Err(broken) => return Some(broken),
                }
            }
            Effect::UndoReboot { .. } => {
                let fails = way == Way::Fails || self.hosts[at].going_down;
                Event::RebootUndone(if fails { Err("going down".into()) } else { Ok(()) })
            }
            Effect::CheckHealth => Event::HealthChecked(match way {
                Way::Fails => Health::NotWell(vec!["web.service is failed".to_owned()]),
                Way::Works | Way::WorksButAnswerLost | Way::NeverComes => Health::Well,
            }),
        };
        self.deliver(heart, at, event);
        None
    }

    fn request(&mut self, at: usize, way: Way) -> Event {
        let failed = |answer_lost| SlotAnswer::Failed {
            kind: "timeout".to_owned(),
            error: "no answer".to_owned(),
            answer_lost,
        };
        let free = self.holder.is_none_or(|holder| holder == at);
        Event::SlotAnswered(match way {
            Way::Fails | Way::NeverComes => failed(false),
            Way::WorksButAnswerLost => {
                if free {
                    self.holder = Some(at);
                } else {
                    self.hosts[at].late_grant = true;
                }
                failed(true)
            }
            Way::Works if free => {
                self.holder = Some(at);
                SlotAnswer::Granted
            }
            Way::Works => SlotAnswer::Denied {
                kind: "full".to_owned(),
                value: "held".to_owned(),
                retry_after: None,
            },
        })
    }

    fn release(&mut self, at: usize, way: Way) -> Result<Event, Broken> {
        if self.holder == Some(at) && way != Way::Fails {
            if self.hosts[at].down_with_slot {
                return Err(format!("n{at} releases before it is ready again"));
            }
            if self.hosts[at].mark.is_some() && self.hosts[at].unschedulable {
                return Err(format!("n{at} releases while its cordon stands"));
            }
            self.holder = None;
        }
        Ok(Event::SlotReleased(match way {
            Way::Works | Way::NeverComes => ReleaseAnswer::Released,
            Way::WorksButAnswerLost | Way::Fails => ReleaseAnswer::Failed {
                kind: "timeout".to_owned(),
                error: "no answer".to_owned(),
                retry_after: None,
            },
        }))
    }

    fn cordon(&mut self, at: usize, attempt: &str, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let foreign = host.unschedulable && host.mark.is_none();
        if way != Way::Fails && !foreign {
            host.unschedulable = true;
            host.mark = Some(attempt.to_owned());
        }
        Event::Cordoned(match way {
            Way::WorksButAnswerLost | Way::Fails => CordonAnswer::Failed(away()),
            Way::Works | Way::NeverComes if foreign => CordonAnswer::Foreign,
            Way::Works | Way::NeverComes => CordonAnswer::Ours,
        })
    }

    fn uncordon(&mut self, at: usize, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let (was, marked) = (host.unschedulable, host.mark.is_some());
        if way != Way::Fails && marked {
            host.unschedulable = false;
            host.mark = None;
        }
        Event::Uncordoned(match way {
            Way::WorksButAnswerLost | Way::Fails => UncordonAnswer::Failed(away()),
            Way::Works | Way::NeverComes => match (was, marked) {
                (true, true) => UncordonAnswer::Lifted,
                (true, false) => UncordonAnswer::Foreign,
                (false, _) => UncordonAnswer::AlreadySchedulable,
            },
        })
    }

    fn restore(&mut self, at: usize, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let lifted = !host.unschedulable;
        if way != Way::Fails {
            host.unschedulable = true;
        }
        Event::CordonRestored(match way {
            Way::WorksButAnswerLost | Way::Fails => Err("away".to_owned()),
            Way::Works | Way::NeverComes => Ok(lifted),
        })
    }

    fn ask_reboot(
        &mut self,
        at: usize,
        attempt: &str,
        target: &str,
        way: Way,
    ) -> Result<Event, Broken> {
        if self.holder != Some(at) {
            return Err(format!("n{at} reboots without the slot"));
        }
        if self.hosts[at].fell_back.contains(&target) {
            return Err(format!("n{at} reboots into a target that fell back"));
        }
        let host = &mut self.hosts[at];
        if way != Way::Fails {
            let count = host.reboots.entry(attempt.to_owned()).or_insert(0);
            *count += 1;
            if *count > 1 {
                return Err(format!("n{at} reboots twice for {attempt}"));
            }
        }
        if host.pods {
            return Err(format!("n{at} reboots with pods that should have gone"));
        }
        let staged = host.staged == Some("new");
        host.going_down = staged && matches!(way, Way::Works | Way::WorksButAnswerLost);
        Ok(Event::RebootAnswered(match way {
            Way::Fails => RebootAnswer::Refused("blocked".to_owned()),
            _ if !staged => RebootAnswer::Refused("nothing is staged".to_owned()),
            Way::WorksButAnswerLost => RebootAnswer::Unknown("NoReply".to_owned()),
            Way::Works | Way::NeverComes => RebootAnswer::Accepted,
        }))
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

fn obstacle() -> Obstacle {
    let kind = ObstacleKind::Budget { budget: Some("web".to_owned()), says: "0 left".to_owned() };
    Obstacle { namespace: "default".to_owned(), pod: "web-1".to_owned(), kind }
}
