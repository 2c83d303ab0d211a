//! Settings: the configuration once it has been understood. Their types cannot say a wrong thing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::lifecycle::Policy;
use crate::model::Source;

use super::rules::without_secret;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the agent keeps its things.
    pub agent: AgentSettings,
    /// What the heart looks at.
    pub policy: Policy,
    /// The own Node.
    pub node: NodeSettings,
    /// Who says that a reboot is due.
    pub updates: UpdateSettings,
    /// Who hands out the slot; `None`: not configured.
    pub slot: Option<SlotBackend>,
    /// How pods are drained.
    pub drain: DrainSettings,
    /// How the host is rebooted.
    pub reboot: RebootSettings,
    /// What well means.
    pub health: HealthSettings,
    /// Where metrics are served.
    pub metrics: MetricsSettings,
    /// Where Zincati on this host asks the agent; `None`: it does not.
    pub zincati: Option<ZincatiSettings>,
    /// The coordinator's own part; used by `lockkeeper coordinator` only.
    pub coordinator: CoordinatorSettings,
}

/// Where the agent keeps its things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Folder of the record (`/var/lib/lockkeeper`).
    pub state_dir: PathBuf,
    /// Folder of sockets and of the lock that keeps a second agent away (`/run/lockkeeper`).
    pub run_dir: PathBuf,
    /// A file whose presence holds the node; its text is the reason (`/etc/lockkeeper/hold`).
    pub hold_file: PathBuf,
}

/// Which identity speaks to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A kubeconfig: the first of these that exists. The kubelet's own ones by default.
    Kubeconfig(Vec<PathBuf>),
    /// The service account of the pod.
    InCluster,
}

/// The own Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Identity towards the API server.
    pub credentials: Credentials,
    /// Name of the Node; by default the one in the certificate (`system:node:NAME`), else
    /// `$NODE_NAME`, else the host's name.
    pub name: Option<String>,
}

/// Who says that a reboot is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateSettings {
    /// These; `None`: those that are found on the host.
    pub sources: Option<BTreeSet<Source>>,
}

/// Who hands out the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum SlotBackend {
    /// A FleetLock server.
    FleetLock(SlotServer),
    /// Nobody: a single machine.
    None,
}

/// A FleetLock server. Its `Debug` leaves out what may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotServer {
    /// `http` or `https`; the path is kept, with or without a slash at its end.
    pub base_url: String,
    /// Group to ask for, `[A-Za-z0-9.-]+`.
    pub group: String,
    /// Id to ask with; `None`: Zincati's app-specific machine id.
    pub id: Option<String>,
    /// CA bundle (PEM) that the server is checked against, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and key (PEM).
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Headers for a proxy in front of it, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// HTTP proxy.
    pub proxy: Option<String>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long an answer may take: a server may hold its request.
    pub answer_timeout: Duration,
}

/// What happens to pods that no controller would create again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmanagedPods {
    /// Left alone: the shutdown stops them, and they start again with the node.
    Leave,
    /// Evicted, and thereby deleted for good.
    Evict,
    /// No drain while there is one.
    Refuse,
}

/// What happens to pods with an emptyDir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyDir {
    /// Evicted like others.
    Evict,
    /// No drain while there is one.
    Refuse,
}

/// How pods are drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// Evictions asked at the same time; pods that wait hold none of them.
    pub parallel: usize,
    /// Pods without controller.
    pub unmanaged_pods: UnmanagedPods,
    /// Pods with emptyDir.
    pub empty_dir: EmptyDir,
    /// Grace period in seconds for every pod, at least 1; `None`: each pod's own.
    pub grace_period: Option<u32>,
    /// How long to wait for volumes to be detached once the pods have gone; zero: not at all.
    pub volume_detach_timeout: Duration,
    /// How long to wait before an eviction that a budget refused is asked again, before jitter.
    pub budget_retry: Duration,
}

/// How the host is rebooted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebootSettings {
    /// Folder that must have room (`/boot`).
    pub boot_dir: PathBuf,
}

/// What well means, beside the Node's readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthSettings {
    /// systemd units that must be active.
    pub units: Vec<String>,
    /// Folder of executables that must succeed (`/etc/lockkeeper/health.d`).
    pub checks_dir: PathBuf,
    /// How long one of them may take.
    pub check_timeout: Duration,
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricsSettings {
    /// TCP address beside the unix socket; `None`: not at all.
    pub listen: Option<SocketAddr>,
}

/// The bridge to Zincati: the agent as the FleetLock server of the Zincati on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZincatiSettings {
    /// Where it listens; a loopback address.
    pub listen: SocketAddr,
    /// How long a call is held open before it is told what is waited for: 10 s to 28 min, since
    /// Zincati gives up after 30 min.
    pub hold: Duration,
}

/// The coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Folder of its store (`/var/lib/lockkeeper/coordinator`).
    pub state_dir: PathBuf,
    /// Folder of its admin socket (`/run/lockkeeper`).
    pub run_dir: PathBuf,
    /// Groups and their slots; never empty.
    pub groups: Vec<GroupSettings>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// Its name, `[A-Za-z0-9.-]+`.
    pub name: String,
    /// How many may be down at once, at least 1.
    pub slots: u32,
}

// === impl SlotServer ===

impl SlotServer {
    /// Server, group and id in one text, without a secret: the URL has none.
    pub(crate) fn place(&self) -> String {
        let id = self.id.as_deref().map(|id| format!(" as {id}")).unwrap_or_default();
        format!("{} (group {}){id}", self.base_url.trim_end_matches('/'), self.group)
    }
}

impl fmt::Debug for SlotServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotServer")
            .field("base_url", &self.base_url)
            .field("group", &self.group)
            .field("id", &self.id)
            .field("ca_file", &self.ca_file)
            .field("client_certificate", &self.client_certificate)
            .field("headers", &self.headers.keys())
            .field("proxy", &self.proxy.as_deref().map(without_secret))
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .finish()
    }
}
