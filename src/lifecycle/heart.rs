//! The working hand of a step: the state being changed, and what the step will ask for.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::{AttemptId, Now, Source, SystemView, Target};
use crate::schedule::{backoff, jittered};

use super::effect::{Effect, Lane};
use super::event::{NodeTrouble, NodeView};
use super::people;
use super::policy::{KubernetesPolicy, Policy};
use super::record::{Attempt, Finished, HISTORY_LENGTH, Outcome, Slot, Stage, StageTime};
use super::state::{Because, Run, State, Step, Transition, Wake};
use super::waiting::Waiting;

/// Stages that one event may pass through at most; the longest real path is five.
const STAGES_PER_STEP: usize = 16;

/// First and longest delay before a failed effect is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What a stage decides: stay for a reason, or go on.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing more to do until an event comes.
    Wait(Waiting),
    /// On to another stage.
    Go(Stage, Because, Option<String>),
}

/// One step under way.
#[derive(Debug)]
pub(super) struct Heart<'a> {
    pub(super) policy: &'a Policy,
    pub(super) now: Now,
    pub(super) state: State,
    pub(super) effects: Vec<Effect>,
    transitions: Vec<Transition>,
    wake: Option<Wake>,
}

impl<'a> Heart<'a> {
    pub(super) fn new(policy: &'a Policy, state: State, now: Now) -> Self {
        Self { policy, now, state, effects: Vec::new(), transitions: Vec::new(), wake: None }
    }

    /// Lets every stage decide until one waits.
    pub(super) fn decide(mut self) -> Step {
        let mut waiting = None;
        for _ in 0..STAGES_PER_STEP {
            match self.stage() {
                Verdict::Wait(reason) => {
                    waiting = Some(reason);
                    break;
                }
                Verdict::Go(stage, because, detail) => self.go(stage, because, detail),
            }
        }
        let mut waiting = waiting.unwrap_or_else(|| {
            // No path is that long; should one be, it goes on where it is.
            self.wake_at(self.now.since_boot.saturating_add(RETRY_FIRST), "go on");
            Waiting::HostUnknown
        });
        if let (Some(why), true) = (&self.state.unwritable, self.stage_needs_record()) {
            waiting = Waiting::RecordUnwritable(why.clone());
        }
        let code = waiting.code();
        if self.state.waiting_since.is_none_or(|(before, _)| before != code) {
            self.state.waiting_since = Some((code, self.now.wall));
        }
        Step {
            next: self.state,
            effects: self.effects,
            transitions: self.transitions,
            waiting,
            wake: self.wake,
        }
    }

    fn stage(&mut self) -> Verdict {
        match self.state.record.core.stage {
            Stage::Idle => self.idle(),
            Stage::Waiting => self.waiting(),
            Stage::Requesting => self.requesting(),
            Stage::Draining => self.draining(),
            Stage::Rebooting => self.rebooting(),
            Stage::Settling => self.settling(),
            Stage::Stuck => self.stuck(),
            Stage::Uncordoning => self.uncordoning(),
            Stage::Yielding => self.yielding(),
            Stage::Releasing => self.releasing(),
            Stage::Halted => self.halted(),
        }
    }

    /// Stages whose next effect needs the record on disk.
    fn stage_needs_record(&self) -> bool {
        matches!(
            self.state.record.core.stage,
            Stage::Waiting | Stage::Requesting | Stage::Draining | Stage::Rebooting
        )
    }

    // === Going on ===

    /// Enters a stage: the record says so, and what was under way there before is forgotten.
    pub(super) fn go(&mut self, to: Stage, because: Because, detail: Option<String>) {
        let from = self.state.record.core.stage;
        let outcome = if to == Stage::Idle { self.state.record.ending } else { None };
        let attempt = self.state.record.core.attempt.as_ref();
        self.transitions.push(Transition {
            from,
            to,
            because,
            detail,
            attempt: attempt.map(|a| a.id.clone()),
            target: attempt.map(|a| a.target.clone()),
            outcome,
        });
        self.state.record.core.stage = to;
        // A grant counts where it was given, and not because a record says that there was one.
        let granted = self.state.run.confirmed.filter(|_| from == Stage::Requesting);
        self.state.run = Run { began: self.now.since_boot, ..Run::default() };
        self.state.view.slot_answer = None;
        if to == Stage::Draining {
            self.state.run.confirmed = granted;
        }
        let stages = &mut self.state.record.stages;
        stages.push(StageTime { stage: to, since: self.now.wall });
        if matches!(to, Stage::Idle | Stage::Draining) {
            self.state.view.progress = None;
        }
        if to == Stage::Idle {
            self.end_attempt();
        }
    }

    /// Begins an attempt at `target`; what else asks for it goes along.
    pub(super) fn begin_attempt(&mut self, target: Target, also: Vec<Target>) {
        let record = &mut self.state.record;
        record.attempts = record.attempts.saturating_add(1);
        record.core.attempt = Some(Attempt {
            id: AttemptId::new(&self.state.boot.id, record.attempts),
            target,
            boot_before: None,
            booted_before: None,
            place_before: None,
            by_zincati: false,
            also,
        });
        record.stages = Vec::new();
        record.ending = None;
        record.ending_detail = None;
        record.drain_began = None;
    }

    fn end_attempt(&mut self) {
        let record = &mut self.state.record;
        let stages = std::mem::take(&mut record.stages);
        let outcome = record.ending.take();
        let detail = record.ending_detail.take();
        record.drain_began = None;
        record.node_uid = None;
        let (Some(attempt), Some(outcome)) = (record.core.attempt.take(), outcome) else {
            return;
        };
        if matches!(outcome, Outcome::Updated | Outcome::Rebooted) {
            // A sentinel that asks again at once is no other reason: its reboots count on.
            if attempt.target.source != Source::Sentinel {
                record.tries.remove(&attempt.target.identity);
            }
            record.yields = 0;
            record.backoff_until = None;
        }
        if record.history.len() >= HISTORY_LENGTH {
            record.history.remove(0);
        }
        record.history.push(Finished {
            attempt: attempt.id,
            target: attempt.target,
            outcome,
            detail,
            stages,
            ended: self.now.wall,
        });
    }

    /// Says how the attempt will end, unless that was said before.
    pub(super) fn ending(&mut self, outcome: Outcome, detail: Option<String>) {
        let record = &mut self.state.record;
        if record.ending.is_none() {
            record.ending = Some(outcome);
            record.ending_detail = detail;
        }
    }

    /// No new request for a while; the while doubles with each attempt that is given up.
    pub(super) fn back_off(&mut self) {
        let record = &mut self.state.record;
        let base = backoff(self.policy.backoff_first, self.policy.backoff_max, record.yields);
        let delay = jittered(base, self.state.seed, u64::from(record.yields));
        record.yields = record.yields.saturating_add(1);
        record.backoff_until = Some(later(self.now.wall, delay));
    }

    /// A wall clock that was set back must not make a wait longer than it can be.
    pub(super) fn bound_wall_times(&mut self) {
        let longest = self.policy.backoff_max.saturating_add(self.policy.backoff_max / 4);
        let (backoff, release) =
            (later(self.now.wall, longest), later(self.now.wall, self.policy.answer_timeout));
        let record = &mut self.state.record;
        record.backoff_until = record.backoff_until.map(|at| at.min(backoff));
        record.release_again = record.release_again.map(|at| at.min(release));
    }

    // === Effects ===

    /// Asks for an effect, unless its lane is busy or rests, or the record cannot be written.
    /// `true` if it was asked for now.
    pub(super) fn launch(&mut self, effect: Effect) -> bool {
        let lane = effect.lane();
        if self.state.in_flight.contains(&lane) {
            return false;
        }
        if effect.needs_record() && self.state.unwritable.is_some() {
            return false;
        }
        // A `Retry-After` for requests is none for the release: what may be held is given back now.
        let gives_back = effect == Effect::ReleaseSlot && !self.state.failures.contains_key(&lane);
        if let Some(at) = self.state.not_before.get(&lane).copied() {
            if at > self.now.since_boot && !gives_back {
                self.wake_at(at, "try again");
                return false;
            }
            self.state.not_before.remove(&lane);
        }
        if effect == Effect::Inspect {
            self.state.view.host_changed = false;
        }
        self.state.in_flight.insert(lane);
        self.effects.push(effect);
        true
    }

    /// An effect of this lane has ended well.
    pub(super) fn lane_ok(&mut self, lane: Lane) {
        self.state.in_flight.remove(&lane);
        self.state.failures.remove(&lane);
        self.state.not_before.remove(&lane);
    }

    /// An effect of this lane has failed: it rests, longer each time.
    pub(super) fn lane_failed(&mut self, lane: Lane, at_least: Option<Duration>) {
        self.state.in_flight.remove(&lane);
        let failures = self.state.failures.entry(lane).or_insert(0);
        let base = backoff(RETRY_FIRST, RETRY_MAX, *failures);
        *failures = failures.saturating_add(1);
        let salt = u64::from(*failures);
        let delay = jittered(base, self.state.seed, salt).max(at_least.unwrap_or_default());
        self.state.not_before.insert(lane, self.now.since_boot.saturating_add(delay));
    }

    /// The lane rests for about this long, without having failed.
    pub(super) fn lane_rests(&mut self, lane: Lane, delay: Duration) {
        self.state.in_flight.remove(&lane);
        let salt = self.now.since_boot.as_secs();
        let delay = jittered(delay, self.state.seed, salt);
        self.state.not_before.insert(lane, self.now.since_boot.saturating_add(delay));
    }

    // === Time ===

    /// Wakes the agent at this time of `CLOCK_BOOTTIME`, unless it is woken earlier.
    pub(super) fn wake_at(&mut self, at: Duration, reason: &'static str) {
        let after = at.saturating_sub(self.now.since_boot);
        if self.wake.as_ref().is_none_or(|wake| after < wake.after) {
            self.wake = Some(Wake { after, reason });
        }
    }

    /// Wakes the agent at this wall time; a clock that is set wakes it by itself.
    pub(super) fn wake_at_wall(&mut self, at: Timestamp, reason: &'static str) {
        let after = Duration::try_from(at.duration_since(self.now.wall)).unwrap_or_default();
        self.wake_at(self.now.since_boot.saturating_add(after), reason);
    }

    /// Whether `length` has passed since `began`; if not, the agent is woken when it has.
    pub(super) fn passed(&mut self, began: Duration, length: Duration, why: &'static str) -> bool {
        let at = began.saturating_add(length);
        if at <= self.now.since_boot {
            return true;
        }
        self.wake_at(at, why);
        false
    }

    // === Views ===

    /// Whether there is a Node to cordon and drain.
    pub(super) fn is_node(&self) -> bool {
        self.state.is_node(self.policy)
    }

    /// The own Node, or why it cannot be seen.
    pub(super) fn node(&self) -> Result<&NodeView, Waiting> {
        match &self.state.view.node {
            None => Err(Waiting::NodeUnknown),
            Some(Err(trouble)) => Err(Waiting::Node(trouble.clone())),
            Some(Ok(view)) => Ok(view),
        }
    }

    /// Why the Node could not be read or written last, else why it cannot be seen, else this.
    pub(super) fn node_trouble_or(&self, otherwise: Waiting) -> Waiting {
        let trouble = self.state.run.node_trouble.clone().map(Waiting::Node);
        trouble.or(self.node().err()).unwrap_or(otherwise)
    }

    /// Everything that asks for a reboot, the update that waits first, if it is known. An update that
    /// Zincati has not asked for yet is none by itself.
    pub(super) fn reasons(&mut self) -> Result<Vec<Target>, Waiting> {
        if self.state.view.system.is_none() {
            return Err(Waiting::SystemUnknown(self.state.view.system_trouble.clone()));
        }
        let reasons = self.state.reasons();
        let only_update = reasons.len() == 1 && reasons[0].source.brings_a_system();
        if self.policy.zincati && only_update && !self.zincati_asks() {
            return Ok(Vec::new());
        }
        Ok(reasons)
    }

    pub(super) fn attempt_id(&self) -> Option<AttemptId> {
        self.state.record.core.attempt.as_ref().map(|attempt| attempt.id.clone())
    }
}

impl State {
    /// Everything that asks for a reboot: the update that waits, files and commands, people.
    pub fn reasons(&self) -> Vec<Target> {
        let mut reasons = self.view.system.as_ref().map(SystemView::reasons).unwrap_or_default();
        reasons.extend(people::wishes(self));
        reasons
    }

    /// The one place that can take back a slot which may be ours: where it was asked for, else where
    /// `policy` asks. `None`: there is no such slot, or nobody of this record asked for it (a boot
    /// releases what others may have left): then any place will do.
    pub fn slot_place<'a>(&'a self, policy: &'a Policy) -> Option<&'a str> {
        let record = &self.record;
        let unasked = record.core.slot == Slot::Asked && record.slot_at.is_none();
        if self.nothing_asked() || (unasked && record.release_again.is_none()) {
            return None;
        }
        self.record.slot_at.as_deref().or(policy.slot_place.as_deref())
    }

    /// Whether no request of ours can have been granted without a release that was confirmed since.
    pub(super) fn nothing_asked(&self) -> bool {
        self.record.core.slot == Slot::None && self.record.release_again.is_none()
    }

    /// The attempt that a release gives its slot back for. None where the slot of a request that was
    /// lost is released once more: the attempt that waits by then is another one.
    pub fn releases_for(&self) -> Option<&AttemptId> {
        let core = &self.record.core;
        let attempt = core.attempt.as_ref().filter(|_| core.stage == Stage::Releasing);
        attempt.map(|attempt| &attempt.id)
    }

    /// Whether this host is a Kubernetes Node. One that was seen as a Node stays one, whatever
    /// becomes of its kubelet unit or its credential.
    pub fn is_node(&self, policy: &Policy) -> bool {
        match policy.kubernetes {
            KubernetesPolicy::Required => true,
            KubernetesPolicy::None => false,
            KubernetesPolicy::Auto => self.kubelet_unit || self.record.seen_as_node,
        }
    }
}

/// Whether asking again can help: everything but a missing right or object is transient, and those
/// are asked again too, only slower.
pub(super) fn trouble_rest(trouble: &NodeTrouble) -> Option<Duration> {
    match trouble {
        NodeTrouble::NoCredential(_) | NodeTrouble::Forbidden(_) | NodeTrouble::Missing(_) => {
            Some(Duration::from_secs(15))
        }
        NodeTrouble::Refused(_) | NodeTrouble::Unreachable(_) => None,
    }
}

/// `at + delay`, at the end of time if it does not fit.
pub(super) fn later(at: Timestamp, delay: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(delay)
        .ok()
        .and_then(|delay| at.checked_add(delay).ok())
        .unwrap_or(Timestamp::MAX)
}
