//! Why the agent does nothing right now: a closed list, and the same words everywhere.

use std::fmt;

use jiff::Timestamp;

use crate::drain::Obstacle;
use crate::model::Target;

use super::event::{Inhibitor, NodeTrouble};

/// Where a hold comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldOrigin {
    /// `lockkeeper hold`.
    Command,
    /// The hold file.
    File,
    /// The Node annotation.
    Annotation,
}

/// What the agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Nothing to do: no update is staged.
    NoUpdate,
    /// The update system has not been read yet, or cannot be.
    SystemUnknown(Option<String>),
    /// What this boot says about the one before it has not been read yet.
    BootUnknown,
    /// No slot backend is configured, and there is no default.
    NoSlotBackend,
    /// Backend `none` on a Kubernetes Node without `only_node = true`.
    OnlyNodeNotConfirmed,
    /// A person holds the node.
    Held {
        /// By which means.
        origin: HoldOrigin,
        /// Their words.
        reason: String,
    },
    /// The target is on the deny list.
    TargetDenied {
        /// The target.
        target: Target,
        /// Why it was denied.
        because: String,
    },
    /// The target was tried as often as allowed.
    AttemptLimit {
        /// Reboots so far.
        tries: u32,
    },
    /// Outside the windows, or the rest of this one is too short.
    WindowClosed {
        /// When the next one opens that is long enough; `None`: none ever does.
        opens: Option<Timestamp>,
        /// A window is open, but the attempt does not fit into its rest.
        too_short: bool,
    },
    /// Windows are configured and the clock is not synchronised.
    ClockNotSynchronised,
    /// Programs block the shutdown.
    Inhibited(Vec<Inhibitor>),
    /// Users are logged in.
    UsersLoggedIn(Vec<String>),
    /// /boot is too full to finalize.
    BootFull {
        /// Free, bytes.
        free: u64,
        /// Needed, bytes.
        needed: u64,
    },
    /// `ostree-finalize-staged.service` is not active: a reboot would drop the update.
    FinalizeUnitInactive,
    /// The legacy lock file lies there: a reboot would drop the update.
    LegacyLock,
    /// The configuration is wrong: what is wrong, with file and key.
    ConfigWrong(String),
    /// The host has not been up long enough.
    MinimumUptime,
    /// Zincati on this host talks to another slot server.
    OtherLockClient(String),
    /// An update is staged, and Zincati has not asked to reboot into it.
    ZincatiHasNotAsked,
    /// All is ready, and Zincati has to ask once more.
    ZincatiMustAsk,
    /// Zincati may reboot, and has not begun to.
    ZincatiMayReboot,
    /// A program on this host would reboot it by itself: which, and what to do.
    OtherRebooter(Vec<String>),
    /// update_engine says that its update waits no longer.
    UpdateWithdrawn(String),
    /// The host's gates have not been looked at yet.
    HostUnknown,
    /// The host's gates could not be read.
    HostUnreadable(Vec<String>),
    /// Backing off after an attempt that was given up.
    BackingOff {
        /// Until when.
        until: Timestamp,
    },
    /// The own Node has not been seen yet.
    NodeUnknown,
    /// The own Node cannot be seen or written.
    Node(NodeTrouble),
    /// The rehearsal is under way.
    Rehearsing,
    /// The drain would not finish now.
    DrainWouldBlock(Vec<Obstacle>),
    /// The slot server is being asked.
    SlotAsked,
    /// The slot server says no.
    SlotDenied {
        /// The server's bounded word.
        kind: String,
        /// The server's sentence.
        value: String,
    },
    /// The slot server works on it.
    SlotPending(String),
    /// The slot server gives no answer.
    SlotFailed {
        /// A bounded word.
        kind: String,
        /// What happened.
        error: String,
    },
    /// The Node is being cordoned.
    Cordoning,
    /// Pods are leaving.
    Draining,
    /// The slot is being confirmed.
    Confirming,
    /// The last look at the node before the reboot.
    Verifying,
    /// The reboot was asked for and has not begun.
    ShutdownPending,
    /// The host is going down.
    ShuttingDown,
    /// A reboot that did not come is being undone.
    UndoingReboot,
    /// A reboot did not come and could not be undone.
    RebootUnresolved(String),
    /// The kubelet of this boot has not reported Ready.
    KubeletNotReady(Option<String>),
    /// Units or checks are not well.
    NotWell(Vec<String>),
    /// Units and checks are being looked at.
    CheckingHealth,
    /// Well; the settle time runs.
    SettleTime,
    /// The cordon is being lifted.
    Uncordoning,
    /// A person's cordon that the server's release lifted is being put back.
    RestoringCordon,
    /// The slot may be held at another place than the configuration names.
    SlotElsewhere {
        /// Where it was asked for.
        held: String,
        /// Where the configuration asks now.
        configured: Option<String>,
    },
    /// The slot is being released.
    ReleasingSlot,
    /// The drain is being stopped.
    StoppingDrain,
    /// A target fell back: a person has to look and say `resume`.
    Halted {
        /// Why it was denied.
        because: String,
    },
    /// The record cannot be written.
    RecordUnwritable(String),
}

impl Waiting {
    /// The word for it: journal field, metrics label, `reason` in the status.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoUpdate => "no-update",
            Self::SystemUnknown(_) => "update-system-unknown",
            Self::BootUnknown => "boot-unknown",
            Self::NoSlotBackend => "no-slot-backend",
            Self::OnlyNodeNotConfirmed => "only-node-not-confirmed",
            Self::Held { .. } => "held",
            Self::TargetDenied { .. } => "target-denied",
            Self::AttemptLimit { .. } => "attempt-limit",
            Self::WindowClosed { too_short: false, .. } => "window-closed",
            Self::WindowClosed { too_short: true, .. } => "window-too-short",
            Self::ClockNotSynchronised => "clock-not-synchronised",
            Self::Inhibited(_) => "inhibited",
            Self::UsersLoggedIn(_) => "users-logged-in",
            Self::BootFull { .. } => "boot-full",
            Self::FinalizeUnitInactive => "finalize-unit-inactive",
            Self::LegacyLock => "legacy-lock",
            Self::ConfigWrong(_) => "config-wrong",
            Self::MinimumUptime => "minimum-uptime",
            Self::OtherLockClient(_) => "other-lock-client",
            Self::ZincatiHasNotAsked => "zincati-has-not-asked",
            Self::ZincatiMustAsk => "zincati-must-ask",
            Self::ZincatiMayReboot => "zincati-may-reboot",
            Self::OtherRebooter(_) => "other-rebooter",
            Self::UpdateWithdrawn(_) => "update-withdrawn",
            Self::HostUnknown => "host-unknown",
            Self::HostUnreadable(_) => "host-unreadable",
            Self::BackingOff { .. } => "backing-off",
            Self::NodeUnknown => "node-unknown",
            Self::Node(trouble) => trouble.kind(),
            Self::Rehearsing => "rehearsing",
            Self::DrainWouldBlock(_) => "drain-would-block",
            Self::SlotAsked => "slot-asked",
            Self::SlotDenied { .. } => "slot-denied",
            Self::SlotPending(_) => "slot-pending",
            Self::SlotFailed { .. } => "slot-failed",
            Self::Cordoning => "cordoning",
            Self::Draining => "draining",
            Self::Confirming => "confirming-slot",
            Self::Verifying => "verifying",
            Self::ShutdownPending => "shutdown-pending",
            Self::ShuttingDown => "shutting-down",
            Self::UndoingReboot => "undoing-reboot",
            Self::RebootUnresolved(_) => "reboot-unresolved",
            Self::KubeletNotReady(_) => "kubelet-not-ready",
            Self::NotWell(_) => "not-well",
            Self::CheckingHealth => "checking-health",
            Self::SettleTime => "settle-time",
            Self::Uncordoning => "uncordoning",
            Self::RestoringCordon => "restoring-cordon",
            Self::SlotElsewhere { .. } => "slot-elsewhere",
            Self::ReleasingSlot => "releasing-slot",
            Self::StoppingDrain => "stopping-drain",
            Self::Halted { .. } => "halted",
            Self::RecordUnwritable(_) => "record-unwritable",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUpdate => f.write_str("no update waits"),
            Self::SystemUnknown(None) => f.write_str("the update system has not been read yet"),
            Self::SystemUnknown(Some(why)) => write!(f, "the update system cannot be read: {why}"),
            Self::BootUnknown => f.write_str("finding out what the last boot brought"),
            Self::NoSlotBackend => f.write_str(
                "no slot backend is configured: set [slot] backend (there is no default)",
            ),
            Self::OnlyNodeNotConfirmed => {
                f.write_str("backend \"none\" on a Kubernetes Node needs [slot] only_node = true")
            }
            Self::Held { origin, reason } if reason.trim().is_empty() => {
                write!(f, "held by {origin}, which is empty")
            }
            Self::Held { origin, reason } => write!(f, "held by {origin}: {reason}"),
            Self::TargetDenied { target, because } => {
                write!(f, "{target} is on the deny list: {because}")
            }
            Self::AttemptLimit { tries } => write!(f, "it was tried {tries} times and still waits"),
            Self::WindowClosed { opens, too_short } => {
                let what = if *too_short {
                    "the rest of the window is too short for a drain and a reboot"
                } else {
                    "outside the reboot windows"
                };
                match opens {
                    Some(opens) => write!(f, "{what}; the next one opens {}", seconds(*opens)),
                    None => write!(f, "{what}; no window is ever long enough"),
                }
            }
            Self::ClockNotSynchronised => {
                f.write_str("the clock is not synchronised, so windows count as closed")
            }
            Self::Inhibited(inhibitors) => {
                f.write_str("the shutdown is blocked by ")?;
                list(f, inhibitors.iter().map(|i| format!("{} ({})", i.who, i.why)))
            }
            Self::UsersLoggedIn(users) => {
                f.write_str("users are logged in: ")?;
                list(f, users.iter().cloned())
            }
            Self::BootFull { free, needed } => write!(
                f,
                "/boot is too full to finalize: {} MiB free, {} MiB needed",
                free >> 20,
                needed >> 20
            ),
            Self::FinalizeUnitInactive => f.write_str(
                "ostree-finalize-staged.service is not active: a reboot would drop the update",
            ),
            Self::LegacyLock => f.write_str(
                "/run/ostree/staged-deployment-locked lies there: a reboot would drop the update",
            ),
            Self::ConfigWrong(what) => write!(f, "the configuration is wrong: {what}"),
            Self::MinimumUptime => f.write_str("the host has not been up long enough"),
            Self::OtherLockClient(server) => {
                write!(f, "Zincati on this host asks another slot server ({server})")
            }
            Self::ZincatiHasNotAsked => f.write_str("Zincati has not asked for its update"),
            Self::ZincatiMustAsk => f.write_str("all is ready, and Zincati has to ask once more"),
            Self::ZincatiMayReboot => f.write_str("Zincati may reboot, and has not begun to"),
            Self::OtherRebooter(which) => list(f, which.iter().cloned()),
            Self::UpdateWithdrawn(says) => write!(f, "no update waits: update_engine says {says}"),
            Self::HostUnknown => f.write_str("the host's gates are being looked at"),
            Self::HostUnreadable(what) => {
                f.write_str("the host's gates cannot be read: ")?;
                list(f, what.iter().cloned())
            }
            Self::BackingOff { until } => write!(f, "backing off until {}", seconds(*until)),
            Self::NodeUnknown => f.write_str("the own Node has not been seen yet"),
            Self::Node(trouble) => f.write_str(trouble.text()),
            Self::Rehearsing => f.write_str("rehearsing the drain"),
            Self::DrainWouldBlock(obstacles) => {
                f.write_str("the drain would not finish: ")?;
                list(f, obstacles.iter().map(ToString::to_string))
            }
            Self::SlotAsked => f.write_str("asking for the slot"),
            Self::SlotDenied { kind, value } => {
                write!(f, "the slot server says no ({kind}): {value}")
            }
            Self::SlotPending(value) => write!(f, "the slot server is at work: {value}"),
            Self::SlotFailed { kind, error } => {
                write!(f, "the slot server gives no answer ({kind}): {error}")
            }
            Self::Cordoning => f.write_str("cordoning the node"),
            Self::Draining => f.write_str("pods are leaving"),
            Self::Confirming => f.write_str("confirming the slot"),
            Self::Verifying => f.write_str("looking at the node once more"),
            Self::ShutdownPending => f.write_str("the reboot was asked for"),
            Self::ShuttingDown => f.write_str("the host is going down"),
            Self::UndoingReboot => f.write_str("undoing a reboot that did not come"),
            Self::RebootUnresolved(why) => {
                write!(f, "the reboot did not come and cannot be undone: {why}")
            }
            Self::KubeletNotReady(None) => {
                f.write_str("the kubelet of this boot has not reported yet")
            }
            Self::KubeletNotReady(Some(why)) => write!(f, "the node is not Ready: {why}"),
            Self::NotWell(what) => {
                f.write_str("not well: ")?;
                list(f, what.iter().cloned())
            }
            Self::CheckingHealth => f.write_str("looking at units and checks"),
            Self::SettleTime => f.write_str("well; the settle time runs"),
            Self::Uncordoning => f.write_str("lifting the cordon"),
            Self::RestoringCordon => f.write_str("looking after a person's cordon"),
            Self::SlotElsewhere { held, configured } => {
                elsewhere(f, held, configured.as_deref().unwrap_or("no slot server"))
            }
            Self::ReleasingSlot => f.write_str("releasing the slot"),
            Self::StoppingDrain => f.write_str("stopping the drain"),
            Self::Halted { because } => write!(
                f,
                "halted with the slot held: {because}; look at it, then say `lockkeeper resume`"
            ),
            Self::RecordUnwritable(why) => write!(f, "the record cannot be written: {why}"),
        }
    }
}

/// A place names an id only where one is configured: then both sides do.
fn elsewhere(f: &mut fmt::Formatter<'_>, held: &str, now: &str) -> fmt::Result {
    let own = |place: &str, other: &str| {
        let unnamed = place.contains(" (group ") && !place.contains(") as ");
        if unnamed && other.contains(") as ") { " as this machine's own id" } else { "" }
    };
    let (held_as, now_as) = (own(held, now), own(now, held));
    write!(f, "a slot may be held at {held}{held_as}, but the configuration names {now}{now_as}")
}

impl fmt::Display for HoldOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::File => "file",
            Self::Annotation => "annotation",
        })
    }
}

/// `2026-11-30 23:58:02 UTC`: nobody waits for a nanosecond.
fn seconds(time: Timestamp) -> impl fmt::Display {
    time.strftime("%Y-%m-%d %H:%M:%S UTC")
}

/// Writes items with commas, the first eight of them.
fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<String> = items.collect();
    let shown = items.len().min(8);
    f.write_str(&items[..shown].join(", "))?;
    if items.len() > shown {
        write!(f, " and {} more", items.len() - shown)?;
    }
    Ok(())
}
