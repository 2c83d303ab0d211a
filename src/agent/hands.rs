//! Does what the heart asks for, and says how it went.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, host_name};
use crate::config::Settings;
use crate::effects::slot::{Asker, SlotClient};
use crate::effects::{boot, cordon, evict, health, host, reboot};
use crate::lifecycle::{DrainEnd, Effect, Event};
use crate::model::{AttemptId, BootId};
use crate::signals::bus::Host;

/// Everything that effects are done with. Made anew when the configuration changes.
#[derive(Debug, Clone)]
pub(super) struct Hands {
    pub(super) settings: Arc<Settings>,
    pub(super) host: Host,
    pub(super) cluster: Cluster,
    pub(super) slot: SlotClient,
    pub(super) boot: BootId,
    /// The attempt that a release names.
    pub(super) releases_for: Option<AttemptId>,
}

impl Hands {
    /// Does one effect and returns its outcome.
    pub(super) async fn perform(
        self,
        effect: Effect,
        progress: mpsc::Sender<Event>,
        stop: CancellationToken,
    ) -> Event {
        let (host, cluster, settings) = (&self.host, &self.cluster, &*self.settings);
        match effect {
            Effect::Inspect => {
                let server = self.slot.server();
                let mut view = host::inspect(host, &settings.reboot, server.as_deref()).await;
                view.config_wrong = config_wrong(host.root.clone()).await;
                Event::Inspected(view)
            }
            Effect::ReadBoot => Event::BootRead(boot::evidence(host).await),
            Effect::ReadNode => Event::NodeRead(cordon::read(cluster).await),
            Effect::Rehearse => Event::Rehearsed(evict::rehearse(cluster, &settings.drain).await),
            Effect::RequestSlot { attempt } => {
                let node = self.name().await;
                let asker = self.asker(Some(&attempt), node.as_deref());
                Event::SlotAnswered(self.slot.request_as(asker).await)
            }
            Effect::ReleaseSlot => {
                let node = self.name().await;
                let asker = self.asker(self.releases_for.as_ref(), node.as_deref());
                Event::SlotReleased(self.slot.release_as(asker).await)
            }
            Effect::Cordon { attempt, uid } => {
                Event::Cordoned(cordon::cordon(cluster, &attempt, &uid).await)
            }
            Effect::Drain { attempt: _, within, delete } => {
                let drain = &settings.drain;
                Event::DrainEnded(
                    evict::drain(cluster, drain, within, delete, progress, stop).await,
                )
            }
            // A drain that runs is stopped by its token and never comes here.
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { uid, pods_may_stay } => {
                Event::Verified(evict::verify(cluster, &settings.drain, &uid, pods_may_stay).await)
            }
            Effect::Reboot { attempt, target } => {
                let message = format!("lockkeeper reboots this node into {target} ({attempt})");
                Event::RebootAnswered(reboot::reboot(host, &target, &attempt, &message).await)
            }
            Effect::UndoReboot { target } => Event::RebootUndone(reboot::undo(host, &target).await),
            Effect::CheckHealth => {
                Event::HealthChecked(health::check(host, &settings.health).await)
            }
            Effect::Uncordon => Event::Uncordoned(cordon::uncordon(cluster).await),
            Effect::RestoreCordon => Event::CordonRestored(cordon::restore(cluster).await),
        }
    }

    /// What people call this node: the Node's name if it is known, else the host's.
    async fn name(&self) -> Option<String> {
        self.cluster.known_name().await.or_else(host_name)
    }

    fn asker<'a>(&'a self, attempt: Option<&'a AttemptId>, node: Option<&'a str>) -> Asker<'a> {
        Asker { attempt, boot: Some(&self.boot), node }
    }
}

/// What is wrong with the configuration on disk: the next process of this agent would begin with it.
async fn config_wrong(root: PathBuf) -> Option<String> {
    let loaded = tokio::task::spawn_blocking(move || crate::config::load(&root)).await;
    match loaded {
        Ok(Ok(_)) => None,
        Ok(Err(errors)) => Some(errors.brief()),
        Err(error) => Some(error.to_string()),
    }
}
