//! What must be there before the first event.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use tokio::sync::{mpsc, watch};

use crate::admin::{AgentLock, Metrics, Notifier, Snapshot};
use crate::cluster::Cluster;
use crate::config::Settings;
use crate::effects::announce::Announcer;
use crate::effects::boot;
use crate::effects::slot::{SlotClient, SlotError};
use crate::effects::store::{Loaded, Store};
use crate::effects::update_coordinator::UpdateCoordinator;
use crate::lifecycle::{self, ConfigWrong, Policy, Record, SlotPolicy, Start, Step};
use crate::model::{BootId, Source};
use crate::signals::bus::{Bus, Host};
use crate::signals::clock;
use crate::signals::zincati::Desk;

use super::hands::Hands;
use super::lanes::Lanes;
use super::{Agent, Channels, EVENTS_WAITING};

/// Ready to take the first event.
pub(super) struct Ready {
    pub(super) agent: Agent,
    pub(super) first: Step,
    pub(super) channels: Channels,
    /// Keeps a second agent away while it lives.
    pub(super) _lock: AgentLock,
}

impl Hands {
    pub(super) fn new(settings: Settings, host: Host, boot: BootId) -> Result<Self, SlotError> {
        let slot = SlotClient::new(settings.slot.as_ref())?;
        let cluster = Cluster::new(&settings.node);
        let sources = super::sources::chosen(&settings.updates, &host.root);
        let settings = Arc::new(settings);
        let coordinator = sources.contains(&Source::UpdateEngine).then(|| {
            let coordinator = UpdateCoordinator::new(&host.root, "lockkeeper");
            Arc::new(Mutex::new(coordinator))
        });
        let zincati = settings.zincati.as_ref().map(|_| Desk::default());
        let releases_for = None;
        Ok(Self {
            settings,
            host,
            cluster,
            slot,
            boot,
            sources,
            coordinator,
            zincati,
            releases_for,
        })
    }

    /// The same under other settings; what was begun at the start goes on as it is.
    pub(super) fn with(&self, settings: Settings) -> Result<Self, SlotError> {
        let slot = SlotClient::new(settings.slot.as_ref())?;
        Ok(Self { settings: Arc::new(settings), slot, ..self.clone() })
    }
}

pub(super) async fn prepare(root: PathBuf) -> anyhow::Result<Ready> {
    let (loaded, wrong) = crate::config::load_in_part(&root)?;
    let settings = loaded.settings;
    let mut config_wrong = wrong.map(|wrong| ConfigWrong {
        what: wrong.errors.brief(),
        settle_unknown: wrong.settle_unknown,
    });
    let lock = AgentLock::take(&settings.agent.run_dir)?;
    let host = Host::new(Bus::System, root.clone());
    let mark = boot::mark(&host).await.context("cannot tell which boot this is")?;
    let kubelet_unit = kubelet_unit_exists(&host).await;
    let store = Store::new(&settings.agent.state_dir);
    let (record, written, set_aside) = load(&store);
    let hands = hands(settings, host, &mark.id, &mut config_wrong)?;
    let policy = hands.settings.policy.clone();
    let config_trouble = tell_config(&hands.settings, config_wrong.as_ref());
    let start = Start {
        seed: seed(&mark.id),
        boot: mark,
        kubelet_unit,
        record_set_aside: set_aside,
        config_wrong,
    };
    let now = clock::now();
    let first = lifecycle::start(&policy, record, start, now);

    let (events_in, events) = mpsc::channel(EVENTS_WAITING);
    let (orders_in, orders) = mpsc::channel(8);
    let version = env!("CARGO_PKG_VERSION");
    let snapshot = Snapshot {
        drain: (policy.drain_deadline, policy.on_deadline),
        state: first.next.clone(),
        waiting: first.waiting.clone(),
        wake: first.wake.clone(),
        at: now,
        node_name: hands.settings.node.name.clone(),
        slot: hands.slot.place(),
        config_trouble,
        version,
    };
    let is_node = first.next.is_node(&policy);
    let announcer = is_node.then(|| Announcer::new(hands.cluster.clone()));
    let agent = Agent {
        root,
        policy,
        state: first.next.clone(),
        store,
        written,
        write_failed: false,
        hands,
        lanes: Lanes::default(),
        events_in,
        snapshots: watch::channel(snapshot).0,
        metrics: Metrics::new(version),
        notifier: Notifier::new(),
        announcer,
        wake: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
        awake: false,
        last_reason: None,
        told_pods: BTreeSet::new(),
    };
    let channels = Channels { events, orders, orders_in };
    Ok(Ready { agent, first, channels, _lock: lock })
}

async fn kubelet_unit_exists(host: &Host) -> bool {
    boot::kubelet_unit_exists(host).await.unwrap_or_else(|error| {
        // Taken for a Node: the other way a broken bus would reboot a Node undrained.
        tracing::warn!(%error, "cannot tell whether there is a kubelet: taken for yes");
        true
    })
}

/// The hands. A slot server that cannot be asked, such as one whose certificates are missing, is a
/// fault of the configuration like others: the node comes home without it.
fn hands(
    settings: Settings,
    host: Host,
    boot: &BootId,
    config_wrong: &mut Option<ConfigWrong>,
) -> Result<Hands, SlotError> {
    let error = match Hands::new(settings.clone(), host.clone(), boot.clone()) {
        Ok(hands) => return Ok(hands),
        Err(error) => error,
    };
    let what = format!("{:#}", anyhow::Error::from(error));
    config_wrong.get_or_insert(ConfigWrong { what, settle_unknown: false });
    let policy = Policy { slot: SlotPolicy::Unset, slot_place: None, ..settings.policy };
    Hands::new(Settings { slot: None, policy, ..settings }, host, boot.clone())
}

/// Says what keeps this agent from ever beginning an attempt; what is wrong comes back, for the status.
fn tell_config(settings: &Settings, wrong: Option<&ConfigWrong>) -> Option<String> {
    if settings.slot.is_none() {
        tracing::info!(
            "no slot backend is configured: this agent will never reboot the node; see \
             `lockkeeper config default`"
        );
    }
    let how = "wrong, and in use only as far as it is right";
    let wrong = &wrong?.what;
    tracing::error!("the configuration is {how}: no attempt begins: {wrong}");
    Some(format!("on disk is {how}: {wrong}"))
}

/// The record, what of it is on disk, and why one was set aside.
fn load(store: &Store) -> (Record, Option<Record>, Option<String>) {
    match store.load() {
        Loaded::Fresh => (Record::default(), None, None),
        Loaded::Read(record) => ((*record).clone(), Some(*record), None),
        Loaded::SetAside { error, moved_to } => {
            let why = format!("{:#}", anyhow::Error::from(error));
            tracing::error!(
                because = why,
                moved_to = moved_to.map(|path| path.display().to_string()),
                "the record cannot be used and was set aside"
            );
            (Record::default(), None, Some(why))
        }
    }
}

/// Jitter that differs between hosts and boots, and is the same within one.
fn seed(boot: &BootId) -> u64 {
    u64::from_str_radix(&boot.as_str()[..16], 16).unwrap_or(0)
}
