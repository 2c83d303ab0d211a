//! What the Node shows of the cycle: an annotation, conditions and Events. Best effort: nothing
//! waits for it, and an idle node writes nothing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event as NodeEvent;
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::cluster::{Cluster, Retry};
use crate::lifecycle::{NodeTrouble, Stage, Transition, Waiting};
use crate::model::{AttemptId, NodeUid, Target};
use crate::signals::clock;

use super::cordon::FIELD_MANAGER;
use words::{condition_patch, event, fulfilled_patch, news_patch, state_patch};

mod words;

pub use words::STATE;

/// Events that wait for the API server. An attempt has a dozen; more than some attempts' worth of
/// old news is worth nothing.
const EVENTS_WAITING: usize = 64;
/// An Event that could not be written by then is dropped: its news is in the journal.
const EVENT_AGE: Duration = Duration::from_secs(15 * 60);
/// Rest between two writes of the state: stages that pass within it are not worth one each.
const BETWEEN_WRITES: Duration = Duration::from_millis(500);

/// Where the cycle is, for those who look at the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Where in the cycle.
    pub stage: Stage,
    /// What it waits for.
    pub waiting: Waiting,
    /// The attempt.
    pub attempt: Option<AttemptId>,
    /// Its target.
    pub target: Option<Target>,
    /// Since when it waits for this.
    pub since: Option<Timestamp>,
    /// The request for a reboot (annotation [`crate::signals::node::REBOOT`]) that a boot has fulfilled: it is taken away.
    pub fulfilled: Option<String>,
}

/// The door to the tasks that write. They end when it is dropped.
#[derive(Debug)]
pub struct Announcer {
    state: watch::Sender<Option<Announcement>>,
    events: mpsc::Sender<News>,
}

/// A change of stage that an Event is to tell.
#[derive(Debug)]
struct News {
    transition: Transition,
    at: Timestamp,
    /// The Node's, as far as it is known.
    uid: Option<NodeUid>,
}

// === impl Announcer ===

impl Announcer {
    /// Starts the tasks that write; must be called within the runtime.
    pub fn new(cluster: Cluster) -> Self {
        let (state, states) = watch::channel(None);
        let (events, waiting) = mpsc::channel(EVENTS_WAITING);
        tokio::spawn(publish_states(cluster.clone(), states));
        tokio::spawn(publish_events(cluster, waiting));
        Self { state, events }
    }

    /// Has the Node show this. The latest wins; one that changes nothing is not written.
    pub fn publish(&self, announcement: &Announcement) {
        self.state.send_if_modified(|shown| {
            if shown.as_ref() == Some(announcement) {
                return false;
            }
            *shown = Some(announcement.clone());
            true
        });
    }

    /// Writes an Event about a change of stage that happened at `at`. The Node is read for its `uid`
    /// only where that is not known.
    pub fn tell(&self, transition: &Transition, at: Timestamp, uid: Option<NodeUid>) {
        let news = News { transition: transition.clone(), at, uid };
        if self.events.try_send(news).is_err() {
            tracing::warn!(
                to = transition.to.name(),
                "an Event was dropped: too many wait for the API server"
            );
        }
    }
}

async fn publish_states(cluster: Cluster, mut states: watch::Receiver<Option<Announcement>>) {
    let mut retry = Retry::new();
    let mut told = Told::default();
    let mut shown = None;
    while states.changed().await.is_ok() {
        loop {
            let Some(announcement) = states.borrow_and_update().clone() else { break };
            let trouble = match show(&cluster, &announcement, shown.as_ref()).await {
                Ok(()) => {
                    shown = Some(announcement);
                    retry.succeeded();
                    told.over();
                    break;
                }
                Err(trouble) => trouble,
            };
            told.trouble(&trouble, "the Node does not show the state");
            if !passing(&trouble) {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(retry.failed()) => {}
                () = cluster.changed() => {}
                changed = states.changed() => if changed.is_err() { return },
            }
        }
        tokio::time::sleep(BETWEEN_WRITES).await;
    }
}

/// The trouble that was told last, so that one that stays is told once.
#[derive(Debug, Default)]
struct Told(Option<&'static str>);

impl Told {
    fn trouble(&mut self, trouble: &NodeTrouble, what: &'static str) {
        if self.0.replace(trouble.kind()) != Some(trouble.kind()) {
            let (kind, error) = (trouble.kind(), trouble.text());
            tracing::warn!(trouble = kind, error, "{what}: {error}");
        }
    }

    fn over(&mut self) {
        self.0 = None;
    }
}

/// Whether the same write may succeed later without anything else changing.
fn passing(trouble: &NodeTrouble) -> bool {
    match trouble {
        NodeTrouble::NoCredential(_) | NodeTrouble::Refused(_) | NodeTrouble::Unreachable(_) => {
            true
        }
        NodeTrouble::Forbidden(_) | NodeTrouble::Missing(_) => false,
    }
}

/// Brings the Node to what it is to show, and writes only what differs. What is news since `shown`,
/// the last that was written, is written unread: the answer is the Node as it is, conditions included.
async fn show(
    cluster: &Cluster,
    announcement: &Announcement,
    shown: Option<&Announcement>,
) -> Result<(), NodeTrouble> {
    let api: Api<Node> = Api::all(cluster.client().await?);
    let name = cluster.node_name().await?;
    let trouble = |error: kube::Error| cluster.explain(&error);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..Default::default() };
    let write = async |patch| {
        let patch = Patch::Merge(patch);
        cluster.bounded(api.patch(&name, &params, &patch)).await.map_err(trouble)
    };
    if let Some(text) = &announcement.fulfilled {
        let node = cluster.bounded(api.get(&name)).await.map_err(trouble)?;
        if let Some(patch) = fulfilled_patch(&node, text) {
            write(patch).await?;
        }
    }
    let node = if let Some(patch) = shown.and_then(|shown| news_patch(shown, announcement)) {
        write(patch).await?
    } else {
        // `nodes`, since a kubelet's identity may not read `nodes/status`.
        let node = cluster.bounded(api.get(&name)).await.map_err(trouble)?;
        match state_patch(&node, announcement) {
            Some(patch) => write(patch).await?,
            None => node,
        }
    };
    if let Some(patch) = condition_patch(&node, announcement, clock::now().wall) {
        let patch = Patch::Strategic(patch);
        cluster.bounded(api.patch_status(&name, &params, &patch)).await.map_err(trouble)?;
    }
    Ok(())
}

async fn publish_events(cluster: Cluster, mut waiting: mpsc::Receiver<News>) {
    let mut told = Told::default();
    while let Some(news) = waiting.recv().await {
        let give_up = Instant::now() + EVENT_AGE;
        let mut retry = Retry::new();
        loop {
            let trouble = match write_event(&cluster, &news).await {
                Ok(()) => {
                    told.over();
                    break;
                }
                Err(trouble) => trouble,
            };
            told.trouble(&trouble, "an Event cannot be written");
            if !passing(&trouble) || Instant::now() >= give_up || waiting.is_closed() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(retry.failed()) => {}
                () = cluster.changed() => {}
            }
        }
    }
}

async fn write_event(cluster: &Cluster, news: &News) -> Result<(), NodeTrouble> {
    let client = cluster.client().await?;
    let name = cluster.node_name().await?;
    // `kubectl describe node` finds Events by the UID.
    let uid = match &news.uid {
        Some(uid) => Some(uid.0.clone()),
        None => {
            let nodes: Api<Node> = Api::all(client.clone());
            let node = cluster.bounded(nodes.get(&name)).await;
            node.map_err(|error| cluster.explain(&error))?.metadata.uid
        }
    };
    // Events about objects without a namespace belong into `default`.
    let events: Api<NodeEvent> = Api::namespaced(client, "default");
    let event = event(&name, uid, &news.transition, news.at);
    match cluster.bounded(events.create(&PostParams::default(), &event)).await {
        Ok(_) => Ok(()),
        // Its name is made of its content: an earlier try had arrived.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(cluster.explain(&error)),
    }
}

#[cfg(test)]
mod tests;
