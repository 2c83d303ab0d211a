//! Does what the heart asks for, and says how it went.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, host_name};
use crate::config::Settings;
use crate::effects::slot::{Asker, SlotClient};
use crate::effects::update_coordinator::{CoordinatorState, UpdateCoordinator};
use crate::effects::{boot, cordon, evict, health, host, reboot};
use crate::lifecycle::{DrainEnd, Effect, Event, HostView};
use crate::model::{AttemptId, BootId, Source};
use crate::signals::bus::Host;
use crate::signals::update_engine;
use crate::signals::zincati::{Desk, leads_to_bridge};

/// Everything that effects are done with. Made anew when the configuration changes.
#[derive(Debug, Clone)]
pub(super) struct Hands {
    pub(super) settings: Arc<Settings>,
    pub(super) host: Host,
    pub(super) cluster: Cluster,
    pub(super) slot: SlotClient,
    pub(super) boot: BootId,
    /// Who says that a reboot is due.
    pub(super) sources: BTreeSet<Source>,
    /// Where update_engine is one of them: the file by which it knows who reboots.
    pub(super) coordinator: Option<Arc<Mutex<UpdateCoordinator>>>,
    /// Where Zincati decides when: what it is told.
    pub(super) zincati: Option<Desk>,
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
                // A Zincati that asks this agent asks nobody else.
                let bridge = settings.zincati.as_ref().map(|zincati| zincati.listen);
                let server = self.slot.server().filter(|_| bridge.is_none());
                let mut view = host::inspect(host, &settings.reboot, server.as_deref()).await;
                let other = |url: &String| !bridge.is_some_and(|at| leads_to_bridge(url, at));
                view.other_lock_client = view.other_lock_client.filter(other);
                view.config_wrong = config_wrong(host.root.clone()).await;
                if let Some(coordinator) = &self.coordinator {
                    look_at_update_engine(host, coordinator, &mut view).await;
                }
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
                let message = match target.source.brings_a_system() {
                    true => format!("lockkeeper reboots this node into {target} ({attempt})"),
                    false => format!("lockkeeper reboots this node: {target} ({attempt})"),
                };
                Event::RebootAnswered(reboot::reboot(host, &target, &attempt, &message).await)
            }
            Effect::AllowZincati { attempt: _ } => Event::ZincatiAllowed(match &self.zincati {
                Some(desk) => desk.grant().await,
                None => false,
            }),
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

/// What update_engine says of its update right now, and whether locksmithd reboots this host as well.
async fn look_at_update_engine(
    host: &Host,
    coordinator: &Mutex<UpdateCoordinator>,
    view: &mut HostView,
) {
    match update_engine::status_now(host).await {
        Ok(status) if status.needs_reboot() => {}
        Ok(status) => view.update_withdrawn = Some(status.operation),
        Err(why) => view.unreadable.push(why),
    }
    let mut coordinator = coordinator.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = coordinator.say(CoordinatorState::Running) {
        view.other_rebooters.push(error.text());
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
