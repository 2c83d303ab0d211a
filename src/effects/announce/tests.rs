#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::cluster::fake::{self, FakeApi, until};
use crate::lifecycle::{Because, Outcome};
use crate::model::{BootId, Source};

fn announcement(stage: Stage, waiting: Waiting) -> Announcement {
    let boot = BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap();
    let attempt = stage != Stage::Idle;
    let target = Target {
        source: Source::RpmOstree,
        identity: "abc".to_owned(),
        version: Some("42.1".to_owned()),
    };
    Announcement {
        fulfilled: None,
        stage,
        waiting,
        attempt: attempt.then(|| AttemptId::new(&boot, 1)),
        target: attempt.then_some(target),
        since: Some(at(0)),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn idle() -> Announcement {
    announcement(Stage::Idle, Waiting::NoUpdate)
}

fn draining() -> Announcement {
    announcement(Stage::Draining, Waiting::Draining)
}

fn as_node(node: &Value) -> Node {
    serde_json::from_value(node.clone()).unwrap()
}

/// Brings the Node's conditions up to date at this second, as the server would.
fn shown(node: &mut Value, announcement: &Announcement, second: i64) -> bool {
    let patch = condition_patch(&as_node(node), announcement, at(second));
    if let Some(patch) = &patch {
        fake::merge_conditions(node, patch);
    }
    patch.is_some()
}

/// Conditions beside `Ready`, as `Type=Status:Reason`, sorted.
fn conditions(node: &Value) -> Vec<String> {
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap().to_owned();
    let all = node["status"]["conditions"].as_array().unwrap().iter();
    let mut lines: Vec<_> = all
        .filter(|condition| condition["type"] != "Ready")
        .map(|c| format!("{}={}:{}", text(c, "type"), text(c, "status"), text(c, "reason")))
        .collect();
    lines.sort();
    lines
}

#[test]
fn conditions_follow_the_cycle_and_leave_nothing_behind() {
    let mut node = fake::node("uid-1");
    let closed = Waiting::WindowClosed { opens: None, too_short: false };
    for (stage, waiting, wanted) in [
        (Stage::Idle, Waiting::NoUpdate, ""),
        (Stage::Waiting, closed, "MaintenancePlanned=True:MaintenanceWindow"),
        (Stage::Requesting, Waiting::SlotAsked, "MaintenancePlanned=True:SlotAsked"),
        (
            Stage::Draining,
            Waiting::Draining,
            "DrainInProgress=True:Draining MaintenancePlanned=False:Draining",
        ),
        (
            Stage::Draining,
            Waiting::Verifying,
            "DrainInProgress=False:Draining Drained=True:DrainCompleted \
             MaintenancePlanned=False:Draining",
        ),
        (
            Stage::Rebooting,
            Waiting::ShutdownPending,
            "DrainInProgress=False:Draining Drained=True:DrainCompleted \
             MaintenanceInProgress=True:ShutdownPending MaintenancePlanned=False:Draining",
        ),
        (
            Stage::Settling,
            Waiting::SettleTime,
            "DrainInProgress=False:Draining Drained=True:DrainCompleted \
             MaintenanceInProgress=True:SettleTime MaintenancePlanned=False:Draining",
        ),
        (
            Stage::Uncordoning,
            Waiting::Uncordoning,
            "DrainInProgress=False:Draining Drained=False:Uncordoning \
             MaintenanceInProgress=True:Uncordoning MaintenancePlanned=False:Draining",
        ),
        (
            Stage::Releasing,
            Waiting::ReleasingSlot,
            "DrainInProgress=False:Draining Drained=False:Uncordoning \
             MaintenanceInProgress=False:Releasing MaintenancePlanned=False:Draining",
        ),
        (Stage::Idle, Waiting::NoUpdate, ""),
    ] {
        let announcement = announcement(stage, waiting);
        let before = conditions(&node);
        let wrote = shown(&mut node, &announcement, 0);
        assert_eq!(conditions(&node).join(" "), wanted, "{stage:?}");
        assert_eq!(wrote, before != conditions(&node), "{stage:?}");
        assert!(!shown(&mut node, &announcement, 1), "{stage:?}: written again without need");
    }
}

#[test]
fn a_condition_keeps_the_time_of_its_last_turn() {
    let mut node = fake::node("uid-1");
    let turned = |node: &Value| node["status"]["conditions"][1]["lastTransitionTime"].clone();
    shown(&mut node, &announcement(Stage::Waiting, Waiting::Rehearsing), 0);
    let first = turned(&node);
    assert!(shown(&mut node, &announcement(Stage::Requesting, Waiting::SlotAsked), 60));
    assert_eq!(turned(&node), first);
    assert!(shown(&mut node, &draining(), 120));
    assert_eq!(turned(&node), json!(at(120).to_string()));
}

#[test]
fn conditions_of_others_are_left_alone() {
    let mut node = fake::node("uid-1");
    let theirs = json!({
        "type": "MaintenancePlanned", "status": "True", "reason": "AdminRequested", "message": "disk",
    });
    node["status"]["conditions"].as_array_mut().unwrap().push(theirs);
    let before = node.clone();
    assert!(!shown(&mut node, &announcement(Stage::Waiting, Waiting::Rehearsing), 0));
    assert!(!shown(&mut node, &idle(), 0));
    assert_eq!(node, before);
}

#[test]
fn the_annotation_is_written_when_it_says_something_new() {
    let mut node = fake::node("uid-1");
    let patch = state_patch(&as_node(&node), &draining()).unwrap();
    let text = patch["metadata"]["annotations"][STATE].as_str().unwrap().to_owned();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({
            "state": "draining", "reason": "draining", "text": "pods are leaving",
            "since": "2027-01-15T08:00:00Z", "attempt": "3f2a9c1e-1", "target": "42.1",
        })
    );
    fake::merge(&mut node, &patch);
    let later = Announcement { since: Some(at(5)), ..draining() };
    assert_eq!(state_patch(&as_node(&node), &later), None);
    assert!(state_patch(&as_node(&node), &idle()).is_some());
    node["metadata"]["annotations"][STATE] = json!("no JSON");
    assert!(state_patch(&as_node(&node), &later).is_some());
}

fn transition(to: Stage, detail: &str) -> Transition {
    let Announcement { attempt, target, .. } = draining();
    Transition {
        from: Stage::Draining,
        to,
        because: Because::DrainDeadline,
        detail: Some(detail.to_owned()),
        attempt,
        target,
        outcome: Some(Outcome::Yielded),
    }
}

#[test]
fn an_event_tells_the_change() {
    for (to, kind) in
        [(Stage::Yielding, "Warning"), (Stage::Halted, "Warning"), (Stage::Rebooting, "Normal")]
    {
        let event = event("n1", Some("uid-1".to_owned()), &transition(to, "2 pods stay"), at(0));
        assert_eq!(event.type_.as_deref(), Some(kind), "{to:?}");
    }
    let event = event("n1", None, &transition(Stage::Yielding, "2 pods stay"), at(0));
    assert_eq!(event.reason.as_deref(), Some("Yielding"));
    assert_eq!(
        event.note.as_deref(),
        Some(
            "draining -> yielding: drain-deadline: 2 pods stay \
             (target 42.1, attempt 3f2a9c1e-1, outcome yielded)"
        )
    );
    let name = event.metadata.name.unwrap();
    assert!(name.starts_with("n1.") && name.ends_with(".yielding"), "{name}");
}

#[test]
fn a_note_keeps_to_the_limit_of_the_api_and_its_facts() {
    let event = event("n1", None, &transition(Stage::Yielding, &"ü".repeat(2000)), at(0));
    let note = event.note.unwrap();
    assert!(note.len() <= 1024 && note.len() > 1000, "{}", note.len());
    assert!(note.ends_with("outcome yielded)"), "{note}");
}

fn shown_state(api: &FakeApi) -> String {
    let node = api.node();
    let text = node["metadata"]["annotations"][STATE].as_str().unwrap_or("{}");
    let state: Value = serde_json::from_str(text).unwrap();
    state["state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_latest_is_shown_and_an_idle_node_writes_nothing() {
    let api = FakeApi::start();
    let announcer = Announcer::new(api.cluster());
    announcer.publish(&idle());
    until("idle", || shown_state(&api) == "idle").await;
    assert_eq!(api.seen("PATCH", "nodes").len(), 1);
    let reads = api.seen("GET", "nodes").len();
    // The same again, also from an agent that started anew.
    announcer.publish(&idle());
    let again = Announcer::new(api.cluster());
    again.publish(&Announcement { since: Some(at(9)), ..idle() });
    until("a second look", || api.seen("GET", "nodes").len() > reads).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api.seen("PATCH", "nodes").len(), 1);

    announcer.publish(&draining());
    until("draining", || conditions(&api.node()) == ["DrainInProgress=True:Draining"]).await;
    assert_eq!(shown_state(&api), "draining");
    announcer.publish(&idle());
    until("idle again", || conditions(&api.node()).is_empty()).await;
    assert_eq!(shown_state(&api), "idle");
}

#[tokio::test]
async fn news_is_told_without_a_look_at_the_node() {
    let api = FakeApi::start();
    let announcer = Announcer::new(api.cluster());
    announcer.publish(&idle());
    until("idle", || shown_state(&api) == "idle").await;
    let reads = api.seen("GET", "nodes").len();
    // Their condition came after the look, and is left alone all the same.
    let theirs = json!({
        "type": "DrainInProgress", "status": "True", "reason": "AdminRequested", "message": "disk",
    });
    api.change(|node| node["status"]["conditions"].as_array_mut().unwrap().push(theirs));
    announcer.publish(&draining());
    announcer.tell(&transition(Stage::Yielding, "x"), at(0), Some(NodeUid("uid-7".to_owned())));
    until("draining", || shown_state(&api) == "draining").await;
    until("the Event", || api.seen("POST", "/namespaces/default/events").len() == 1).await;
    let event = &api.seen("POST", "/namespaces/default/events")[0];
    assert_eq!(event.body["regarding"]["uid"], "uid-7");
    announcer.publish(&announcement(Stage::Waiting, Waiting::Rehearsing));
    let planned = "MaintenancePlanned=True:Rehearsing";
    until("waiting", || conditions(&api.node()).iter().any(|one| one == planned)).await;
    assert_eq!(conditions(&api.node()), ["DrainInProgress=True:AdminRequested", planned]);
    assert_eq!(api.seen("GET", "nodes").len(), reads);
}

#[tokio::test]
async fn an_api_server_that_is_away_gets_the_latest_when_it_is_back() {
    let mut api = FakeApi::start();
    let announcer = Announcer::new(api.cluster());
    api.server.stop();
    announcer.publish(&draining());
    announcer.tell(&transition(Stage::Yielding, "x"), at(0), None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    announcer.publish(&idle());
    api.server.resume();
    until("idle", || shown_state(&api) == "idle").await;
    until("the Event", || api.seen("POST", "/namespaces/default/events").len() == 1).await;
    assert_eq!(conditions(&api.node()), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_right_is_not_asked_for_again_and_again() {
    let api = FakeApi::start();
    let announcer = Announcer::new(api.cluster());
    for _ in 0..9 {
        api.answer_once("PATCH", "/status", 403);
    }
    announcer.publish(&draining());
    until("the refusal", || api.seen("PATCH", "/status").len() == 1).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(api.seen("PATCH", "/status").len(), 1);
    assert_eq!(shown_state(&api), "draining");
}
