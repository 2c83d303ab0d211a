//! Waiting until volumes have been detached, so that their pods can start elsewhere at once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;

use super::request::bounded;
use crate::cluster::Cluster;
use crate::drain::Claim;
use crate::fleetlock::clean_value;
use crate::lifecycle::NodeTrouble;

/// Rest after a failure; the whole wait is bounded by its caller.
const REST: Duration = Duration::from_secs(1);

/// Comes back once the own Node has no volume attached or in use but those of the claims that
/// stay, and tells which ones hang on until then. A claim that cannot be resolved to its volume
/// (one that is not CSI's, or not readable) is waited for like the others.
pub(super) async fn detached(
    cluster: Cluster,
    staying: Vec<Claim>,
    tell: watch::Sender<Vec<String>>,
) {
    loop {
        match session(&cluster, &staying, &tell).await {
            Ok(()) => return,
            Err(trouble) => {
                tracing::debug!(trouble = trouble.text(), "volumes cannot be seen");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn session(
    cluster: &Cluster,
    staying: &[Claim],
    tell: &watch::Sender<Vec<String>>,
) -> Result<(), NodeTrouble> {
    // Mostly there is nothing to wait for. A watch that shows the cordon is no older than that.
    let is_cordoned =
        |node: &Node| node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true));
    if cluster.watched().is_some_and(|node| is_cordoned(&node) && held(&node).is_empty()) {
        return Ok(());
    }
    let client = cluster.client().await?;
    let name = cluster.node_name().await?;
    let api: Api<Node> = Api::all(client.clone());
    let node = bounded(cluster, api.get(&name)).await?;
    if held(&node).is_empty() {
        return Ok(());
    }
    let mut stay = BTreeSet::new();
    for claim in staying {
        stay.extend(volume_of(cluster, &client, claim).await);
    }
    let left = |node: &Node| -> Vec<String> { held(node).difference(&stay).cloned().collect() };
    let now = left(&node);
    if now.is_empty() {
        return Ok(());
    }
    tell.send_replace(now);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut nodes = pin!(watcher(api, config).applied_objects());
    while let Some(node) = nodes.next().await {
        let node = match node {
            Ok(node) => node,
            Err(error) => return Err(NodeTrouble::Unreachable(error.to_string())),
        };
        let now = left(&node);
        if now.is_empty() {
            return Ok(());
        }
        tell.send_replace(now);
    }
    Err(NodeTrouble::Unreachable("the watch of the Node ended".to_owned()))
}

/// Volumes that the kubelet uses or the cluster has attached.
fn held(node: &Node) -> BTreeSet<String> {
    let Some(status) = &node.status else { return BTreeSet::new() };
    let attached = status.volumes_attached.iter().flatten().map(|volume| &volume.name);
    status.volumes_in_use.iter().flatten().chain(attached).map(|name| clean_value(name)).collect()
}

/// The name by which the Node lists the volume of a claim.
async fn volume_of(cluster: &Cluster, client: &kube::Client, claim: &Claim) -> Option<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace);
    let volume = bounded(cluster, claims.get(&claim.name)).await.ok()?.spec?.volume_name?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let csi = bounded(cluster, volumes.get(&volume)).await.ok()?.spec?.csi?;
    Some(clean_value(&format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle)))
}
