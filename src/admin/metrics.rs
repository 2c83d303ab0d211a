//! The metrics: a registry as a value, told by snapshots, transitions and answers.
//!
//! Labels are bounded words of our own closed enums, and the slot server's `kind`, of which only
//! the first [`KINDS_MAX`] are kept apart.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::drain::ObstacleKind;
use crate::fleetlock::SlotAnswer;
use crate::lifecycle::{Record, Slot, Stage, Transition};

use super::Snapshot;
use super::status::waiting_since;

/// A server invents its kinds; a scraper must not pay for it.
const KINDS_MAX: usize = 32;

/// Stages last from a second (releasing) to days (waiting).
const STAGE_SECONDS: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0,
];

type StageDurations = Family<StageLabel, Histogram, fn() -> Histogram>;

/// All metrics of an agent. A cheap handle: clones tell the same.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    state: Family<StateLabel, Gauge>,
    waiting: Family<ReasonLabel, Gauge>,
    slot_held_since: Family<NoLabel, Gauge>,
    update_waiting_since: Family<NoLabel, Gauge>,
    drain_pods: Family<StateLabel, Gauge>,
    slot_answers: Family<AnswerLabel, Counter>,
    attempts: Family<OutcomeLabel, Counter>,
    stage_duration: StageDurations,
    memory: Arc<Mutex<Memory>>,
}

/// What has to be remembered between two snapshots.
#[derive(Debug, Default)]
struct Memory {
    /// The stage that runs and when it began.
    stage: Option<(Stage, Timestamp)>,
    /// The target that waits and when it was first seen.
    target: Option<(String, Timestamp)>,
    kinds: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabel {}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    answer: &'static str,
    kind: String,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics of an agent of this version that has told nothing yet.
    pub fn new(version: &'static str) -> Self {
        let state = Family::<StateLabel, Gauge>::default();
        let waiting = Family::<ReasonLabel, Gauge>::default();
        let slot_held_since = Family::<NoLabel, Gauge>::default();
        let update_waiting_since = Family::<NoLabel, Gauge>::default();
        let drain_pods = Family::<StateLabel, Gauge>::default();
        let slot_answers = Family::<AnswerLabel, Counter>::default();
        let attempts = Family::<OutcomeLabel, Counter>::default();
        let stage_duration: StageDurations =
            Family::new_with_constructor(|| Histogram::new(STAGE_SECONDS));
        let mut registry = Registry::with_prefix("lockkeeper");
        let r = &mut registry;
        r.register("build", "Version of the agent", Info::new(vec![("version", version)]));
        r.register("state", "1 for the stage of the cycle that runs, else 0", state.clone());
        r.register("waiting", "1 for the reason why nothing more is done", waiting.clone());
        r.register_with_unit(
            "slot_held_since",
            "When the slot was granted, Unix time; absent while it is not held",
            Unit::Seconds,
            slot_held_since.clone(),
        );
        r.register_with_unit(
            "update_waiting_since",
            "When the update that waits was first seen, Unix time; absent while there is none",
            Unit::Seconds,
            update_waiting_since.clone(),
        );
        r.register(
            "drain_pods",
            "Pods of the drain under way; blocked ones do not leave by themselves",
            drain_pods.clone(),
        );
        r.register("slot_answers", "Answers of the slot server", slot_answers.clone());
        r.register("attempts", "Attempts that have ended", attempts.clone());
        r.register_with_unit(
            "stage_duration",
            "How long a stage took, until it ended",
            Unit::Seconds,
            stage_duration.clone(),
        );
        Self {
            registry: Arc::new(registry),
            state,
            waiting,
            slot_held_since,
            update_waiting_since,
            drain_pods,
            slot_answers,
            attempts,
            stage_duration,
            memory: Arc::default(),
        }
    }

    /// Takes notice of a step: its snapshot and its transitions, in order.
    pub fn observe(&self, snapshot: &Snapshot, transitions: &[Transition]) {
        let record = &snapshot.state.record;
        for stage in Stage::ALL {
            let now = i64::from(stage == record.core.stage);
            self.state.get_or_create(&StateLabel { state: stage.name() }).set(now);
        }
        self.waiting.clear();
        self.waiting.get_or_create(&ReasonLabel { reason: snapshot.waiting.code() }).set(1);
        let held = match record.core.slot {
            Slot::Held { since } => Some(since),
            Slot::None | Slot::Asked => None,
        };
        set_time(&self.slot_held_since, held);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        set_time(&self.update_waiting_since, memory.target_since(snapshot));
        self.observe_drain(snapshot);
        for transition in transitions {
            if let Some(outcome) = transition.outcome {
                self.attempts.get_or_create(&OutcomeLabel { outcome: outcome.name() }).inc();
            }
            if let Some(seconds) = memory.stage_ends(transition, record, snapshot.at.wall) {
                let stage = transition.from.name();
                self.stage_duration.get_or_create(&StageLabel { stage }).observe(seconds);
            }
        }
    }

    /// Counts an answer to a request for the slot.
    pub fn slot_answer(&self, answer: &SlotAnswer) {
        let (answer, kind) = match answer {
            SlotAnswer::Granted => ("granted", ""),
            SlotAnswer::Denied { kind, .. } => ("denied", kind.as_str()),
            SlotAnswer::Pending { .. } => ("pending", ""),
            SlotAnswer::Failed { kind, .. } => ("failed", kind.as_str()),
        };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = memory.bounded_kind(kind);
        self.slot_answers.get_or_create(&AnswerLabel { answer, kind }).inc();
    }

    /// All of them in the OpenMetrics text format.
    ///
    /// # Errors
    /// The encoder's own.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    fn observe_drain(&self, snapshot: &Snapshot) {
        self.drain_pods.clear();
        let Some(progress) = &snapshot.state.view.progress else { return };
        let is_blocked = |kind: &ObstacleKind| match kind {
            ObstacleKind::Terminating | ObstacleKind::Completing => false,
            ObstacleKind::Budget { .. }
            | ObstacleKind::SeveralBudgets { .. }
            | ObstacleKind::Refused { .. }
            | ObstacleKind::Forbidden { .. }
            | ObstacleKind::Present
            | ObstacleKind::Api { .. } => true,
        };
        let blocked = progress.obstacles.iter().filter(|pod| is_blocked(&pod.kind)).count();
        let counts = [("total", progress.total), ("gone", progress.gone), ("blocked", blocked)];
        for (state, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.drain_pods.get_or_create(&StateLabel { state }).set(count);
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

// === impl Memory ===

impl Memory {
    /// Since when the update waits: what the record says, else when it was first seen here.
    fn target_since(&mut self, snapshot: &Snapshot) -> Option<Timestamp> {
        let target = snapshot.state.reasons().into_iter().next();
        let Some(target) = target else {
            self.target = None;
            return None;
        };
        let seen = match self.target.take() {
            Some((identity, seen)) if identity == target.identity => seen,
            Some(_) | None => snapshot.at.wall,
        };
        self.target = Some((target.identity.clone(), seen));
        let recorded = waiting_since(&snapshot.state.record, &target);
        Some(recorded.map_or(seen, |recorded| recorded.min(seen)))
    }

    /// How long the stage took that this transition ends, in seconds. The first one after a start
    /// is measured by the record. A clock that was set back measures nothing.
    fn stage_ends(
        &mut self,
        transition: &Transition,
        record: &Record,
        now: Timestamp,
    ) -> Option<f64> {
        let began = self.stage.filter(|(stage, _)| *stage == transition.from);
        let began = began.map(|(_, began)| began).or_else(|| recorded(record, transition.from));
        self.stage = Some((transition.to, now));
        began.map(|began| now.duration_since(began).as_secs_f64()).filter(|seconds| *seconds >= 0.0)
    }

    fn bounded_kind(&mut self, kind: &str) -> String {
        if !self.kinds.contains(kind) {
            if self.kinds.len() >= KINDS_MAX {
                return "other".to_owned();
            }
            self.kinds.insert(kind.to_owned());
        }
        kind.to_owned()
    }
}

/// When this stage of the attempt last began, running or just ended.
fn recorded(record: &Record, stage: Stage) -> Option<Timestamp> {
    let ended = record.history.last().map(|finished| finished.stages.iter());
    let mut all = ended.into_iter().flatten().chain(record.stages.iter());
    all.rfind(|time| time.stage == stage).map(|time| time.since)
}

/// A point in time as a metric, or no sample at all.
fn set_time(family: &Family<NoLabel, Gauge>, time: Option<Timestamp>) {
    match time {
        Some(time) => {
            family.get_or_create(&NoLabel {}).set(time.as_second());
        }
        None => family.clear(),
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
