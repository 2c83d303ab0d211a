//! The pods of the own Node, as one list and one watch tell them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;

use super::request::{PAGE_SIZE, selector};
use super::wishes::Wishes;
use crate::cluster::Cluster;
use crate::drain::Wish;
use crate::lifecycle::NodeTrouble;

/// How long one watch lasts, seconds, before it is taken up where it ended. A connection that died
/// without a word is noticed 5 s later, so this bounds how late a drain can see its last pod go.
const WATCH_SECONDS: u32 = 120;

/// A kubelet takes 110 pods by default, and nobody some thousands.
const PODS_MAX: usize = 20_000;

/// Failures in a row after which client and list are made anew.
const FAILURES_A_SESSION: u32 = 3;

/// The first failure is tried again at once: an API server that hands over ends all watches.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// After so many failures the rest is the longest.
const LONGEST_AFTER: u32 = 6;

/// What is told.
#[derive(Debug)]
pub(super) enum Seen {
    /// A pod is there, new or changed, and what its namespace says about drains.
    Pod(Box<Pod>, Option<Wish>),
    /// The pod with this UID has gone.
    Gone(String),
    /// A list is complete: these UIDs and no others are there.
    Listed(BTreeSet<String>),
    /// It cannot be seen now; the watch keeps trying.
    Trouble(NodeTrouble),
}

/// The receiver is gone.
struct Closed;

/// Tells what happens to the pods of this Node; comes back only when the receiver is gone. `doubt`
/// has it list and watch anew, since its connection may be dead without a word.
pub(super) async fn watch(cluster: Cluster, seen: Sender<Seen>, doubt: Arc<Notify>) {
    let mut failures = 0;
    loop {
        let ended = tokio::select! {
            ended = session(&cluster, &seen, &mut failures) => ended,
            () = doubt.notified() => continue,
        };
        match ended {
            Err(Closed) => return,
            Ok(trouble) => {
                if rest(trouble, &mut failures, &seen).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Lists and watches with one client until that is no use any more; comes back with the trouble.
async fn session(
    cluster: &Cluster,
    seen: &Sender<Seen>,
    failures: &mut u32,
) -> Result<NodeTrouble, Closed> {
    let (client, name) = match (cluster.client().await, cluster.node_name().await) {
        (Ok(client), Ok(name)) => (client, name),
        (Err(trouble), _) | (_, Err(trouble)) => return Ok(trouble),
    };
    let config = watcher::Config::default()
        .fields(&selector(&name))
        .page_size(PAGE_SIZE)
        .timeout(WATCH_SECONDS);
    let mut stream = pin!(watcher(Api::<Pod>::all(client), config));
    let mut uids = BTreeSet::new();
    let mut present = BTreeSet::new();
    let mut wishes = Wishes::new(cluster);
    loop {
        let told = match stream.next().await {
            Some(Ok(event)) => {
                note(&event, &mut present);
                if present.len() > PODS_MAX {
                    // It is worth no second look soon.
                    *failures = (*failures).max(LONGEST_AFTER);
                    let why = format!("there are more than {PODS_MAX} pods on one Node");
                    return Ok(NodeTrouble::Unreachable(why));
                }
                match take(event, &mut uids, &mut wishes).await {
                    Ok(told) => told,
                    // The list is begun anew: a pod whose namespace is not known is none to ask.
                    Err(trouble) => return Ok(trouble),
                }
            }
            Some(Err(error)) => {
                let trouble = trouble(&error);
                if matches!(trouble, NodeTrouble::Refused(_)) {
                    cluster.refused();
                    return Ok(trouble);
                }
                if *failures + 1 >= FAILURES_A_SESSION {
                    return Ok(trouble);
                }
                rest(trouble, failures, seen).await?;
                continue;
            }
            None => return Ok(NodeTrouble::Unreachable("the watch ended".to_owned())),
        };
        if let Some(told) = told {
            *failures = 0;
            seen.send(told).await.map_err(|_| Closed)?;
        }
    }
}

/// Keeps count of the pods that are there.
fn note(event: &Event<Pod>, present: &mut BTreeSet<String>) {
    match event {
        Event::Init => present.clear(),
        Event::InitApply(pod) | Event::Apply(pod) => present.extend(pod.metadata.uid.clone()),
        Event::InitDone => {}
        Event::Delete(pod) => {
            present.remove(pod.metadata.uid.as_deref().unwrap_or_default());
        }
    }
}

/// One event of the library's watcher in our words.
async fn take(
    event: Event<Pod>,
    uids: &mut BTreeSet<String>,
    wishes: &mut Wishes,
) -> Result<Option<Seen>, NodeTrouble> {
    Ok(match event {
        Event::Init => {
            uids.clear();
            None
        }
        Event::InitApply(pod) => {
            uids.extend(pod.metadata.uid.clone());
            let namespace = wishes.of_namespace(&pod).await?;
            Some(Seen::Pod(Box::new(pod), namespace))
        }
        Event::InitDone => Some(Seen::Listed(std::mem::take(uids))),
        Event::Apply(pod) => {
            let namespace = wishes.of_namespace(&pod).await?;
            Some(Seen::Pod(Box::new(pod), namespace))
        }
        Event::Delete(pod) => pod.metadata.uid.map(Seen::Gone),
    })
}

/// Tells a trouble from the second failure in a row on, and rests.
async fn rest(trouble: NodeTrouble, failures: &mut u32, seen: &Sender<Seen>) -> Result<(), Closed> {
    *failures = failures.saturating_add(1);
    if *failures == 1 {
        return Ok(());
    }
    seen.send(Seen::Trouble(trouble)).await.map_err(|_| Closed)?;
    let doublings = (*failures - 2).min(16);
    tokio::time::sleep((SHORTEST_WAIT * (1 << doublings)).min(LONGEST_WAIT)).await;
    Ok(())
}

fn trouble(error: &watcher::Error) -> NodeTrouble {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Cluster::trouble(error),
        watcher::Error::WatchError(status) => Cluster::trouble(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => {
            NodeTrouble::Unreachable("the list of pods has no resource version".to_owned())
        }
    }
}
