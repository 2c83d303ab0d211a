//! What the configuration says about the cycle.

use std::time::Duration;

use crate::schedule::Windows;

/// Whether the host is a Kubernetes Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KubernetesPolicy {
    /// It is, if it has a kubelet unit or was ever seen as a Node.
    Auto,
    /// It is.
    Required,
    /// It is not: nothing to cordon or drain.
    None,
}

/// Who hands out the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotPolicy {
    /// Nothing is configured: wait and say so.
    Unset,
    /// A single machine.
    None {
        /// It is the only node of its cluster, so that a Kubernetes Node may do without a slot.
        only_node: bool,
    },
    /// A slot server.
    Server,
}

/// What to do when a drain does not finish in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDeadline {
    /// Uncordon what is ours, release, back off.
    Yield,
    /// Delete what is left, with grace.
    Delete,
    /// Reboot all the same.
    Reboot,
}

/// What to do when somebody makes the Node schedulable in mid-attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnForeignUncordon {
    /// Drop the mark and yield.
    Yield,
    /// Cordon again.
    Cordon,
}

/// What to do about logged-in users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnUsers {
    /// Wait until they have gone.
    Wait,
    /// Reboot under them (the wall message tells them).
    Ignore,
}

/// What to do with the slot after a fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterRollback {
    /// Keep it until a person says `resume`, so that the next node does not repeat it.
    Halt,
    /// Free it.
    Release,
}

/// Everything that a step looks at and that a person configures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether the host is a Node.
    pub kubernetes: KubernetesPolicy,
    /// Who hands out the slot.
    pub slot: SlotPolicy,
    /// Where the slot is asked for, for people: server, group and id; `None`: nowhere.
    pub slot_place: Option<String>,
    /// How long an answer of the slot server may take.
    pub answer_timeout: Duration,
    /// How often the slot is confirmed while draining.
    pub confirm_every: Duration,
    /// How long to wait after a denial without `Retry-After`, before jitter.
    pub denial_retry: Duration,
    /// When an attempt may run; empty: always.
    pub windows: Windows,
    /// How long a drain may take.
    pub drain_deadline: Duration,
    /// What then.
    pub on_deadline: OnDeadline,
    /// How long a deletion after the deadline may take.
    pub delete_timeout: Duration,
    /// What if somebody uncordons.
    pub on_foreign_uncordon: OnForeignUncordon,
    /// How long a rehearsal holds good.
    pub rehearsal_every: Duration,
    /// How long a reboot takes: what must fit into the window behind the drain.
    pub reboot_estimate: Duration,
    /// How long an accepted reboot may take to begin.
    pub shutdown_wait: Duration,
    /// Zincati decides when its updates reboot the host, and asks this agent for leave.
    pub zincati: bool,
    /// Logged-in users.
    pub users: OnUsers,
    /// How long the host must have been up.
    pub minimum_uptime: Duration,
    /// How much must be free on /boot, bytes.
    pub boot_free: u64,
    /// How long the node must have been well.
    pub settle_time: Duration,
    /// After how long a node that is not well counts as stuck.
    pub settle_deadline: Duration,
    /// How often units and checks are looked at while settling.
    pub check_every: Duration,
    /// Reboots into one target.
    pub attempt_limit: u32,
    /// First back-off after an attempt that was given up; it doubles.
    pub backoff_first: Duration,
    /// Longest back-off.
    pub backoff_max: Duration,
    /// What happens to the slot after a fallback.
    pub after_rollback: AfterRollback,
}
