//! What must survive a crash, a reboot and a rollback of the agent itself.
//!
//! The fields of [`Core`] are frozen in version 1. Every other field is optional, so that an older
//! agent reads a newer record of the same version and a newer one an older.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{AttemptId, BootId, NodeUid, Target};

/// Where in the cycle the node is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// No update waits.
    #[default]
    Idle,
    /// An update waits for gates, a rehearsal or a back-off.
    Waiting,
    /// The slot is asked for.
    Requesting,
    /// The slot is held; the node is cordoned and drained.
    Draining,
    /// The reboot is asked for.
    Rebooting,
    /// After the boot: waiting until the node has proved itself well.
    Settling,
    /// Settling took longer than allowed, or a reboot can neither come nor be undone.
    Stuck,
    /// The cordon is lifted after a boot.
    Uncordoning,
    /// The cordon is lifted since the attempt is given up before its reboot.
    Yielding,
    /// The slot is given back.
    Releasing,
    /// The target fell back: the slot is kept until a person says `resume`.
    Halted,
}

/// One boot: the kernel's id and how often user space was soft-rebooted within it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootMark {
    /// Kernel boot id.
    pub id: BootId,
    /// systemd's `SoftRebootsCount`; 0 where it has none.
    #[serde(default)]
    pub soft_reboots: u32,
}

/// What this agent knows of its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Slot {
    /// Not asked for, or its release was confirmed.
    #[default]
    None,
    /// Asked for: it may be held without our knowing.
    Asked,
    /// Held.
    Held {
        /// When it was granted.
        since: Timestamp,
    },
}

/// What this agent knows of the Node's cordon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cordon {
    /// Not looked at in this attempt, or lifted.
    #[default]
    None,
    /// The Node was unschedulable before the slot was asked for: a person's, it stays.
    Foreign,
    /// Ours: asked for or made.
    Ours,
}

/// One try at one target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// What it is to bring.
    pub target: Target,
    /// The boot in which its reboot was asked for; set once, never overwritten.
    #[serde(default)]
    pub boot_before: Option<BootMark>,
    /// Identity that ran then.
    #[serde(default)]
    pub booted_before: Option<String>,
    /// Where it lay, on hosts with two places for a system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_before: Option<String>,
    /// Zincati was told that it may reboot: it does so in its own time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_zincati: bool,
    /// What else asks for this reboot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Target>,
}

/// The part that every version of the agent reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Core {
    /// Where in the cycle.
    pub stage: Stage,
    /// The attempt, from Waiting to its end.
    pub attempt: Option<Attempt>,
    /// The slot.
    pub slot: Slot,
    /// The cordon.
    pub cordon: Cordon,
    /// The last boot in which this record was written.
    pub boot: Option<BootMark>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The target is booted and well.
    Updated,
    /// Given up before the reboot.
    Yielded,
    /// The update went away.
    Withdrawn,
    /// The target booted badly or never and the previous system runs.
    FellBack,
    /// The shutdown did not write the target.
    FinalizeFailed,
    /// The host went down, but nothing was finalized (power loss, stop timeout).
    NotFinalized,
    /// The reboot did not come and was undone.
    RebootNeverCame,
    /// The host was rebooted by somebody else before the attempt came to it.
    Interrupted,
    /// The host was rebooted, as was asked, with no other system behind it.
    Rebooted,
    /// A third system is booted.
    OtherSystem,
}

/// A denied target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Denial {
    /// When it was denied.
    pub since: Timestamp,
    /// Why, for people.
    pub because: String,
    /// Its version, for people.
    #[serde(default)]
    pub version: Option<String>,
}

/// A hold that a person set by command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// Why.
    pub reason: String,
    /// Who.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

/// A reboot that a person asked for by command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Asked {
    /// Why.
    pub reason: String,
    /// Who.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

/// When a stage began.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// When it began.
    pub since: Timestamp,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finished {
    /// Its id.
    pub attempt: AttemptId,
    /// Its target.
    pub target: Target,
    /// How it ended.
    pub outcome: Outcome,
    /// More about it, for people.
    #[serde(default)]
    pub detail: Option<String>,
    /// Its stages, oldest first; the last one is its end.
    pub stages: Vec<StageTime>,
    /// When it ended.
    pub ended: Timestamp,
}

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The frozen part.
    #[serde(flatten)]
    pub core: Core,
    /// `metadata.uid` of the Node that this attempt looked at.
    #[serde(default)]
    pub node_uid: Option<NodeUid>,
    /// The host was once seen as a Node and is never taken for anything else by itself.
    #[serde(default)]
    pub seen_as_node: bool,
    /// Ordinal of the last attempt.
    #[serde(default)]
    pub attempts: u32,
    /// Reboots into a target that have not brought it yet, by identity.
    #[serde(default)]
    pub tries: BTreeMap<String, u32>,
    /// Targets that are not tried again until a person says so, by identity.
    #[serde(default)]
    pub denied: BTreeMap<String, Denial>,
    /// No new request before this time.
    #[serde(default)]
    pub backoff_until: Option<Timestamp>,
    /// Attempts in a row that were given up.
    #[serde(default)]
    pub yields: u32,
    /// A person's hold.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// A reboot that a person asked for; the next boot fulfils it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// The request on the Node that a boot has fulfilled, as long as it is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fulfilled: Option<String>,
    /// Where the slot was asked for: a slot is given back where it was taken, or not at all.
    #[serde(default)]
    pub slot_at: Option<String>,
    /// An answer to a request was lost: release once more at this time.
    #[serde(default)]
    pub release_again: Option<Timestamp>,
    /// That release may lift a person's cordon (some slot servers lift any): it is put back next.
    #[serde(default)]
    pub cordon_owed: bool,
    /// When the drain began, `CLOCK_BOOTTIME` in seconds of `core.boot`.
    #[serde(default)]
    pub drain_began: Option<u64>,
    /// How the attempt will end, once its way back has begun.
    #[serde(default)]
    pub ending: Option<Outcome>,
    /// More about that, for people.
    #[serde(default)]
    pub ending_detail: Option<String>,
    /// Stages of the running attempt.
    #[serde(default)]
    pub stages: Vec<StageTime>,
    /// The last attempts, oldest first, at most [`HISTORY_LENGTH`].
    #[serde(default)]
    pub history: Vec<Finished>,
}

/// How many ended attempts are kept: some years of monthly updates, some tens of kB.
pub const HISTORY_LENGTH: usize = 50;

impl Stage {
    /// The word for it: in the journal, the status, the metrics and on the Node.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Requesting => "requesting",
            Self::Draining => "draining",
            Self::Rebooting => "rebooting",
            Self::Settling => "settling",
            Self::Stuck => "stuck",
            Self::Uncordoning => "uncordoning",
            Self::Yielding => "yielding",
            Self::Releasing => "releasing",
            Self::Halted => "halted",
        }
    }

    /// Every stage, in the order of the cycle.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::Waiting,
        Self::Requesting,
        Self::Draining,
        Self::Rebooting,
        Self::Settling,
        Self::Stuck,
        Self::Uncordoning,
        Self::Yielding,
        Self::Releasing,
        Self::Halted,
    ];
}

impl Outcome {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Yielded => "yielded",
            Self::Withdrawn => "withdrawn",
            Self::FellBack => "fell-back",
            Self::FinalizeFailed => "finalize-failed",
            Self::NotFinalized => "not-finalized",
            Self::RebootNeverCame => "reboot-never-came",
            Self::Interrupted => "interrupted",
            Self::Rebooted => "rebooted",
            Self::OtherSystem => "other-system",
        }
    }
}
