//! Everything that the agent can do to the world.

use std::time::Duration;

use crate::model::{AttemptId, NodeUid, Target};

/// What is to be done. Coarse, idempotent, and may run twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Look at the host's gates once.
    Inspect,
    /// Read what this boot says about the one before it.
    ReadBoot,
    /// Read the own Node once.
    ReadNode,
    /// Ask every eviction of a drain with `dryRun=All`.
    Rehearse,
    /// Ask for the slot, or confirm it: the protocol does not tell them apart.
    RequestSlot {
        /// The attempt that asks.
        attempt: AttemptId,
    },
    /// Give the slot back.
    ReleaseSlot,
    /// Make the Node unschedulable with our mark.
    Cordon {
        /// The attempt, written into the mark.
        attempt: AttemptId,
        /// The Node must have this UID.
        uid: NodeUid,
    },
    /// Evict what can be evicted and wait until it has gone.
    Drain {
        /// The attempt, for Events and logs.
        attempt: AttemptId,
        /// How long it may take from now.
        within: Duration,
        /// Delete instead of evict (the deadline's policy `delete`).
        delete: bool,
    },
    /// End the drain that runs.
    StopDrain,
    /// Look at UID, cordon and pods once more before the reboot.
    VerifyEmpty {
        /// The Node must have this UID.
        uid: NodeUid,
        /// Pods that are left do not count (the deadline's policy `reboot`).
        pods_may_stay: bool,
    },
    /// Finalize the target and reboot.
    Reboot {
        /// The attempt, for the wall message.
        attempt: AttemptId,
        /// What the next boot is to bring.
        target: Target,
    },
    /// Tell Zincati that it may finalize the target and reboot.
    AllowZincati {
        /// The attempt, for logs.
        attempt: AttemptId,
    },
    /// Undo a reboot that did not come: lock the deployment again, restart rpm-ostreed.
    UndoReboot {
        /// What was to be booted.
        target: Target,
    },
    /// Look at units and checks once.
    CheckHealth,
    /// Lift the cordon, if it carries our mark.
    Uncordon,
    /// Put a person's cordon back, unmarked, if it was lifted meanwhile.
    RestoreCordon,
}

/// Effects of one lane never run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The host's gates.
    Host,
    /// Evidence of the last boot.
    Boot,
    /// The own Node.
    Node,
    /// Rehearsal, drain and the last look.
    Drain,
    /// The slot server.
    Slot,
    /// The reboot and its undoing.
    Reboot,
    /// Units and checks.
    Health,
}

impl Effect {
    /// The lane that it runs in.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Inspect => Lane::Host,
            Self::ReadBoot => Lane::Boot,
            Self::ReadNode | Self::Cordon { .. } | Self::Uncordon | Self::RestoreCordon => {
                Lane::Node
            }
            Self::Rehearse | Self::Drain { .. } | Self::StopDrain | Self::VerifyEmpty { .. } => {
                Lane::Drain
            }
            Self::RequestSlot { .. } | Self::ReleaseSlot => Lane::Slot,
            Self::Reboot { .. } | Self::AllowZincati { .. } | Self::UndoReboot { .. } => {
                Lane::Reboot
            }
            Self::CheckHealth => Lane::Health,
        }
    }

    /// Whether it must not be begun unless the record that leads to it is on disk.
    pub fn needs_record(&self) -> bool {
        match self {
            Self::RequestSlot { .. }
            | Self::Cordon { .. }
            | Self::Drain { .. }
            | Self::AllowZincati { .. }
            | Self::Reboot { .. } => true,
            Self::Inspect
            | Self::ReadBoot
            | Self::ReadNode
            | Self::Rehearse
            | Self::ReleaseSlot
            | Self::StopDrain
            | Self::VerifyEmpty { .. }
            | Self::UndoReboot { .. }
            | Self::CheckHealth
            | Self::Uncordon
            | Self::RestoreCordon => false,
        }
    }
}
