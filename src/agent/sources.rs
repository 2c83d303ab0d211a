//! The sources of events, each a task that never ends by itself.

use std::collections::BTreeSet;
use std::path::Path;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::admin::{self, AdminSettings};
use crate::config::UpdateSettings;
use crate::model::Source;
use crate::signals::{
    clock, found, hold_file, logind, node, rpm_ostree, system, update_engine, zincati,
};

use crate::signals::zincati::BridgeSettings;

use super::{Agent, Channels, rights};

/// Readings that may wait; each source sends few.
const HEARD_WAITING: usize = 16;

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

/// Who says that a reboot is due: as configured, else what is found.
pub(super) fn chosen(updates: &UpdateSettings, root: &Path) -> BTreeSet<Source> {
    if let Some(sources) = &updates.sources {
        return sources.clone();
    }
    let looked = found::look(root);
    let of = |source| looked.iter().find(|found| found.source == source);
    let flatcar = of(Source::UpdateEngine).filter(|found| found.is_here);
    let ostree = of(Source::RpmOstree);
    let source = match (ostree.is_some_and(|found| found.is_here), flatcar) {
        (false, Some(_)) => Source::UpdateEngine,
        // Where nothing is found, trouble with rpm-ostree is told rather than nothing at all.
        (true, _) | (false, None) => Source::RpmOstree,
    };
    let why = of(source).map(|found| found.why.as_str()).unwrap_or_default();
    tracing::info!(source = source.name(), why, "updates come from {}: {why}", source.name());
    BTreeSet::from([source])
}

/// Who says that a reboot is due, and what joins them.
fn of_updates(agent: &Agent, tasks: &mut JoinSet<&'static str>) {
    let host = agent.hands.host.clone();
    let chosen = agent.hands.sources.clone();
    let (to, heard) = mpsc::channel(HEARD_WAITING);
    for source in &chosen {
        let (host, to) = (host.clone(), to.clone());
        match source {
            Source::RpmOstree => tasks.spawn(async move {
                rpm_ostree::watch(rpm_ostree::Options::new(host), to).await;
                "rpm-ostree"
            }),
            Source::UpdateEngine => tasks.spawn(async move {
                update_engine::watch(update_engine::Options::new(host), to).await;
                "update-engine"
            }),
            Source::Bootc | Source::Sentinel | Source::Person => continue,
        };
    }
    let events = agent.events_in.clone();
    tasks.spawn(async move {
        system::join(chosen, heard, events).await;
        // Where there is no source, nobody speaks; the agent stays for what people ask.
        drop(to);
        std::future::pending::<()>().await;
        "sources of updates"
    });
}

pub(super) fn spawn(agent: &Agent, channels: &Channels) -> Sources {
    let mut tasks = JoinSet::new();
    let events = || agent.events_in.clone();
    let (host, settings) = (agent.hands.host.clone(), agent.hands.settings.clone());

    of_updates(agent, &mut tasks);
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
    if let (Some(zincati), Some(desk)) = (&settings.zincati, agent.hands.zincati.clone()) {
        let bridge = BridgeSettings::new(zincati, agent.root.clone());
        let to = events();
        tasks.spawn(async move {
            zincati::serve(bridge, desk, to).await;
            "bridge to Zincati"
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
