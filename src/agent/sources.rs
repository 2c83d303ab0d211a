//! The sources of events, each a task that never ends by itself.

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::admin::{self, AdminSettings, Snapshot};
use crate::cluster::{Cluster, Retry, self_check};
use crate::signals::{clock, hold_file, logind, node, rpm_ostree};

use super::{Agent, Channels};

/// All tasks that feed the loop.
#[derive(Debug)]
pub(super) struct Sources(JoinSet<&'static str>);

impl Sources {
    /// Waits for the first that ends, which none should.
    pub(super) async fn join_next(&mut self) -> Option<Result<&'static str, JoinError>> {
        self.0.join_next().await
    }

    pub(super) fn abort_all(&mut self) {
        self.0.abort_all();
    }
}

pub(super) fn spawn(agent: &Agent, channels: &Channels) -> Sources {
    let mut tasks = JoinSet::new();
    let events = || agent.events_in.clone();
    let (host, settings) = (agent.hands.host.clone(), agent.hands.settings.clone());

    let (options, to) = (rpm_ostree::Options::new(host.clone()), events());
    tasks.spawn(async move {
        rpm_ostree::watch(options, to).await;
        "rpm-ostree"
    });
    let (bus, to) = (host.bus, events());
    tasks.spawn(async move {
        logind::watch(bus, to).await;
        "logind"
    });
    let to = events();
    tasks.spawn(async move {
        clock::watch(to).await;
        "clock"
    });
    let (file, to) = (settings.agent.hold_file.clone(), events());
    tasks.spawn(async move {
        hold_file::watch(file, to).await;
        "hold file"
    });
    if agent.state.is_node(&agent.policy) {
        let (cluster, to) = (agent.hands.cluster.clone(), events());
        tasks.spawn(async move {
            node::watch(cluster, to).await;
            "node"
        });
        let cluster = agent.hands.cluster.clone();
        let snapshots = agent.snapshots.clone();
        tokio::spawn(async move { introduce(&cluster, &snapshots).await });
    }
    let admin = AdminSettings {
        run_dir: settings.agent.run_dir.clone(),
        metrics_listen: settings.metrics.listen,
    };
    let (snapshots, orders) = (agent.snapshots.subscribe(), channels.orders_in.clone());
    let metrics = agent.metrics.clone();
    tasks.spawn(async move {
        if let Err(error) = admin::serve(snapshots, orders, metrics, admin).await {
            tracing::error!(%error, "the status socket cannot be served");
        }
        "status socket"
    });
    Sources(tasks)
}

/// Finds out the Node's name, and says once, in one line, what the identity of the agent may not do.
async fn introduce(cluster: &Cluster, snapshots: &watch::Sender<Snapshot>) {
    let mut retry = Retry::new();
    // Why there is none yet is told by the watch of the Node.
    let name = loop {
        match cluster.node_name().await {
            Ok(name) => break name,
            Err(_) => tokio::select! {
                () = tokio::time::sleep(retry.failed()) => {}
                () = cluster.changed() => {}
            },
        }
    };
    snapshots.send_if_modified(|snapshot| {
        snapshot.node_name = Some(name.clone());
        true
    });
    let missing = self_check(cluster).await;
    if missing.is_empty() {
        tracing::info!(node = name, "the credential may do all that the agent needs");
    } else {
        tracing::warn!(node = name, missing = missing.join("; "), "rights are missing");
    }
}
