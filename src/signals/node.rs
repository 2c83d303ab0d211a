//! The own Node, watched.
//!
//! One object is listed and watched by name, the only form that a kubelet's identity may use. A watch
//! that comes to its regular end goes on from the version that was seen last; one that breaks, or whose
//! version has grown too old, is begun anew with a list.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::cluster::{Cluster, Connection, Retry, WATCH_SECONDS};
use crate::fleetlock::clean_value;
use crate::lifecycle::{Event, NodeTrouble, NodeView};
use crate::model::{BootId, NodeUid};

/// Annotation: the attempt whose cordon this is.
pub const CORDONED_BY: &str = "lockkeeper.dev/cordoned-by";
/// Annotation: a person asks for a reboot, and why.
pub const REBOOT: &str = "lockkeeper.dev/reboot";
/// Annotation: a person holds the node, and why.
pub const HOLD: &str = "lockkeeper.dev/hold";

/// A watch that broke sooner counts as one failure more in a row, so that a server which ends every
/// watch at once is not asked in a tight loop.
const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// How often a watch goes on before the Node is listed again, about an hour: whatever a server may have
/// forgotten to tell (after its store was put back to an older state) is seen by then.
const RESUMED_MAX: u32 = 12;
/// Grace beyond the server's own end of a watch.
const WATCH_GRACE: Duration = Duration::from_secs(5);

/// What the cycle looks at in a Node, whose texts anybody with the right may have written: on one
/// line and of bounded length. Heartbeats leave it unchanged.
pub fn view(node: &Node) -> NodeView {
    let annotations = node.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|all| all.get(key)).map(|it| clean_value(it));
    let status = node.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let is_ready = ready.is_some_and(|condition| condition.status == "True");
    NodeView {
        uid: NodeUid(node.metadata.uid.clone().unwrap_or_default()),
        unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
        mark: annotation(CORDONED_BY),
        hold: annotation(HOLD),
        reboot: annotation(REBOOT),
        ready: is_ready,
        not_ready_because: if is_ready { None } else { Some(not_ready_because(ready)) },
        // A kubelet that has never reported leaves it empty: no boot at all.
        boot_id: status
            .and_then(|s| s.node_info.as_ref())
            .and_then(|info| BootId::parse(&info.boot_id).ok()),
    }
}

/// The condition's own words.
fn not_ready_because(ready: Option<&NodeCondition>) -> String {
    let Some(ready) = ready else { return "its kubelet has not reported".to_owned() };
    let part =
        |text: &Option<String>| text.as_deref().map(clean_value).filter(|text| !text.is_empty());
    match (part(&ready.reason), part(&ready.message)) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => clean_value(&format!("Ready is {}", ready.status)),
    }
}

/// Sends [`Event::Node`] when the view of the own Node changed and [`Event::NodeTrouble`] when it
/// cannot be seen, each once per change. Ends only when the receiver is gone.
pub async fn watch(cluster: Cluster, events: Sender<Event>) {
    watch_with(cluster, events, Retry::new(), PROVEN_AFTER).await;
}

async fn watch_with(
    cluster: Cluster,
    events: Sender<Event>,
    mut retry: Retry,
    proven_after: Duration,
) {
    let mut teller = Teller { events: events.clone(), told: None };
    loop {
        let began = Instant::now();
        let ended = tokio::select! {
            ended = session(&cluster, &mut teller, proven_after) => ended,
            () = events.closed() => return,
        };
        let trouble = match ended {
            Ended::ReceiverGone => return,
            Ended::Over(trouble) => trouble,
        };
        if began.elapsed() >= proven_after {
            retry.succeeded();
        }
        let rest = retry.failed();
        if let Some(trouble) = trouble
            && (retry.failures() > 1 || lasting(&trouble))
            && teller.trouble(trouble).await.is_break()
        {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            // A credential that appears or rotates is used at once.
            () = cluster.changed() => {}
            () = events.closed() => return,
        }
    }
}

/// Whether trying once more right away cannot help. A watch that merely broke is no trouble yet:
/// an API server that hands over to another ends them all.
fn lasting(trouble: &NodeTrouble) -> bool {
    match trouble {
        NodeTrouble::NoCredential(_)
        | NodeTrouble::Refused(_)
        | NodeTrouble::Forbidden(_)
        | NodeTrouble::Missing(_) => true,
        NodeTrouble::Unreachable(_) => false,
    }
}

/// How one session with the API server ended.
enum Ended {
    /// The receiver is gone.
    ReceiverGone,
    /// It failed, or (`None`) the credential changed or the watch came to its regular end.
    Over(Option<NodeTrouble>),
}

/// One list, and watches that go on from it.
async fn session(cluster: &Cluster, teller: &mut Teller, proven_after: Duration) -> Ended {
    let connection = match cluster.connection().await {
        Ok(connection) => connection,
        Err(trouble) => return Ended::Over(Some(trouble)),
    };
    let ended = tokio::select! {
        ended = list_and_watch(cluster, &connection, teller, proven_after) => ended,
        () = cluster.outdated(&connection) => Ended::Over(None),
    };
    cluster.keep_watched(None);
    ended
}

async fn list_and_watch(
    cluster: &Cluster,
    connection: &Connection,
    teller: &mut Teller,
    proven_after: Duration,
) -> Ended {
    let failed = |error: kube::Error| Ended::Over(Some(cluster.explain(&error)));
    let name = match cluster.node_name().await {
        Ok(name) => name,
        Err(trouble) => return Ended::Over(Some(trouble)),
    };
    let api: Api<Node> = Api::all(connection.client.clone());
    let selector = format!("metadata.name={name}");

    let list = match cluster.bounded(api.list(&ListParams::default().fields(&selector))).await {
        Ok(list) => list,
        Err(error) => return failed(error),
    };
    let told = match list.items.into_iter().next() {
        Some(node) => see(cluster, teller, node).await,
        None => teller.trouble(missing(&name)).await,
    };
    if told.is_break() {
        return Ended::ReceiverGone;
    }

    let mut since = list.metadata.resource_version.unwrap_or_default();
    for _ in 0..=RESUMED_MAX {
        let began = Instant::now();
        let watch = watch_from(cluster, connection, &name, &mut since, teller);
        if let ControlFlow::Break(ended) = watch.await {
            return ended;
        }
        if began.elapsed() < proven_after {
            break;
        }
    }
    Ended::Over(None)
}

/// One watch, to its regular end. `since` follows what it shows.
async fn watch_from(
    cluster: &Cluster,
    connection: &Connection,
    name: &str,
    since: &mut String,
    teller: &mut Teller,
) -> ControlFlow<Ended> {
    let failed =
        |error: kube::Error| ControlFlow::Break(Ended::Over(Some(cluster.explain(&error))));
    let api: Api<Node> = Api::all(connection.client.clone());
    // Bookmarks would come once a minute, and wake the agent for nothing: a kubelet writes its Node often
    // enough for the version to stay young.
    let params = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS)
        .disable_bookmarks();
    let stream = match cluster.bounded(api.watch(&params, since)).await {
        Ok(stream) => stream,
        Err(error) => return failed(error),
    };
    let mut stream = stream.into_stream().boxed();
    let silence = Duration::from_secs(u64::from(WATCH_SECONDS)) + WATCH_GRACE;
    loop {
        let told = match tokio::time::timeout(silence, stream.next()).await {
            Ok(Some(Ok(WatchEvent::Added(node) | WatchEvent::Modified(node)))) => {
                follow(since, &node);
                see(cluster, teller, node).await
            }
            Ok(Some(Ok(WatchEvent::Deleted(node)))) => {
                follow(since, &node);
                cluster.keep_watched(None);
                teller.trouble(missing(name)).await
            }
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => ControlFlow::Continue(()),
            Ok(Some(Ok(WatchEvent::Error(status)))) => return failed(kube::Error::Api(status)),
            Ok(Some(Err(error))) => return failed(error),
            Ok(None) => return ControlFlow::Continue(()),
            // Silent beyond its end: the connection is dead.
            Err(_) => return ControlFlow::Break(Ended::Over(None)),
        };
        if told.is_break() {
            return ControlFlow::Break(Ended::ReceiverGone);
        }
    }
}

fn follow(since: &mut String, node: &Node) {
    if let Some(version) = &node.metadata.resource_version {
        since.clone_from(version);
    }
}

/// Keeps the Node for those who would read it, and tells what is new.
async fn see(cluster: &Cluster, teller: &mut Teller, node: Node) -> ControlFlow<()> {
    let view = view(&node);
    cluster.keep_watched(Some(node));
    teller.node(view).await
}

fn missing(name: &str) -> NodeTrouble {
    NodeTrouble::Missing(format!("there is no Node {name:?} in the cluster"))
}

/// Sends what changed, and remembers it.
struct Teller {
    events: Sender<Event>,
    told: Option<Result<NodeView, NodeTrouble>>,
}

impl Teller {
    async fn node(&mut self, view: NodeView) -> ControlFlow<()> {
        if self.told.as_ref() == Some(&Ok(view.clone())) {
            return ControlFlow::Continue(());
        }
        if let Some(Err(trouble)) = &self.told {
            tracing::info!(trouble = trouble.kind(), "the own Node is seen again");
        }
        self.send(Ok(view)).await
    }

    async fn trouble(&mut self, trouble: NodeTrouble) -> ControlFlow<()> {
        if let Some(Err(told)) = &self.told
            && told.is_like(&trouble)
        {
            return ControlFlow::Continue(());
        }
        let (kind, error) = (trouble.kind(), trouble.text());
        tracing::warn!(trouble = kind, error, "the own Node is not seen: {error}");
        self.send(Err(trouble)).await
    }

    async fn send(&mut self, seen: Result<NodeView, NodeTrouble>) -> ControlFlow<()> {
        self.told = Some(seen.clone());
        let event = match seen {
            Ok(view) => Event::Node(view),
            Err(trouble) => Event::NodeTrouble(trouble),
        };
        match self.events.send(event).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests;
