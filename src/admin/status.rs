//! The status as the socket tells it, built from a snapshot.

use std::time::Duration;

use jiff::Timestamp;

use crate::drain::{Obstacle, ObstacleKind, Progress};
use crate::fleetlock::SlotAnswer;
use crate::lifecycle::{
    Attempt, Cordon, Finished, Outcome, Record, Rehearsed, Slot, Stage, StageTime, Waiting,
};
use crate::model::Target;

use super::Snapshot;
use super::advice;
use super::schema::{
    AnswerStatus, AttemptStatus, DeniedStatus, DrainStatus, FinishedStatus, GatesStatus, History,
    HoldStatus, ObstacleStatus, ReasonStatus, RehearsalStatus, SCHEMA, SlotStatus, StageStatus,
    Status, SystemStatus, TargetStatus, TriesStatus, WakeStatus,
};

// === impl Status ===

impl Status {
    /// Tells a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { state, waiting, .. } = snapshot;
        let (record, view) = (&state.record, &state.view);
        let target = target(snapshot);
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
                text: advice::text(snapshot),
                since: since.map(|(_, since)| since),
                until: advice::until(snapshot),
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
            cordon: cordon_name(snapshot).to_owned(),
            drain: view.progress.as_ref().map(DrainStatus::of),
            rehearsal: rehearsal_status(snapshot),
            gates: gates_status(snapshot),
            holds: holds(snapshot),
            denied: denied(record),
            tries: tries(record),
            backoff_until: record.backoff_until.filter(|until| *until > snapshot.at.wall),
            record_unwritable: state.unwritable.clone(),
            config_trouble: snapshot.config_trouble.clone(),
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

/// The update to come. That of the attempt is none once it runs, or once it fell back: then it is
/// the one that is staged now, if any.
fn target(snapshot: &Snapshot) -> Option<Target> {
    let Snapshot { state, .. } = snapshot;
    let system = state.view.system.as_ref();
    let booted = system.and_then(|system| system.booted()).map(|booted| &booted.identity);
    let over = |attempt: &Attempt| {
        let runs = attempt.boot_before.is_some() && booted == Some(&attempt.target.identity);
        runs || state.record.core.stage == Stage::Halted
    };
    match &state.record.core.attempt {
        Some(attempt) if !over(attempt) => Some(attempt.target.clone()),
        Some(_) | None => state.reasons().into_iter().next(),
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
    /// Tells the attempts of a record, the one under way last.
    pub fn of(record: &Record) -> Self {
        let running = record.core.attempt.iter().map(|attempt| running(attempt, record));
        let attempts = record.history.iter().map(FinishedStatus::of).chain(running).collect();
        Self { schema: SCHEMA, attempts }
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
            ended: Some(finished.ended),
            running: false,
        }
    }
}

/// The attempt under way, as a row of the history.
fn running(attempt: &Attempt, record: &Record) -> FinishedStatus {
    FinishedStatus {
        attempt: attempt.id.to_string(),
        target: TargetStatus::of(&attempt.target),
        outcome: record.ending.map_or("under way", Outcome::name).to_owned(),
        detail: record.ending_detail.clone(),
        stages: stages(&record.stages),
        ended: None,
        running: true,
    }
}

impl TargetStatus {
    fn of(target: &Target) -> Self {
        Self { identity: target.identity.clone(), version: target.version.clone() }
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
            ObstacleKind::Completing => ("completing", None),
            ObstacleKind::Present => ("present", None),
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
        also: attempt.also.iter().map(TargetStatus::of).collect(),
        stages: stages(&record.stages),
        ending: record.ending.map(|outcome| outcome.name().to_owned()),
    }
}

fn stages(stages: &[StageTime]) -> Vec<StageStatus> {
    let one =
        |time: &StageTime| StageStatus { stage: time.stage.name().to_owned(), since: time.since };
    stages.iter().map(one).collect()
}

/// A Node that is unschedulable without our mark was cordoned by somebody, in an attempt or not.
fn cordon_name(snapshot: &Snapshot) -> &'static str {
    let node = snapshot.state.view.node.as_ref().and_then(|node| node.as_ref().ok());
    match snapshot.state.record.core.cordon {
        Cordon::None if node.is_some_and(|node| node.unschedulable && node.mark.is_none()) => {
            "foreign"
        }
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
    let place = snapshot.slot.as_ref();
    let (server, group, id) = if let Waiting::SlotElsewhere { held, .. } = &snapshot.waiting {
        // Where it was asked for, in one text, not where it would be asked for now.
        (Some(held.clone()), None, None)
    } else {
        (
            place.map(|place| place.server.clone()),
            place.map(|place| place.group.clone()),
            place.and_then(|place| place.id.clone()),
        )
    };
    SlotStatus { state: state.to_owned(), since, server, group, id, answer }
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
