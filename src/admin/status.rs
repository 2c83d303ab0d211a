//! The status as the socket tells it: a versioned schema of its own, built from a snapshot.
//!
//! Within one schema number keys are only added, never renamed or removed. The heart's own types
//! are not serialised here, so that they can change without anyone's script noticing.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::drain::{Obstacle, ObstacleKind, Progress};
use crate::fleetlock::SlotAnswer;
use crate::lifecycle::{Attempt, Cordon, Finished, Record, Rehearsed, Slot, StageTime};
use crate::model::Target;

use super::Snapshot;
use super::advice;

/// The number of this schema.
pub const SCHEMA: u32 = 1;

/// Everything that `lockkeeper status` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the agent.
    pub version: String,
    /// Name of the own Node; absent on a host without Kubernetes and before it is known.
    pub node: Option<String>,
    /// When this was true.
    pub at: Timestamp,
    /// Where in the cycle.
    pub state: String,
    /// Why nothing more is done.
    pub reason: ReasonStatus,
    /// What comes next if all goes well.
    pub next: String,
    /// When the agent looks again by itself; absent: only when something happens.
    pub wake: Option<WakeStatus>,
    /// The attempt under way.
    pub attempt: Option<AttemptStatus>,
    /// The system that the next boot is to bring.
    pub target: Option<TargetStatus>,
    /// Since when that has waited.
    pub target_since: Option<Timestamp>,
    /// The system that runs.
    pub booted: Option<SystemStatus>,
    /// The slot.
    pub slot: SlotStatus,
    /// The cordon: `none`, `foreign` or `ours`.
    pub cordon: String,
    /// The drain, while there is one.
    pub drain: Option<DrainStatus>,
    /// The last rehearsal of the drain.
    pub rehearsal: Option<RehearsalStatus>,
    /// What the gates on the host looked like last.
    pub gates: Option<GatesStatus>,
    /// Holds of persons.
    pub holds: Vec<HoldStatus>,
    /// Targets that are not tried again.
    pub denied: Vec<DeniedStatus>,
    /// Reboots into targets that have not brought them.
    pub tries: Vec<TriesStatus>,
    /// No new request before this time.
    pub backoff_until: Option<Timestamp>,
    /// Why the record cannot be written, while it cannot.
    pub record_unwritable: Option<String>,
    /// The last attempt that ended.
    pub last: Option<FinishedStatus>,
}

/// Why nothing more is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonStatus {
    /// The bounded word, the same in journal, metrics and on the Node.
    pub code: String,
    /// The sentence.
    pub text: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// When the agent looks again by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeStatus {
    /// Counted from `at`.
    pub in_seconds: u64,
    /// What for.
    pub reason: String,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
}

/// A system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
}

/// The attempt under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// Its id.
    pub id: String,
    /// What it is to bring.
    pub target: TargetStatus,
    /// Its stages so far, oldest first.
    pub stages: Vec<StageStatus>,
    /// How it will end, once its way back has begun.
    pub ending: Option<String>,
}

/// When a stage began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Its name.
    pub stage: String,
    /// When it began.
    pub since: Timestamp,
}

/// The slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// `none`, `asked` or `held`.
    pub state: String,
    /// Since when it is held.
    pub since: Option<Timestamp>,
    /// Who hands it out.
    pub server: Option<String>,
    /// The last answer that was no grant.
    pub answer: Option<AnswerStatus>,
}

/// An answer of the slot server that was no grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerStatus {
    /// `denied`, `pending` or `failed`.
    pub answer: String,
    /// The bounded word.
    pub kind: Option<String>,
    /// The sentence.
    pub text: String,
}

/// A drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Pods that it has to move.
    pub total: usize,
    /// Pods that have gone.
    pub gone: usize,
    /// What stands in the way.
    pub obstacles: Vec<ObstacleStatus>,
    /// Volumes that are still attached.
    pub volumes: Vec<String>,
}

/// A pod that does not leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObstacleStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// `budget`, `several-budgets`, `refused`, `forbidden`, `terminating` or `api`.
    pub kind: String,
    /// Name of the disruption budget, where the server gave one.
    pub budget: Option<String>,
    /// The sentence.
    pub text: String,
}

/// A rehearsal of the drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalStatus {
    /// `passes`, `blocked` or `failed`.
    pub result: String,
    /// How long ago, from `at`.
    pub seconds_ago: u64,
    /// What would stand in the way.
    pub obstacles: Vec<ObstacleStatus>,
    /// Why it could not be held.
    pub error: Option<String>,
}

/// The gates on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatesStatus {
    /// How long ago they were looked at, from `at`.
    pub seconds_ago: u64,
    /// Programs that block the shutdown: `who (why)`.
    pub inhibitors: Vec<String>,
    /// Users with a session.
    pub users: Vec<String>,
    /// Free space on /boot, bytes.
    pub boot_free: Option<u64>,
    /// `ostree-finalize-staged.service` is active.
    pub finalize_unit_active: bool,
    /// The legacy lock file lies there.
    pub legacy_lock: bool,
    /// The clock is synchronised.
    pub clock_synchronised: bool,
    /// Slot server of another client on this host.
    pub other_lock_client: Option<String>,
    /// What could not be read.
    pub unreadable: Vec<String>,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldStatus {
    /// `command`, `file` or `annotation`.
    pub origin: String,
    /// Why.
    pub reason: String,
    /// Who, where it is known.
    pub by: Option<String>,
    /// Since when, where it is known.
    pub since: Option<Timestamp>,
}

/// A denied target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub because: String,
}

/// Reboots into one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriesStatus {
    /// What it is compared by.
    pub identity: String,
    /// How many.
    pub count: u32,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedStatus {
    /// Its id.
    pub attempt: String,
    /// Its target.
    pub target: TargetStatus,
    /// How it ended.
    pub outcome: String,
    /// More about it.
    pub detail: Option<String>,
    /// Its stages, oldest first.
    pub stages: Vec<StageStatus>,
    /// When it ended.
    pub ended: Timestamp,
}

/// All attempts that are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Oldest first.
    pub attempts: Vec<FinishedStatus>,
}

// === impl Status ===

impl Status {
    /// Tells a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { state, waiting, .. } = snapshot;
        let (record, view) = (&state.record, &state.view);
        let waiting_target = view.system.as_ref().and_then(|system| system.target());
        let target =
            record.core.attempt.as_ref().map(|attempt| attempt.target.clone()).or(waiting_target);
        let since = state.waiting_since.filter(|(code, _)| *code == waiting.code());
        let booted = view.system.as_ref().and_then(|system| system.booted());
        Self {
            schema: SCHEMA,
            version: snapshot.version.to_owned(),
            node: snapshot.node_name.clone(),
            at: snapshot.at.wall,
            state: record.core.stage.name().to_owned(),
            reason: ReasonStatus {
                code: waiting.code().to_owned(),
                text: waiting.to_string(),
                since: since.map(|(_, since)| since),
            },
            next: advice::next(record.core.stage, waiting).to_owned(),
            wake: snapshot.wake.as_ref().map(|wake| WakeStatus {
                in_seconds: wake.after.as_secs(),
                reason: wake.reason.to_owned(),
            }),
            attempt: record.core.attempt.as_ref().map(|attempt| attempt_status(attempt, record)),
            target_since: target.as_ref().and_then(|target| waiting_since(record, target)),
            target: target.as_ref().map(TargetStatus::of),
            booted: booted.map(|booted| SystemStatus {
                identity: booted.identity.clone(),
                version: booted.version.clone(),
            }),
            slot: slot_status(snapshot),
            cordon: cordon_name(record.core.cordon).to_owned(),
            drain: view.progress.as_ref().map(DrainStatus::of),
            rehearsal: rehearsal_status(snapshot),
            gates: gates_status(snapshot),
            holds: holds(snapshot),
            denied: denied(record),
            tries: tries(record),
            backoff_until: record.backoff_until.filter(|until| *until > snapshot.at.wall),
            record_unwritable: state.unwritable.clone(),
            last: record.history.last().map(FinishedStatus::of),
        }
    }

    /// The same without what changes by itself as time passes, to see whether anything happened.
    pub fn without_time(&self) -> Self {
        let mut status = self.clone();
        status.at = Timestamp::UNIX_EPOCH;
        status.wake = None;
        if let Some(rehearsal) = &mut status.rehearsal {
            rehearsal.seconds_ago = 0;
        }
        if let Some(gates) = &mut status.gates {
            gates.seconds_ago = 0;
        }
        status
    }
}

/// Since when this target has waited: the begin of its first attempt, given up ones included.
pub fn waiting_since(record: &Record, target: &Target) -> Option<Timestamp> {
    let current = record
        .core
        .attempt
        .iter()
        .filter(|attempt| attempt.target.identity == target.identity)
        .filter_map(|_| record.stages.first());
    let ended = record
        .history
        .iter()
        .filter(|finished| finished.target.identity == target.identity)
        .filter_map(|finished| finished.stages.first());
    current.chain(ended).map(|stage| stage.since).min()
}

// === impl History ===

impl History {
    /// Tells the attempts of a record.
    pub fn of(record: &Record) -> Self {
        Self { schema: SCHEMA, attempts: record.history.iter().map(FinishedStatus::of).collect() }
    }
}

impl FinishedStatus {
    fn of(finished: &Finished) -> Self {
        Self {
            attempt: finished.attempt.to_string(),
            target: TargetStatus::of(&finished.target),
            outcome: finished.outcome.name().to_owned(),
            detail: finished.detail.clone(),
            stages: stages(&finished.stages),
            ended: finished.ended,
        }
    }
}

impl TargetStatus {
    fn of(target: &Target) -> Self {
        Self { identity: target.identity.clone(), version: target.version.clone() }
    }

    /// The version, else the identity.
    pub fn name(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.identity)
    }
}

impl SystemStatus {
    /// The version, else the identity.
    pub fn name(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.identity)
    }
}

impl DrainStatus {
    fn of(progress: &Progress) -> Self {
        Self {
            total: progress.total,
            gone: progress.gone,
            obstacles: progress.obstacles.iter().map(ObstacleStatus::of).collect(),
            volumes: progress.volumes.clone(),
        }
    }
}

impl ObstacleStatus {
    fn of(obstacle: &Obstacle) -> Self {
        let (kind, budget) = match &obstacle.kind {
            ObstacleKind::Budget { budget, says: _ } => ("budget", budget.clone()),
            ObstacleKind::SeveralBudgets { .. } => ("several-budgets", None),
            ObstacleKind::Refused { .. } => ("refused", None),
            ObstacleKind::Forbidden { .. } => ("forbidden", None),
            ObstacleKind::Terminating => ("terminating", None),
            ObstacleKind::Api { .. } => ("api", None),
        };
        Self {
            namespace: obstacle.namespace.clone(),
            pod: obstacle.pod.clone(),
            kind: kind.to_owned(),
            budget,
            text: obstacle.to_string(),
        }
    }
}

fn attempt_status(attempt: &Attempt, record: &Record) -> AttemptStatus {
    AttemptStatus {
        id: attempt.id.to_string(),
        target: TargetStatus::of(&attempt.target),
        stages: stages(&record.stages),
        ending: record.ending.map(|outcome| outcome.name().to_owned()),
    }
}

fn stages(stages: &[StageTime]) -> Vec<StageStatus> {
    let one =
        |time: &StageTime| StageStatus { stage: time.stage.name().to_owned(), since: time.since };
    stages.iter().map(one).collect()
}

fn cordon_name(cordon: Cordon) -> &'static str {
    match cordon {
        Cordon::None => "none",
        Cordon::Foreign => "foreign",
        Cordon::Ours => "ours",
    }
}

fn slot_status(snapshot: &Snapshot) -> SlotStatus {
    let (state, since) = match snapshot.state.record.core.slot {
        Slot::None => ("none", None),
        Slot::Asked => ("asked", None),
        Slot::Held { since } => ("held", Some(since)),
    };
    let answer = snapshot.state.view.slot_answer.as_ref().and_then(|answer| {
        let (name, kind, text) = match answer {
            SlotAnswer::Granted => return None,
            SlotAnswer::Denied { kind, value, .. } => ("denied", Some(kind), value),
            SlotAnswer::Pending { value, .. } => ("pending", None, value),
            SlotAnswer::Failed { kind, error, .. } => ("failed", Some(kind), error),
        };
        Some(AnswerStatus { answer: name.to_owned(), kind: kind.cloned(), text: text.clone() })
    });
    SlotStatus { state: state.to_owned(), since, server: snapshot.slot_server.clone(), answer }
}

fn rehearsal_status(snapshot: &Snapshot) -> Option<RehearsalStatus> {
    let (rehearsed, held) = snapshot.state.view.rehearsal.as_ref()?;
    let (result, obstacles, error) = match rehearsed {
        Rehearsed::Passes => ("passes", Vec::new(), None),
        Rehearsed::Blocked(obstacles) => {
            ("blocked", obstacles.iter().map(ObstacleStatus::of).collect(), None)
        }
        Rehearsed::Failed(trouble) => ("failed", Vec::new(), Some(trouble.text().to_owned())),
    };
    Some(RehearsalStatus {
        result: result.to_owned(),
        seconds_ago: seconds_ago(snapshot, *held),
        obstacles,
        error,
    })
}

fn gates_status(snapshot: &Snapshot) -> Option<GatesStatus> {
    let (host, looked) = snapshot.state.view.host.as_ref()?;
    Some(GatesStatus {
        seconds_ago: seconds_ago(snapshot, *looked),
        inhibitors: host.inhibitors.iter().map(|i| format!("{} ({})", i.who, i.why)).collect(),
        users: host.users.clone(),
        boot_free: host.boot_free,
        finalize_unit_active: host.finalize_unit_active,
        legacy_lock: host.legacy_lock,
        clock_synchronised: host.clock_synchronised,
        other_lock_client: host.other_lock_client.clone(),
        unreadable: host.unreadable.clone(),
    })
}

fn seconds_ago(snapshot: &Snapshot, then: Duration) -> u64 {
    snapshot.at.since_boot.saturating_sub(then).as_secs()
}

fn holds(snapshot: &Snapshot) -> Vec<HoldStatus> {
    let view = &snapshot.state.view;
    let by_command = snapshot.state.record.hold.as_ref().map(|hold| HoldStatus {
        origin: "command".to_owned(),
        reason: hold.reason.clone(),
        by: Some(hold.by.clone()),
        since: Some(hold.since),
    });
    let without_name = |origin: &str, reason: &String| HoldStatus {
        origin: origin.to_owned(),
        reason: reason.clone(),
        by: None,
        since: None,
    };
    let by_file = view.hold_file.as_ref().map(|reason| without_name("file", reason));
    let node = view.node.as_ref().and_then(|node| node.as_ref().ok());
    let by_annotation =
        node.and_then(|node| node.hold.as_ref()).map(|reason| without_name("annotation", reason));
    by_command.into_iter().chain(by_file).chain(by_annotation).collect()
}

fn denied(record: &Record) -> Vec<DeniedStatus> {
    let one = |(identity, denial): (&String, &crate::lifecycle::Denial)| DeniedStatus {
        identity: identity.clone(),
        version: denial.version.clone(),
        since: denial.since,
        because: denial.because.clone(),
    };
    record.denied.iter().map(one).collect()
}

fn tries(record: &Record) -> Vec<TriesStatus> {
    let one = |(identity, count): (&String, &u32)| TriesStatus {
        identity: identity.clone(),
        count: *count,
    };
    record.tries.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::admin::sample;

    /// The schema is a promise: what changes this file changes somebody's script.
    #[test]
    fn schema_is_the_golden_one() {
        let told = serde_json::to_string_pretty(&Status::of(&sample::draining())).unwrap() + "\n";
        expect_test::expect_file!["../../tests/golden/status.json"].assert_eq(&told);
    }

    #[test]
    fn holds_of_all_three_origins_are_told() {
        let mut snapshot = sample::idle();
        snapshot.state.view.hold_file = Some("rack work".to_owned());
        let holds = Status::of(&snapshot).holds;
        assert_eq!(holds.len(), 1);
        assert_eq!((holds[0].origin.as_str(), holds[0].reason.as_str()), ("file", "rack work"));
    }
}
