//! The words for the Node, made of the cycle's: pure, so that tables can test them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference};
use k8s_openapi::api::events::v1::Event as NodeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde_json::{Value, json};

use crate::lifecycle::{Stage, Transition, Waiting};
use crate::signals::node::{REBOOT, view};

use super::Announcement;

/// Annotation: where the cycle is (JSON: `state`, `reason`, `text`, `since`, `attempt`, `target`).
pub const STATE: &str = "lockkeeper.dev/state";
/// Conditions with this at the start of their message are ours; anybody else may use the same
/// types (KEP-5683), and theirs are left alone.
const OURS: &str = "lockkeeper: ";
/// Longest text in the annotation and in a condition, characters: some lines of a terminal.
const TEXT_LENGTH: usize = 1000;
/// The API's limit for the note of an Event, bytes.
const NOTE_BYTES: usize = 1024;
/// Who reports the Events.
const REPORTER: &str = "lockkeeper.dev/agent";

/// The well-known Node conditions of KEP-5683 that tell of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    MaintenancePlanned,
    DrainInProgress,
    Drained,
    MaintenanceInProgress,
}

impl Lifecycle {
    const ALL: [Self; 4] = [
        Self::MaintenancePlanned,
        Self::DrainInProgress,
        Self::Drained,
        Self::MaintenanceInProgress,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::MaintenancePlanned => "MaintenancePlanned",
            Self::DrainInProgress => "DrainInProgress",
            Self::Drained => "Drained",
            Self::MaintenanceInProgress => "MaintenanceInProgress",
        }
    }
}

/// The merge patch that brings the annotation up to date; `None`: it is.
pub(super) fn state_patch(node: &Node, announcement: &Announcement) -> Option<Value> {
    let shown = node.metadata.annotations.as_ref().and_then(|all| all.get(STATE));
    let mut wanted = state(announcement);
    if let Some(shown) = shown.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        // An agent that started again knows the state and not since when: that is no news.
        let since = wanted["since"].take();
        wanted["since"] = shown["since"].clone();
        if shown == wanted {
            return None;
        }
        wanted["since"] = since;
    }
    Some(annotation(&wanted))
}

/// The merge patch that takes a request for a reboot away; `None`: it is gone, or was written anew.
pub(super) fn fulfilled_patch(node: &Node, text: &str) -> Option<Value> {
    if view(node).reboot.as_deref() != Some(text) {
        return None;
    }
    Some(json!({ "metadata": {
        "annotations": { REBOOT: null },
        "resourceVersion": node.metadata.resource_version,
    } }))
}

fn annotation(state: &Value) -> Value {
    json!({ "metadata": { "annotations": { STATE: state.to_string() } } })
}

/// The merge patch that writes the annotation where it says something that `shown` does not; `None`:
/// it says the same, or only since another time.
pub(super) fn news_patch(shown: &Announcement, announcement: &Announcement) -> Option<Value> {
    let since = announcement.since;
    let shown = Announcement { since, ..shown.clone() };
    let wanted = state(announcement);
    (state(&shown) != wanted).then(|| annotation(&wanted))
}

fn state(announcement: &Announcement) -> Value {
    json!({
        "state": announcement.stage.name(),
        "reason": announcement.waiting.code(),
        "text": cut(&announcement.waiting.to_string()),
        "since": announcement.since.map(|since| since.to_string()),
        "attempt": announcement.attempt.as_ref().map(|attempt| attempt.as_str()),
        "target": announcement.target.as_ref().map(ToString::to_string),
    })
}

/// The strategic merge patch of `nodes/status` that brings the conditions up to date; `None`: they
/// are. A condition that does not hold is `False` during an attempt and gone after it.
pub(super) fn condition_patch(
    node: &Node,
    announcement: &Announcement,
    now: Timestamp,
) -> Option<Value> {
    let shown = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let holding = holding(announcement);
    let idle = announcement.attempt.is_none() || announcement.stage == Stage::Idle;
    let mut changes = Vec::new();
    for kind in Lifecycle::ALL {
        let present = shown.iter().find(|condition| condition.type_ == kind.name());
        let ours = present.is_some_and(is_ours);
        let reason = holding.iter().find(|(held, _)| *held == kind).map(|(_, reason)| reason);
        match (reason, present) {
            (Some(_), Some(present)) if !ours && present.status == "True" => {}
            (Some(reason), present) => {
                changes.extend(condition(kind, true, reason, announcement, present, now));
            }
            (None, Some(_)) if ours && idle => {
                changes.push(json!({ "$patch": "delete", "type": kind.name() }));
            }
            (None, Some(_)) if ours => {
                let reason = camel_case(announcement.stage.name());
                changes.extend(condition(kind, false, &reason, announcement, present, now));
            }
            (None, _) => {}
        }
    }
    if changes.is_empty() { None } else { Some(json!({ "status": { "conditions": changes } })) }
}

/// The conditions that hold, each with its reason.
fn holding(announcement: &Announcement) -> Vec<(Lifecycle, String)> {
    let waits = || {
        if matches!(announcement.waiting, Waiting::WindowClosed { .. }) {
            // The KEP's own word for it.
            return "MaintenanceWindow".to_owned();
        }
        camel_case(announcement.waiting.code())
    };
    let completed = || (Lifecycle::Drained, "DrainCompleted".to_owned());
    if announcement.attempt.is_none() {
        return Vec::new();
    }
    match announcement.stage {
        Stage::Idle | Stage::Halted | Stage::Releasing | Stage::Yielding => Vec::new(),
        Stage::Waiting | Stage::Requesting => vec![(Lifecycle::MaintenancePlanned, waits())],
        Stage::Draining if matches!(announcement.waiting, Waiting::Verifying) => vec![completed()],
        Stage::Draining => vec![(Lifecycle::DrainInProgress, waits())],
        Stage::Rebooting | Stage::Settling | Stage::Stuck => {
            vec![completed(), (Lifecycle::MaintenanceInProgress, waits())]
        }
        Stage::Uncordoning => vec![(Lifecycle::MaintenanceInProgress, waits())],
    }
}

/// The condition as it is to be, unless it is so already.
fn condition(
    kind: Lifecycle,
    holds: bool,
    reason: &str,
    announcement: &Announcement,
    present: Option<&NodeCondition>,
    now: Timestamp,
) -> Option<Value> {
    let status = if holds { "True" } else { "False" };
    let message = if holds {
        cut(&format!("{OURS}{}", announcement.waiting))
    } else {
        format!("{OURS}the node is {}", announcement.stage.name())
    };
    let now = Time(now);
    let mut since = now.clone();
    if let Some(present) = present.filter(|present| present.status == status) {
        let same = |shown: &Option<String>, wanted: &str| shown.as_deref() == Some(wanted);
        if !holds || (same(&present.reason, reason) && same(&present.message, &message)) {
            return None;
        }
        since = present.last_transition_time.clone().unwrap_or(since);
    }
    Some(json!({
        "type": kind.name(),
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }))
}

fn is_ours(condition: &NodeCondition) -> bool {
    condition.message.as_deref().is_some_and(|message| message.starts_with(OURS))
}

/// The Event about a change of stage. Its name is made of its content, so that one that is written
/// twice is there once.
pub(super) fn event(
    node: &str,
    uid: Option<String>,
    transition: &Transition,
    at: Timestamp,
) -> NodeEvent {
    let reason = camel_case(transition.to.name());
    let name = format!("{node}.{:x}.{}", at.as_microsecond(), transition.to.name());
    NodeEvent {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some("default".to_owned()),
            ..Default::default()
        },
        action: Some(reason.clone()),
        reason: Some(reason),
        note: Some(note(transition)),
        type_: Some(if alarming(transition.to) { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(at)),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(format!("lockkeeper-{node}").chars().take(128).collect()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Stages that a person should know of.
fn alarming(stage: Stage) -> bool {
    match stage {
        Stage::Stuck | Stage::Halted | Stage::Yielding => true,
        Stage::Idle
        | Stage::Waiting
        | Stage::Requesting
        | Stage::Draining
        | Stage::Rebooting
        | Stage::Settling
        | Stage::Uncordoning
        | Stage::Releasing => false,
    }
}

fn note(transition: &Transition) -> String {
    let mut note = format!(
        "{} -> {}: {}",
        transition.from.name(),
        transition.to.name(),
        transition.because.name()
    );
    if let Some(detail) = &transition.detail {
        note = format!("{note}: {detail}");
    }
    let mut facts = Vec::new();
    facts.extend(transition.target.as_ref().map(|target| format!("target {target}")));
    facts.extend(transition.attempt.as_ref().map(|attempt| format!("attempt {attempt}")));
    facts.extend(transition.outcome.map(|outcome| format!("outcome {}", outcome.name())));
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    // The facts are short and are never cut away by a long detail.
    let room = NOTE_BYTES.saturating_sub(facts.len());
    let end = (0..=room.min(note.len())).rev().find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or(0));
    note + &facts
}

/// `drain-would-block` as the API spells reasons: `DrainWouldBlock`.
fn camel_case(words: &str) -> String {
    words
        .split('-')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_LENGTH).collect()
}
