//! Which pods are touched at all, however they are seen.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::fake::FakeApi;
use super::tests::{WHILE, settings};
use super::{drain, rehearse, verify};
use crate::lifecycle::{DrainEnd, Rehearsal, Verification};
use crate::model::NodeUid;

type Change = fn(&mut Value);

/// Pods that stay, whatever comes: a daemon's, a static one, and one that has ended.
const STAYING: [(&str, Change); 3] = [
    ("daemon", |pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet")),
    ("static", |pod| {
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "3f"});
    }),
    ("ended", |pod| pod["status"]["phase"] = json!("Succeeded")),
];

fn add_staying(api: &FakeApi, when: &str) {
    for (name, change) in STAYING {
        api.add_with(&format!("{name}-{when}"), "x", change);
    }
}

/// A drain under which staying pods are listed, come by the watch, and are listed once more.
async fn drain_with_all(delete: bool) -> FakeApi {
    let api = FakeApi::start();
    api.add("web-0", "web");
    api.state().going = Duration::from_secs(3600);
    add_staying(&api, "listed");
    let (sender, _events) = mpsc::channel(1000);
    let (cluster, settings) = (api.cluster(), settings());
    let draining = drain(&cluster, &settings, WHILE, delete, sender, CancellationToken::new());
    let meanwhile = async {
        api.until_seen(if delete { "DELETE" } else { "POST" }, "web-0", 1).await;
        api.until_seen("GET", "watch=true", 1).await;
        add_staying(&api, "watched");
        api.add("web-1", "web");
        api.until_seen(if delete { "DELETE" } else { "POST" }, "web-1", 1).await;
        add_staying(&api, "listed-again");
        api.forget();
        api.break_watches();
        api.until_seen("GET", "/api/v1/pods", 4).await;
        api.remove("web-0");
        api.remove("web-1");
    };
    let (end, ()) = tokio::join!(draining, meanwhile);
    assert_eq!(end, DrainEnd::Empty);
    api
}

#[tokio::test]
async fn every_way_a_pod_is_seen_has_the_same_rules() {
    for delete in [false, true] {
        let api = drain_with_all(delete).await;
        let gone = [api.seen("POST", "/eviction"), api.seen("DELETE", "/pods/")].concat();
        let asked: Vec<&str> = gone.iter().filter_map(|seen| seen.path.split('/').nth(6)).collect();
        assert_eq!(asked, ["web-0", "web-1"], "delete: {delete}");
        assert_eq!(api.pods().len(), 3 * STAYING.len());
        // Those that stay are none of the rehearsal's either, and no hindrance to the last look.
        assert_eq!(rehearse(&api.cluster(), &settings()).await, Rehearsal::Passes);
        assert_eq!(api.seen("POST", "dryRun=All").len(), 0);
        let uid = NodeUid("node-1".to_owned());
        let look = verify(&api.cluster(), &settings(), &uid, false).await;
        assert_eq!(look, Verification::Good);
    }
}

#[tokio::test]
async fn pods_of_other_nodes_are_never_seen() {
    let api = FakeApi::start();
    let elsewhere = |pod: &mut Value| pod["spec"]["nodeName"] = json!("n2");
    api.add("web-0", "web");
    api.add_with("web-1", "web", elsewhere);
    api.state().going = Duration::from_millis(300);
    let (sender, _events) = mpsc::channel(1000);
    let (cluster, settings) = (api.cluster(), settings());
    let draining = drain(&cluster, &settings, WHILE, false, sender, CancellationToken::new());
    let late = async {
        api.until_seen("POST", "web-0", 1).await;
        api.add_with("web-2", "web", elsewhere);
    };
    let (end, ()) = tokio::join!(draining, late);
    assert_eq!((end, api.counts()[2]), (DrainEnd::Empty, 1));
    assert_eq!(rehearse(&cluster, &settings).await, Rehearsal::Passes);
    let uid = NodeUid("node-1".to_owned());
    assert_eq!(verify(&cluster, &settings, &uid, false).await, Verification::Good);
    assert_eq!((api.counts()[2], api.pods().len()), (1, 2));
}
