#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fake::{FakeApi, status};
use super::{drain, rehearse, verify};
use crate::cluster::Cluster;
use crate::config::{DrainSettings, EmptyDir, UnmanagedPods};
use crate::drain::{Obstacle, ObstacleKind, Progress};
use crate::lifecycle::{DrainEnd, Event, NodeTrouble, Rehearsal, Verification};
use crate::model::NodeUid;

pub(super) const WHILE: Duration = Duration::from_secs(20);
/// When a test gives up on what should come at once; generous, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn settings() -> DrainSettings {
    DrainSettings {
        parallel: 8,
        unmanaged_pods: UnmanagedPods::Leave,
        empty_dir: EmptyDir::Evict,
        grace_period: None,
        volume_detach_timeout: Duration::from_secs(5),
        budget_retry: Duration::from_secs(1),
    }
}

/// Drains with these settings; the progress that was told comes along.
async fn run(
    api: &FakeApi,
    settings: &DrainSettings,
    within: Duration,
    delete: bool,
) -> (DrainEnd, Vec<Progress>) {
    run_by(&api.cluster(), settings, within, delete).await
}

async fn run_by(
    cluster: &Cluster,
    settings: &DrainSettings,
    within: Duration,
    delete: bool,
) -> (DrainEnd, Vec<Progress>) {
    let (sender, mut events) = mpsc::channel(1000);
    let stop = CancellationToken::new();
    let end = drain(cluster, settings, within, delete, sender, stop).await;
    let mut told = Vec::new();
    while let Ok(Event::DrainProgress(progress)) = events.try_recv() {
        told.push(progress);
    }
    (end, told)
}

async fn drained(api: &FakeApi) -> DrainEnd {
    run(api, &settings(), WHILE, false).await.0
}

fn only(obstacles: &[Obstacle]) -> &ObstacleKind {
    assert_eq!(obstacles.len(), 1, "{obstacles:?}");
    &obstacles[0].kind
}

// === drain ===

#[tokio::test]
async fn thirty_pods_cost_one_list_one_watch_and_an_eviction_each() {
    let api = FakeApi::start();
    for n in 0..30 {
        api.add(&format!("web-{n}"), "web");
    }
    api.add_with("log", "log", |p| {
        p["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
    });
    api.add_with("bare", "x", |p| p["metadata"]["ownerReferences"] = json!([]));
    let (end, told) = run(&api, &settings(), WHILE, false).await;
    assert_eq!(end, DrainEnd::Empty);
    assert_eq!(api.pods(), ["bare", "log"]);
    // Two more: the Node is asked for volumes, and the namespace of all of them for its word.
    assert_eq!(api.counts(), [1, 1, 30, 34]);
    for eviction in api.seen("POST", "/eviction") {
        let options = &eviction.body["deleteOptions"];
        assert_eq!(options["preconditions"]["uid"], eviction.body["metadata"]["name"]);
        assert!(options.get("gracePeriodSeconds").is_none() && eviction.query.is_empty());
    }
    assert_eq!(told.last().map(|p| (p.total, p.gone)), Some((30, 30)));
}

#[tokio::test]
async fn a_configured_grace_period_is_sent() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let settings = DrainSettings { grace_period: Some(7), ..settings() };
    assert_eq!(run(&api, &settings, WHILE, false).await.0, DrainEnd::Empty);
    let body = &api.seen("POST", "/eviction")[0].body;
    assert_eq!(body["deleteOptions"]["gracePeriodSeconds"], json!(7));
}

#[tokio::test]
async fn pods_behind_a_budget_go_one_by_one_with_few_refusals() {
    let api = FakeApi::start();
    for n in 0..10 {
        api.add(&format!("web-{n}"), "web");
    }
    api.state().budgets.insert("web".into(), ("web-budget".into(), 1));
    api.state().refill = Some(Duration::from_millis(400));
    let (end, told) = run(&api, &settings(), WHILE, false).await;
    assert_eq!(end, DrainEnd::Empty);
    let [lists, watches, evictions, _] = api.counts();
    assert_eq!((lists, watches), (1, 1));
    assert!(evictions <= 10 + 8 + 9 * 4, "{evictions} evictions for 10 pods");
    let names_it = |o: &Obstacle| {
        matches!(&o.kind, ObstacleKind::Budget { budget: Some(name), says }
            if name == "web-budget" && says.contains("needs 3"))
    };
    assert!(told.iter().any(|p| p.obstacles.iter().filter(|o| names_it(o)).count() >= 5));
}

#[tokio::test]
async fn a_watch_that_breaks_is_taken_up_where_it_ended() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.state().going = Duration::from_millis(500);
    let cut = async {
        api.until_seen("POST", "/eviction", 1).await;
        api.break_watches();
        api.until_seen("GET", "watch=true", 2).await;
    };
    let (end, ()) = tokio::join!(drained(&api), cut);
    assert_eq!(end, DrainEnd::Empty);
    let [lists, _, evictions, _] = api.counts();
    assert_eq!((lists, evictions), (1, 1));
}

#[tokio::test]
async fn a_pod_that_went_while_nobody_watched_is_missed_by_a_new_list() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.state().going = Duration::from_secs(3600);
    let cut = async {
        api.until_seen("POST", "/eviction", 1).await;
        api.until_seen("GET", "watch=true", 1).await;
        api.remove("web-0");
        api.forget();
        api.break_watches();
    };
    let (end, ()) = tokio::join!(drained(&api), cut);
    assert_eq!(end, DrainEnd::Empty);
}

#[tokio::test]
async fn a_watch_that_went_silent_is_doubted_after_an_outage() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.add("web-1", "web");
    let away = ("POST", "web-0", 503, status("", "no backend", &json!({})));
    api.state().answers.push_back(away);
    let silence = async {
        api.until_seen("GET", "watch=true", 1).await;
        api.silence_watches();
    };
    let settings = DrainSettings { parallel: 1, ..settings() };
    let ((end, _), ()) = tokio::join!(run(&api, &settings, WHILE, false), silence);
    assert_eq!((end, api.counts()[0]), (DrainEnd::Empty, 2));
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for() {
    let mut api = FakeApi::start();
    for n in 0..6 {
        api.add(&format!("web-{n}"), "web");
    }
    api.state().answering = Duration::from_millis(100);
    let cluster = api.cluster();
    let settings = DrainSettings { parallel: 2, ..settings() };
    let (sender, _events) = mpsc::channel(1000);
    let draining = tokio::spawn(async move {
        drain(&cluster, &settings, WHILE, false, sender, CancellationToken::new()).await
    });
    api.until_seen("POST", "/eviction", 3).await;
    api.server.stop();
    // The server that ends takes with it what it was to do.
    api.remove("web-0");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    api.server.resume();
    api.until_seen("POST", "web-5", 1).await;
    for pod in api.pods() {
        api.until_seen("POST", &pod, 1).await;
        api.remove(&pod);
    }
    assert_eq!(draining.await.unwrap(), DrainEnd::Empty);
}

#[tokio::test]
async fn a_refused_credential_is_read_again() {
    let api = FakeApi::start();
    for n in 0..4 {
        api.add(&format!("web-{n}"), "web");
    }
    api.state().going = Duration::from_millis(300);
    let rotate = async {
        api.until_seen("POST", "/eviction", 1).await;
        api.state().token = "second-token".into();
        api.break_watches();
        api.server.write_kubeconfig("second-token");
    };
    let settings = DrainSettings { parallel: 1, ..settings() };
    let ((end, _), ()) = tokio::join!(run(&api, &settings, WHILE, false), rotate);
    assert_eq!(end, DrainEnd::Empty);
}

#[tokio::test]
async fn a_refused_request_has_the_client_built_anew() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let refusal = ("POST", "/eviction", 401, status("Unauthorized", "Unauthorized", &json!({})));
    api.state().answers.push_back(refusal);
    let (cluster, settings) = (api.cluster(), settings());
    let (sender, _events) = mpsc::channel(1000);
    let stop = CancellationToken::new();
    assert_eq!(drain(&cluster, &settings, WHILE, false, sender, stop).await, DrainEnd::Empty);
    assert_eq!((api.counts()[2], cluster.connection().await.unwrap().generation), (2, 2));
}

#[tokio::test]
async fn a_missing_right_ends_the_drain() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let text = "pods \"web-0\" is forbidden: User \"agent\" cannot create resource \
                \"pods/eviction\" in API group \"\" in the namespace \"shop\"";
    for _ in 0..3 {
        let answer = ("POST", "/eviction", 403, status("Forbidden", text, &json!({})));
        api.state().answers.push_back(answer);
    }
    let DrainEnd::Impossible(obstacles) = drained(&api).await else { panic!("it ended otherwise") };
    assert!(matches!(only(&obstacles), ObstacleKind::Forbidden { says } if says == text));
}

#[tokio::test]
async fn a_list_that_is_forbidden_ends_the_drain() {
    let api = FakeApi::start();
    let text = "pods is forbidden: User \"agent\" cannot list resource \"pods\"";
    for _ in 0..20 {
        let answer = ("GET", "/api/v1/pods", 403, status("Forbidden", text, &json!({})));
        api.state().answers.push_back(answer);
    }
    let DrainEnd::Impossible(obstacles) = drained(&api).await else { panic!("it ended otherwise") };
    assert!(matches!(only(&obstacles), ObstacleKind::Forbidden { says } if says.contains(text)));
}

#[tokio::test]
async fn a_refused_pod_is_named_and_nothing_is_evicted() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.add_with("bare", "x", |p| p["metadata"]["ownerReferences"] = json!([]));
    let settings = DrainSettings { unmanaged_pods: UnmanagedPods::Refuse, ..settings() };
    let (end, _) = run(&api, &settings, WHILE, false).await;
    let DrainEnd::Impossible(obstacles) = end else { panic!("{end:?}") };
    assert!(matches!(only(&obstacles), ObstacleKind::Refused { rule } if rule.contains("refuse")));
    assert_eq!((obstacles[0].pod.as_str(), api.counts()[2]), ("bare", 0));
}

#[tokio::test]
async fn the_deadline_names_what_stood_in_the_way() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource \
               does not support.";
    api.state().answers.push_back(("POST", "/eviction", 500, status("", two, &json!({}))));
    let within = Duration::from_millis(700);
    let DrainEnd::DeadlinePassed(progress) = run(&api, &settings(), within, false).await.0 else {
        panic!("it ended otherwise")
    };
    assert!(matches!(only(&progress.obstacles), ObstacleKind::SeveralBudgets { .. }));
    assert_eq!((progress.total, progress.gone, api.counts()[2]), (1, 0, 1));
}

#[tokio::test]
async fn a_terminating_namespace_is_emptied_by_deletion() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let causes = json!({"causes": [{"reason": "NamespaceTerminating", "message": "it ends"}]});
    let answer = ("POST", "/eviction", 403, status("Forbidden", "unable to create", &causes));
    api.state().answers.push_back(answer);
    assert_eq!(drained(&api).await, DrainEnd::Empty);
    let deletions = api.seen("DELETE", "/namespaces/shop/pods/web-0");
    assert_eq!(deletions[0].body["preconditions"]["uid"], json!("web-0"));
}

#[tokio::test]
async fn deletion_passes_budgets() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.add("web-1", "web");
    api.state().budgets.insert("web".into(), ("web".into(), 0));
    let settings = DrainSettings { grace_period: Some(3), ..settings() };
    assert_eq!(run(&api, &settings, WHILE, true).await.0, DrainEnd::Empty);
    let deletions = api.seen("DELETE", "/pods/");
    assert_eq!((deletions.len(), api.counts()[2]), (2, 0));
    assert_eq!(deletions[0].body["gracePeriodSeconds"], json!(3));
}

#[tokio::test]
async fn a_stop_waits_for_the_request_under_way() {
    let api = FakeApi::start();
    for n in 0..3 {
        api.add(&format!("web-{n}"), "web");
    }
    api.state().answering = Duration::from_millis(400);
    let settings = DrainSettings { parallel: 1, ..settings() };
    let (sender, _events) = mpsc::channel(1000);
    let stop = CancellationToken::new();
    let cluster = api.cluster();
    let draining = drain(&cluster, &settings, WHILE, false, sender, stop.clone());
    let stopping = async {
        api.until_seen("POST", "/eviction", 1).await;
        stop.cancel();
    };
    let (end, ()) = tokio::join!(draining, stopping);
    assert_eq!(end, DrainEnd::Stopped);
    assert_eq!(api.state().decided, 1, "left its request behind");
    assert_eq!(api.counts()[2], 1);
}

#[tokio::test]
async fn a_pod_that_comes_late_is_evicted_too() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.state().going = Duration::from_millis(300);
    let late = async {
        api.until_seen("POST", "/eviction", 1).await;
        api.add("late", "late");
    };
    let (end, ()) = tokio::join!(drained(&api), late);
    assert_eq!((end, api.pods().len()), (DrainEnd::Empty, 0));
}

#[tokio::test]
async fn volumes_are_waited_for_but_not_those_that_stay() {
    let api = FakeApi::start();
    let stays = "kubernetes.io/csi/disks.example.com^vol-1";
    let goes = "kubernetes.io/csi/disks.example.com^vol-2";
    api.add_with("log", "log", |p| {
        p["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        p["spec"]["volumes"] =
            json!([{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}]);
    });
    let claim = json!({"metadata": {"name": "disk"}, "spec": {"volumeName": "pv-1"}});
    let volume = json!({"metadata": {"name": "pv-1"},
        "spec": {"csi": {"driver": "disks.example.com", "volumeHandle": "vol-1"}}});
    let claim_path = "/api/v1/namespaces/shop/persistentvolumeclaims/disk";
    api.state().objects.insert(claim_path.into(), claim);
    api.state().objects.insert("/api/v1/persistentvolumes/pv-1".into(), volume);
    api.state().node["status"] = json!({"volumesInUse": [stays, goes],
        "volumesAttached": [{"name": stays, "devicePath": ""}, {"name": goes, "devicePath": ""}]});
    let detach = async {
        api.until_seen("GET", "/api/v1/nodes?&watch=true", 1).await;
        api.state().node["status"] = json!({"volumesInUse": [stays],
            "volumesAttached": [{"name": stays, "devicePath": ""}]});
        api.add_with("done", "x", |p| p["status"]["phase"] = json!("Succeeded"));
    };
    // Far longer than this test may take: only what is seen of the volumes can end the drain.
    let hour = Duration::from_secs(3600);
    let long = DrainSettings { volume_detach_timeout: hour, ..settings() };
    let both = async { tokio::join!(run(&api, &long, hour * 2, false), detach) };
    let ended = tokio::time::timeout(PATIENCE, both).await;
    let ((end, told), ()) = ended.expect("waits for the volume that stays");
    assert_eq!(end, DrainEnd::Empty);
    assert!(told.iter().any(|progress| progress.volumes == [goes]), "{told:?}");
}

#[tokio::test]
async fn a_watch_that_shows_the_cordon_and_no_volume_spares_the_look() {
    let held = json!({"volumesInUse": ["kubernetes.io/csi/x^1"]});
    for (unschedulable, status, looks) in
        [(true, json!({}), 0), (false, json!({}), 1), (true, held, 1)]
    {
        let api = FakeApi::start();
        let shown = json!({"spec": {"unschedulable": unschedulable}, "status": status});
        let cluster = api.cluster();
        cluster.keep_watched(Some(serde_json::from_value(shown.clone()).unwrap()));
        assert_eq!(run_by(&cluster, &settings(), WHILE, false).await.0, DrainEnd::Empty);
        assert_eq!(api.seen("GET", "/api/v1/nodes/").len(), looks, "{shown}");
    }
}

#[tokio::test]
async fn the_wait_for_volumes_is_bounded() {
    let api = FakeApi::start();
    api.state().node["status"] = json!({"volumesInUse": ["kubernetes.io/csi/x^1"]});
    let settings =
        DrainSettings { volume_detach_timeout: Duration::from_millis(300), ..settings() };
    let began = Instant::now();
    assert_eq!(run(&api, &settings, WHILE, false).await.0, DrainEnd::Empty);
    assert!(began.elapsed() >= Duration::from_millis(300));
}

// === rehearsal and last look ===

#[tokio::test]
async fn a_rehearsal_changes_nothing_and_asks_each_pod_once() {
    let api = FakeApi::start();
    for n in 0..5 {
        api.add(&format!("web-{n}"), "web");
        api.add(&format!("db-{n}"), "db");
    }
    api.state().budgets.insert("web".into(), ("web".into(), 1));
    assert_eq!(rehearse(&api.cluster(), &settings()).await, Rehearsal::Passes);
    api.state().budgets.insert("db".into(), ("db-budget".into(), 0));
    let rehearsal = rehearse(&api.cluster(), &settings()).await;
    let Rehearsal::Blocked(obstacles) = rehearsal else { panic!("{rehearsal:?}") };
    let pods: Vec<&str> = obstacles.iter().map(|o| o.pod.as_str()).collect();
    assert_eq!(pods, ["db-0", "db-1", "db-2", "db-3", "db-4"]);
    assert!(obstacles[0].to_string().contains("disruption budget db-budget: "));
    assert_eq!((api.seen("POST", "dryRun=All").len(), api.counts()[2]), (20, 20));
    assert_eq!(api.pods().len(), 10);
}

#[tokio::test]
async fn a_rehearsal_names_refused_pods_and_two_budgets() {
    let api = FakeApi::start();
    api.add_with("a-scratch", "x", |p| {
        p["spec"]["volumes"] = json!([{"name": "s", "emptyDir": {}}])
    });
    api.add("b", "b");
    let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource \
               does not support.";
    api.state().answers.push_back(("POST", "/eviction", 500, status("", two, &json!({}))));
    let settings = DrainSettings { empty_dir: EmptyDir::Refuse, ..settings() };
    let rehearsal = rehearse(&api.cluster(), &settings).await;
    let Rehearsal::Blocked(obstacles) = rehearsal else { panic!("{rehearsal:?}") };
    assert!(matches!(obstacles[0].kind, ObstacleKind::Refused { .. }));
    assert!(matches!(obstacles[1].kind, ObstacleKind::SeveralBudgets { .. }));
}

#[tokio::test]
async fn a_rehearsal_that_cannot_be_held_says_why() {
    let mut api = FakeApi::start();
    api.add("web-0", "web");
    api.state().token = "another".into();
    let rehearsal = rehearse(&api.cluster(), &settings()).await;
    assert!(matches!(rehearsal, Rehearsal::Failed(NodeTrouble::Refused(_))), "{rehearsal:?}");
    let cluster = api.cluster();
    api.server.stop();
    let rehearsal = rehearse(&cluster, &settings()).await;
    assert!(matches!(rehearsal, Rehearsal::Failed(NodeTrouble::Unreachable(_))), "{rehearsal:?}");
}

#[tokio::test]
async fn a_failed_attempt_of_a_rehearsal_is_made_again() {
    let api = FakeApi::start();
    api.add("web-0", "web");
    let answer = ("POST", "/eviction", 429, json!("Too many requests, please try again later."));
    api.state().answers.push_back(answer);
    assert_eq!(rehearse(&api.cluster(), &settings()).await, Rehearsal::Passes);
}

#[tokio::test]
async fn the_last_look_sees_uid_cordon_and_pods() {
    let api = FakeApi::start();
    let (cluster, settings) = (api.cluster(), settings());
    let uid = NodeUid("node-1".into());
    let look = |pods_may_stay| verify(&cluster, &settings, &uid, pods_may_stay);
    api.add_with("log", "log", |p| {
        p["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
    });
    assert_eq!(look(false).await, Verification::Good);
    api.add("late", "late");
    let Verification::NotEmpty(left) = look(false).await else { panic!("not seen") };
    assert_eq!((left[0].pod.as_str(), only(&left)), ("late", &ObstacleKind::Present));
    assert_eq!(look(true).await, Verification::Good);
    api.state().node["spec"] = json!({});
    assert_eq!(look(true).await, Verification::Uncordoned);
    api.state().node["metadata"]["uid"] = json!("node-2");
    assert_eq!(look(true).await, Verification::OtherNode(NodeUid("node-2".into())));
    api.state().token = "another".into();
    assert!(matches!(look(true).await, Verification::Failed(NodeTrouble::Refused(_))));
}
