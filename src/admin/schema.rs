//! The schema of what the socket tells. Within one schema number keys are only added, never renamed
//! or removed.
//!
//! The heart's own types are not serialised here, so that they can change without anyone's script
//! noticing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of this schema.
pub const SCHEMA: u32 = 1;

/// Everything that `lockkeeper status` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the agent.
    pub version: String,
    /// Name of the own Node; absent on a host without Kubernetes and before it is known.
    pub node: Option<String>,
    /// When this was true.
    pub at: Timestamp,
    /// Where in the cycle.
    pub state: String,
    /// Why nothing more is done.
    pub reason: ReasonStatus,
    /// What comes next if all goes well.
    pub next: String,
    /// When the agent looks again by itself; absent: only when something happens.
    pub wake: Option<WakeStatus>,
    /// The attempt under way.
    pub attempt: Option<AttemptStatus>,
    /// The system that the next boot is to bring.
    pub target: Option<TargetStatus>,
    /// Since when that has waited.
    pub target_since: Option<Timestamp>,
    /// The system that runs.
    pub booted: Option<SystemStatus>,
    /// The slot.
    pub slot: SlotStatus,
    /// The cordon: `none`, `foreign` or `ours`.
    pub cordon: String,
    /// The drain, while there is one.
    pub drain: Option<DrainStatus>,
    /// The last rehearsal of the drain.
    pub rehearsal: Option<RehearsalStatus>,
    /// What the gates on the host looked like last.
    pub gates: Option<GatesStatus>,
    /// Holds of persons.
    pub holds: Vec<HoldStatus>,
    /// Targets that are not tried again.
    pub denied: Vec<DeniedStatus>,
    /// Reboots into targets that have not brought them.
    pub tries: Vec<TriesStatus>,
    /// No new request before this time.
    pub backoff_until: Option<Timestamp>,
    /// Why the record cannot be written, while it cannot.
    pub record_unwritable: Option<String>,
    /// Why the configuration on disk is not the one in use, since a reload that failed.
    pub config_trouble: Option<String>,
    /// The last attempt that ended.
    pub last: Option<FinishedStatus>,
}

/// Why nothing more is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonStatus {
    /// The bounded word, the same in journal, metrics and on the Node.
    pub code: String,
    /// The sentence.
    pub text: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it ends, where that is known.
    pub until: Option<Timestamp>,
}

/// When the agent looks again by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeStatus {
    /// Counted from `at`.
    pub in_seconds: u64,
    /// What for.
    pub reason: String,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
}

/// A system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
}

/// The attempt under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// Its id.
    pub id: String,
    /// What it is to bring.
    pub target: TargetStatus,
    /// What else asks for its reboot.
    #[serde(default)]
    pub also: Vec<TargetStatus>,
    /// Its stages so far, oldest first.
    pub stages: Vec<StageStatus>,
    /// How it will end, once its way back has begun.
    pub ending: Option<String>,
}

/// When a stage began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Its name.
    pub stage: String,
    /// When it began.
    pub since: Timestamp,
}

/// The slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// `none`, `asked` or `held`.
    pub state: String,
    /// Since when it is held.
    pub since: Option<Timestamp>,
    /// Who hands it out.
    pub server: Option<String>,
    /// In which group.
    #[serde(default)]
    pub group: Option<String>,
    /// As whom this node asks; not known while the machine id cannot be read.
    #[serde(default)]
    pub id: Option<String>,
    /// The last answer that was no grant.
    pub answer: Option<AnswerStatus>,
}

/// An answer of the slot server that was no grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerStatus {
    /// `denied`, `pending` or `failed`.
    pub answer: String,
    /// The bounded word.
    pub kind: Option<String>,
    /// The sentence.
    pub text: String,
}

/// A drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Pods that it has to move.
    pub total: usize,
    /// Pods that have gone.
    pub gone: usize,
    /// What stands in the way.
    pub obstacles: Vec<ObstacleStatus>,
    /// Volumes that are still attached.
    pub volumes: Vec<String>,
}

/// A pod that does not leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObstacleStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// `budget`, `several-budgets`, `refused`, `forbidden`, `terminating`, `completing`, `present` or
    /// `api`.
    pub kind: String,
    /// Name of the disruption budget, where the server gave one.
    pub budget: Option<String>,
    /// The sentence.
    pub text: String,
}

/// A rehearsal of the drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalStatus {
    /// `passes`, `blocked` or `failed`.
    pub result: String,
    /// How long ago, from `at`.
    pub seconds_ago: u64,
    /// What would stand in the way.
    pub obstacles: Vec<ObstacleStatus>,
    /// Why it could not be held.
    pub error: Option<String>,
}

/// The gates on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatesStatus {
    /// How long ago they were looked at, from `at`.
    pub seconds_ago: u64,
    /// Programs that block the shutdown: `who (why)`.
    pub inhibitors: Vec<String>,
    /// Users with a session.
    pub users: Vec<String>,
    /// Free space on /boot, bytes.
    pub boot_free: Option<u64>,
    /// `ostree-finalize-staged.service` is active.
    pub finalize_unit_active: bool,
    /// The legacy lock file lies there.
    pub legacy_lock: bool,
    /// The clock is synchronised.
    pub clock_synchronised: bool,
    /// Slot server of another client on this host.
    pub other_lock_client: Option<String>,
    /// What could not be read.
    pub unreadable: Vec<String>,
}

/// A hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldStatus {
    /// `command`, `file` or `annotation`.
    pub origin: String,
    /// Why.
    pub reason: String,
    /// Who, where it is known.
    pub by: Option<String>,
    /// Since when, where it is known.
    pub since: Option<Timestamp>,
}

/// A denied target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedStatus {
    /// What it is compared by.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub because: String,
}

/// Reboots into one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriesStatus {
    /// What it is compared by.
    pub identity: String,
    /// How many.
    pub count: u32,
}

/// An attempt that has ended, or the one under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedStatus {
    /// Its id.
    pub attempt: String,
    /// Its target.
    pub target: TargetStatus,
    /// How it ended. Of one under way: how it will end, or `under way` while that is open.
    pub outcome: String,
    /// More about it.
    pub detail: Option<String>,
    /// Its stages, oldest first.
    pub stages: Vec<StageStatus>,
    /// When it ended; absent while it runs.
    pub ended: Option<Timestamp>,
    /// It is under way.
    #[serde(default)]
    pub running: bool,
}

/// All attempts that are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Oldest first; the one under way last.
    pub attempts: Vec<FinishedStatus>,
}

// === impl TargetStatus, SystemStatus ===

impl TargetStatus {
    /// The version, else the identity.
    pub fn name(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.identity)
    }
}

impl SystemStatus {
    /// The version, else the identity.
    pub fn name(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.identity)
    }
}
