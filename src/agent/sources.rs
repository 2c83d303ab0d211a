//! The sources of events, each a task that never ends by itself.

use tokio::task::{JoinError, JoinSet};

use crate::admin::{self, AdminSettings};
use crate::signals::{clock, hold_file, logind, node, rpm_ostree};

use super::{Agent, Channels, rights};

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
        let (cluster, snapshots) = (agent.hands.cluster.clone(), agent.snapshots.clone());
        tasks.spawn(async move {
            rights::watch(cluster, snapshots).await;
            "rights"
        });
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
