#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};

use super::*;
use crate::cluster::fake::{self, FakeApi, NODE, SOON, until};

#[test]
fn a_view_says_what_the_cycle_looks_at() {
    let ready = |condition: Value| json!({ "status": { "conditions": [condition] } });
    let annotated = |key: &str| json!({ "metadata": { "annotations": { key: "text" } } });
    let boot = |id: &str| json!({ "status": { "nodeInfo": { "bootID": id } } });
    let plain = || view(&serde_json::from_value(fake::node("uid-1")).unwrap());
    let unready =
        |why: &str| NodeView { ready: false, not_ready_because: Some(why.to_owned()), ..plain() };
    let text = || Some("text".to_owned());
    for (change, wanted) in [
        (json!({}), plain()),
        (json!({ "spec": { "unschedulable": true } }), NodeView { unschedulable: true, ..plain() }),
        (annotated(CORDONED_BY), NodeView { mark: text(), ..plain() }),
        (annotated(HOLD), NodeView { hold: text(), ..plain() }),
        (
            ready(json!({
                "type": "Ready", "status": "False", "reason": "KubeletNotReady",
                "message": "container runtime is down",
            })),
            unready("KubeletNotReady: container runtime is down"),
        ),
        (
            ready(json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" })),
            unready("NodeStatusUnknown"),
        ),
        (ready(json!({ "type": "Ready", "status": "False" })), unready("Ready is False")),
        (
            ready(json!({ "type": "MemoryPressure", "status": "True" })),
            unready("its kubelet has not reported"),
        ),
        (boot(""), NodeView { boot_id: None, ..plain() }),
    ] {
        let mut node = fake::node("uid-1");
        fake::merge(&mut node, &change);
        assert_eq!(view(&serde_json::from_value(node).unwrap()), wanted, "{change}");
    }
    assert!(plain().ready);
    assert_eq!(plain().not_ready_because, None);
    let boot = BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap();
    assert_eq!(plain().boot_id, Some(boot));
}

fn watched(api: &FakeApi) -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(watch(api.cluster(), sender));
    receiver
}

async fn next(events: &mut Receiver<Event>) -> Event {
    tokio::time::timeout(SOON, events.recv()).await.expect("an event").expect("the watch")
}

async fn next_view(events: &mut Receiver<Event>) -> NodeView {
    let event = next(events).await;
    let Event::Node(view) = event else { unreachable!("expected a view, got {event:?}") };
    view
}

async fn next_trouble(events: &mut Receiver<Event>) -> NodeTrouble {
    let event = next(events).await;
    let Event::NodeTrouble(trouble) = event else {
        unreachable!("expected trouble, got {event:?}")
    };
    trouble
}

fn set_unschedulable(api: &FakeApi, unschedulable: bool) {
    api.change(|node| node["spec"]["unschedulable"] = json!(unschedulable));
}

#[tokio::test]
async fn changes_are_told_and_heartbeats_are_not() {
    let api = FakeApi::start();
    let mut events = watched(&api);
    assert!(!next_view(&mut events).await.unschedulable);
    api.change(|node| {
        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z")
    });
    set_unschedulable(&api, true);
    // The next event is the cordon: the heartbeat before it was none.
    assert!(next_view(&mut events).await.unschedulable);
    let lists = api.seen("GET", "/api/v1/nodes");
    assert!(lists.iter().all(|seen| seen.query.contains(&format!("metadata.name%3D{NODE}"))));
}

#[tokio::test]
async fn a_node_that_is_deleted_is_missing_until_it_is_back() {
    let api = FakeApi::start();
    let mut events = watched(&api);
    next_view(&mut events).await;
    api.delete_node();
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::Missing(_)));
    api.set_node(fake::node("uid-2"));
    assert_eq!(next_view(&mut events).await.uid, NodeUid("uid-2".to_owned()));
}

#[tokio::test]
async fn what_it_shows_is_kept_for_as_long_as_it_shows_it() {
    let mut api = FakeApi::start();
    let cluster = api.cluster();
    let (sender, mut events) = mpsc::channel(16);
    tokio::spawn(watch(cluster.clone(), sender));
    let uid = || cluster.watched().and_then(|node| node.metadata.uid.clone());
    assert_eq!(uid(), None);
    next_view(&mut events).await;
    assert_eq!(uid().as_deref(), Some("uid-1"));
    api.delete_node();
    next_trouble(&mut events).await;
    assert_eq!(uid(), None);
    api.set_node(fake::node("uid-2"));
    next_view(&mut events).await;
    assert_eq!(uid().as_deref(), Some("uid-2"));
    api.server.stop();
    next_trouble(&mut events).await;
    assert_eq!(uid(), None);
}

#[tokio::test]
async fn a_node_that_is_not_there_yet_is_missing_until_it_comes() {
    let api = FakeApi::start();
    api.delete_node();
    let mut events = watched(&api);
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::Missing(_)));
    api.set_node(fake::node("uid-2"));
    assert_eq!(next_view(&mut events).await.uid, NodeUid("uid-2".to_owned()));
}

#[tokio::test]
async fn a_watch_that_breaks_is_no_trouble_and_loses_nothing() {
    let api = FakeApi::start();
    let mut events = watched(&api);
    next_view(&mut events).await;
    for unschedulable in [true, false, true] {
        api.break_watches();
        set_unschedulable(&api, unschedulable);
        assert_eq!(next_view(&mut events).await.unschedulable, unschedulable);
    }
}

#[tokio::test]
async fn a_watch_that_lasted_goes_on_from_where_it_was() {
    let api = FakeApi::start();
    let (sender, mut events) = mpsc::channel(16);
    tokio::spawn(watch_with(api.cluster(), sender, Retry::new(), Duration::ZERO));
    next_view(&mut events).await;
    let asked = |what: &str| {
        let seen = api.seen("GET", "/api/v1/nodes");
        seen.iter().filter(|seen| seen.query.contains("watch=true") == (what == "watch")).count()
    };
    for (round, unschedulable) in [true, false, true].into_iter().enumerate() {
        until("the watch is open", || asked("watch") > round).await;
        api.break_watches();
        set_unschedulable(&api, unschedulable);
        assert_eq!(next_view(&mut events).await.unschedulable, unschedulable);
        assert_eq!(asked("list"), 1);
    }
    // A version that grew too old: the server says Gone.
    until("the watch is open", || asked("watch") > 3).await;
    api.answer_once("GET", "/api/v1/nodes", 410);
    api.break_watches();
    set_unschedulable(&api, false);
    assert!(!next_view(&mut events).await.unschedulable);
    assert_eq!(asked("list"), 2);
    // Nobody trusts one version for ever.
    until("the watch is open", || asked("watch") > 5).await;
    for round in 0..=RESUMED_MAX {
        let before = asked("watch");
        api.break_watches();
        until("the next watch", || asked("watch") > before).await;
        assert_eq!(asked("list"), if round < RESUMED_MAX { 2 } else { 3 }, "{round}");
    }
}

#[tokio::test]
async fn a_failure_that_passes_at_once_is_no_trouble() {
    let api = FakeApi::start();
    api.answer_once("GET", "/api/v1/nodes", 503);
    let mut events = watched(&api);
    assert!(next_view(&mut events).await.ready);
}

#[tokio::test]
async fn a_credential_that_appears_cuts_a_long_rest_short() {
    let api = FakeApi::start();
    std::fs::remove_file(api.server.kubeconfig()).unwrap();
    let (sender, mut events) = mpsc::channel(16);
    tokio::spawn(watch_with(api.cluster(), sender, Retry::resting_long(), PROVEN_AFTER));
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::NoCredential(_)));
    api.server.write_kubeconfig(fake::TOKEN);
    // The rest is of 30 s at least.
    let soon = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
    assert!(matches!(soon, Ok(Some(Event::Node(_)))), "{soon:?}");
}

#[tokio::test]
async fn an_api_server_that_restarts_is_found_again() {
    let mut api = FakeApi::start();
    let mut events = watched(&api);
    next_view(&mut events).await;
    api.server.stop();
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::Unreachable(_)));
    // Told once, however often it is tried.
    let more = tokio::time::timeout(Duration::from_millis(500), events.recv()).await;
    assert!(more.is_err(), "{more:?}");
    set_unschedulable(&api, true);
    api.server.resume();
    assert!(next_view(&mut events).await.unschedulable);
}

#[tokio::test]
async fn a_refused_credential_is_replaced_while_the_watch_is_open() {
    let api = FakeApi::start();
    let mut events = watched(&api);
    next_view(&mut events).await;
    let watches = || api.seen("GET", "nodes").iter().any(|seen| seen.query.contains("watch=true"));
    until("the watch is open", watches).await;
    // The watch goes on with the old credential; nothing tells until the files change.
    api.take_token("second-token");
    set_unschedulable(&api, true);
    assert!(next_view(&mut events).await.unschedulable);
    api.server.write_kubeconfig("wrong-token");
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::Refused(_)));
    api.server.write_kubeconfig("second-token");
    assert!(next_view(&mut events).await.unschedulable);
}

#[tokio::test]
async fn a_credential_that_goes_and_comes_is_told() {
    let api = FakeApi::start();
    let mut events = watched(&api);
    next_view(&mut events).await;
    std::fs::remove_file(api.server.kubeconfig()).unwrap();
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::NoCredential(_)));
    api.server.write_kubeconfig(fake::TOKEN);
    next_view(&mut events).await;
}

#[tokio::test]
async fn a_missing_right_is_told() {
    let api = FakeApi::start();
    api.answer_once("GET", "/api/v1/nodes", 403);
    let mut events = watched(&api);
    assert!(matches!(next_trouble(&mut events).await, NodeTrouble::Forbidden(_)));
    next_view(&mut events).await;
}

#[tokio::test]
async fn it_ends_with_its_receiver() {
    let api = FakeApi::start();
    let (sender, mut receiver) = mpsc::channel(16);
    let watching = tokio::spawn(watch(api.cluster(), sender));
    next_view(&mut receiver).await;
    drop(receiver);
    tokio::time::timeout(SOON, watching).await.unwrap().unwrap();
}
