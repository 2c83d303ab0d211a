//! What pods and namespaces say about drains, in every look at them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::fake::{FakeApi, status};
use super::tests::{WHILE, settings};
use super::{drain, rehearse, verify};
use crate::drain::{DRAIN, ObstacleKind};
use crate::lifecycle::{DrainEnd, Event, NodeTrouble, Rehearsal, Verification};
use crate::model::NodeUid;

fn says(word: &'static str) -> impl FnOnce(&mut Value) {
    move |pod| pod["metadata"]["annotations"] = json!({ DRAIN: word })
}

/// The namespace of all pods says this.
fn namespace_says(api: &FakeApi, word: &str) {
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1",
        "metadata": {"name": "shop", "labels": { DRAIN: word }}});
    api.state().objects.insert("/api/v1/namespaces/shop".to_owned(), namespace);
}

fn asked(api: &FakeApi, query: &str) -> Vec<String> {
    let seen = [api.seen("POST", "/eviction"), api.seen("DELETE", "/pods/")].concat();
    let of = seen.iter().filter(|seen| seen.query.contains(query));
    let mut names: Vec<String> =
        of.filter_map(|seen| seen.path.split('/').nth(6).map(str::to_owned)).collect();
    names.sort();
    names
}

async fn drained(api: &FakeApi, within: Duration, delete: bool) -> DrainEnd {
    let (sender, _events) = mpsc::channel(1000);
    drain(&api.cluster(), &settings(), within, delete, sender, CancellationToken::new()).await
}

async fn looked(api: &FakeApi) -> Verification {
    verify(&api.cluster(), &settings(), &NodeUid("node-1".to_owned()), false).await
}

#[tokio::test]
async fn what_says_skip_is_left_by_every_look() {
    for whole_namespace in [false, true] {
        let api = FakeApi::start();
        if whole_namespace {
            namespace_says(&api, "skip");
            api.add("kept-0", "x");
            // The pod's own word, though it means to be waited for, and it has ended soon.
            api.add_with("web-0", "web", says("wait-completed"));
        } else {
            api.add_with("kept-0", "x", says("skip"));
            api.add("web-0", "web");
        }
        let rehearsed = rehearse(&api.cluster(), &settings()).await;
        assert_eq!(rehearsed, Rehearsal::Passes);
        let evicted: &[&str] = if whole_namespace { &[] } else { &["web-0"] };
        assert_eq!(asked(&api, "dryRun=All"), evicted);
        let meanwhile = async {
            api.until_seen("GET", "watch=true", 1).await;
            if whole_namespace {
                api.remove("web-0");
            }
        };
        let (end, ()) = tokio::join!(drained(&api, WHILE, false), meanwhile);
        assert_eq!(end, DrainEnd::Empty, "{whole_namespace}");
        assert_eq!(api.pods(), ["kept-0"]);
        assert_eq!(looked(&api).await, Verification::Good);
        assert_eq!(drained(&api, WHILE, true).await, DrainEnd::Empty);
        assert_eq!(api.pods(), ["kept-0"]);
    }
}

#[tokio::test]
async fn what_ends_by_itself_is_waited_for_and_never_asked() {
    let api = FakeApi::start();
    api.add_with("job-0", "job", says("wait-completed"));
    api.add("web-0", "web");
    assert_eq!(rehearse(&api.cluster(), &settings()).await, Rehearsal::Passes);
    let Verification::NotEmpty(left) = looked(&api).await else { panic!("not empty") };
    assert_eq!(left[0].kind, ObstacleKind::Completing);
    let (sender, mut events) = mpsc::channel(1000);
    let (cluster, settings) = (api.cluster(), settings());
    let draining = drain(&cluster, &settings, WHILE, false, sender, CancellationToken::new());
    let meanwhile = async {
        while let Some(event) = events.recv().await {
            let Event::DrainProgress(progress) = event else { panic!("{event:?}") };
            let waits = |kind: &ObstacleKind| *kind == ObstacleKind::Completing;
            if progress.gone == 1 && progress.obstacles.iter().all(|o| waits(&o.kind)) {
                break;
            }
        }
        // It ends: the object stays, as that of a Job does.
        api.add_with("job-0", "job", |pod| {
            says("wait-completed")(pod);
            pod["status"]["phase"] = json!("Succeeded");
        });
    };
    let (end, ()) = tokio::join!(draining, meanwhile);
    assert_eq!(end, DrainEnd::Empty);
    assert_eq!(
        (asked(&api, "dryRun=All"), asked(&api, "")),
        (vec!["web-0".to_owned()], vec!["web-0".to_owned(), "web-0".to_owned()],)
    );
    assert_eq!(looked(&api).await, Verification::Good);
}

#[tokio::test]
async fn past_the_deadline_its_policy_counts() {
    let api = FakeApi::start();
    api.add_with("job-0", "job", says("wait-completed"));
    let end = drained(&api, Duration::from_millis(300), false).await;
    let DrainEnd::DeadlinePassed(progress) = end else { panic!("{end:?}") };
    assert_eq!(progress.obstacles[0].kind, ObstacleKind::Completing);
    assert!(asked(&api, "").is_empty());
    assert_eq!(drained(&api, WHILE, true).await, DrainEnd::Empty);
    assert_eq!(asked(&api, ""), ["job-0"]);
}

#[tokio::test]
async fn a_credential_that_may_read_no_namespace_is_told_of_once() {
    let api = FakeApi::start();
    namespace_says(&api, "skip");
    for (name, owner) in [("web-0", "web"), ("web-1", "web")] {
        api.add(name, owner);
    }
    let forbidden = status("Forbidden", "no relationship found", &json!({}));
    let again = ("GET", "/api/v1/namespaces/shop", 403, forbidden);
    api.state().answers.push_back(again);
    let cluster = api.cluster();
    // Also by a second look with the same credential.
    for _ in 0..2 {
        assert_eq!(rehearse(&cluster, &settings()).await, Rehearsal::Passes);
    }
    assert_eq!(asked(&api, "dryRun=All"), ["web-0", "web-0", "web-1", "web-1"]);
    assert_eq!(api.seen("GET", "/namespaces/shop").len(), 1);
}

#[tokio::test]
async fn a_namespace_that_cannot_be_read_now_is_no_leave() {
    let api = FakeApi::start();
    namespace_says(&api, "skip");
    api.add("web-0", "web");
    let busy = || ("GET", "/namespaces/shop", 500, status("InternalError", "etcd", &json!({})));
    api.state().answers.extend([busy(), busy()]);
    let rehearsed = rehearse(&api.cluster(), &settings()).await;
    assert!(matches!(&rehearsed, Rehearsal::Failed(NodeTrouble::Unreachable(_))), "{rehearsed:?}");
    // The drain waits for it, and then leaves the pod.
    assert_eq!(drained(&api, WHILE, false).await, DrainEnd::Empty);
    assert!(asked(&api, "").is_empty());
    assert_eq!(api.seen("GET", "/namespaces/shop").len(), 3);
}

#[tokio::test]
async fn a_word_that_means_nothing_counts_for_nothing() {
    let api = FakeApi::start();
    api.add_with("web-0", "web", says("yes"));
    namespace_says(&api, "no");
    assert_eq!(drained(&api, WHILE, false).await, DrainEnd::Empty);
    assert_eq!(asked(&api, ""), ["web-0"]);
}
