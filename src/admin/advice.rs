//! What a person can do about a reason to wait, and what comes next.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::drain::{Obstacle, ObstacleKind};
use crate::lifecycle::{HoldOrigin, NodeTrouble, OnDeadline, Stage, Waiting};

use super::Snapshot;

/// What would end a reason to wait, and what helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// What ends it: completes "It ends when …".
    pub ends: &'static str,
    /// What a person can do: a whole sentence with its command; `None`: there is nothing to do.
    pub help: Option<&'static str>,
}

/// The advice for each reason.
pub fn advice(waiting: &Waiting) -> Advice {
    match waiting {
        Waiting::NoUpdate => NO_UPDATE,
        Waiting::SystemUnknown(_) => SYSTEM_UNKNOWN,
        Waiting::BootUnknown => BOOT_UNKNOWN,
        Waiting::NoSlotBackend => NO_SLOT_BACKEND,
        Waiting::OnlyNodeNotConfirmed => ONLY_NODE_NOT_CONFIRMED,
        Waiting::Held { origin, .. } => held(*origin),
        Waiting::TargetDenied { .. } => TARGET_DENIED,
        Waiting::AttemptLimit { .. } => ATTEMPT_LIMIT,
        Waiting::WindowClosed { opens: Some(_), .. } => WINDOW_CLOSED,
        Waiting::WindowClosed { opens: None, .. } => WINDOW_NEVER,
        Waiting::ClockNotSynchronised => CLOCK_NOT_SYNCHRONISED,
        Waiting::Inhibited(_) => INHIBITED,
        Waiting::UsersLoggedIn(_) => USERS_LOGGED_IN,
        Waiting::BootFull { .. } => BOOT_FULL,
        Waiting::FinalizeUnitInactive => FINALIZE_UNIT_INACTIVE,
        Waiting::LegacyLock => LEGACY_LOCK,
        Waiting::ConfigWrong(_) => CONFIG_WRONG,
        Waiting::MinimumUptime => MINIMUM_UPTIME,
        Waiting::OtherLockClient(_) => OTHER_LOCK_CLIENT,
        Waiting::ZincatiHasNotAsked => ZINCATI_HAS_NOT_ASKED,
        Waiting::ZincatiMustAsk => ZINCATI_MUST_ASK,
        Waiting::ZincatiMayReboot => ZINCATI_MAY_REBOOT,
        Waiting::OtherRebooter(_) => OTHER_REBOOTER,
        Waiting::UpdateWithdrawn(_) => UPDATE_WITHDRAWN,
        Waiting::HostUnknown => HOST_UNKNOWN,
        Waiting::HostUnreadable(_) => HOST_UNREADABLE,
        Waiting::BackingOff { .. } => BACKING_OFF,
        Waiting::NodeUnknown => NODE_UNKNOWN,
        Waiting::Node(trouble) => node(trouble),
        Waiting::Rehearsing => REHEARSING,
        Waiting::DrainWouldBlock(_) => DRAIN_WOULD_BLOCK,
        Waiting::SlotAsked => SLOT_ASKED,
        Waiting::SlotDenied { .. } => SLOT_DENIED,
        Waiting::SlotPending(_) => SLOT_PENDING,
        Waiting::SlotFailed { .. } => SLOT_FAILED,
        Waiting::Cordoning => CORDONING,
        Waiting::Draining => DRAINING,
        Waiting::Confirming => CONFIRMING,
        Waiting::Verifying => VERIFYING,
        Waiting::ShutdownPending => SHUTDOWN_PENDING,
        Waiting::ShuttingDown => SHUTTING_DOWN,
        Waiting::UndoingReboot => UNDOING_REBOOT,
        Waiting::RebootUnresolved(_) => REBOOT_UNRESOLVED,
        Waiting::KubeletNotReady(_) => KUBELET_NOT_READY,
        Waiting::NotWell(_) => NOT_WELL,
        Waiting::CheckingHealth => CHECKING_HEALTH,
        Waiting::SettleTime => SETTLE_TIME,
        Waiting::Uncordoning => UNCORDONING,
        Waiting::RestoringCordon => RESTORING_CORDON,
        Waiting::SlotElsewhere { .. } => SLOT_ELSEWHERE,
        Waiting::ReleasingSlot => RELEASING_SLOT,
        Waiting::StoppingDrain => STOPPING_DRAIN,
        Waiting::Halted { .. } => HALTED,
        Waiting::RecordUnwritable(_) => RECORD_UNWRITABLE,
    }
}

/// The reason in words. While a drain runs, what stands in its way is part of it.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let waiting = &snapshot.waiting;
    let (Waiting::Draining, Some(progress)) = (waiting, &snapshot.state.view.progress) else {
        return waiting.to_string();
    };
    let blocks = |obstacle: &&Obstacle| obstacle.kind != ObstacleKind::Terminating;
    let blocking: Vec<String> =
        progress.obstacles.iter().filter(blocks).map(ToString::to_string).collect();
    if blocking.is_empty() {
        return waiting.to_string();
    }
    let shown = blocking.len().min(8);
    let more = match blocking.len() - shown {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{waiting}, but not all: {}{more}", blocking[..shown].join(", "))
}

/// When a reason to wait ends by itself, where that is known.
pub(super) fn until(snapshot: &Snapshot) -> Option<Timestamp> {
    let waiting = &snapshot.waiting;
    if *waiting == Waiting::Draining {
        return deadline(snapshot);
    }
    if let Waiting::BackingOff { until } = waiting {
        return Some(*until);
    }
    if let Waiting::WindowClosed { opens, .. } = waiting {
        return *opens;
    }
    None
}

/// The deadline of the drain that runs, while it is ahead.
fn deadline(snapshot: &Snapshot) -> Option<Timestamp> {
    let began = Duration::from_secs(snapshot.state.record.drain_began?);
    let left = (began + snapshot.drain.0).checked_sub(snapshot.at.since_boot)?;
    snapshot.at.wall.checked_add(SignedDuration::try_from(left).ok()?).ok()
}

/// What ends the reason, in words.
pub(super) fn ends(snapshot: &Snapshot) -> String {
    let then = match snapshot.drain.1 {
        OnDeadline::Yield => "turns back",
        OnDeadline::Delete => "deletes what is left",
        OnDeadline::Reboot => "reboots all the same",
    };
    if snapshot.waiting == Waiting::Draining && deadline(snapshot).is_some() {
        return format!("{}, and the agent {then}", DRAINING.ends);
    }
    advice(&snapshot.waiting).ends.to_owned()
}

/// What comes next if all goes well: completes "Next: …".
pub fn next(stage: Stage, waiting: &Waiting) -> &'static str {
    if let Waiting::Held { .. } = waiting {
        return "nothing, until the hold ends";
    }
    match stage {
        Stage::Idle => "nothing, until an update is staged or a reboot is asked for",
        Stage::Waiting => "look at the gates, rehearse the drain, ask for the slot",
        Stage::Requesting => "once granted: cordon and drain the node",
        Stage::Draining => "once empty: confirm the slot, look once more, reboot",
        Stage::Rebooting => "the host goes down and boots the target",
        Stage::Settling => "once well for the settle time: uncordon, release the slot",
        Stage::Stuck => "once well: uncordon, release the slot; until then both are kept",
        Stage::Uncordoning => "release the slot",
        Stage::Yielding => "uncordon, release the slot, pause, try again",
        Stage::Releasing => "once the release is confirmed: the attempt ends",
        Stage::Halted => "nothing, until a person says `lockkeeper resume`",
    }
}

fn held(origin: HoldOrigin) -> Advice {
    match origin {
        HoldOrigin::Command => HELD_BY_COMMAND,
        HoldOrigin::File => HELD_BY_FILE,
        HoldOrigin::Annotation => HELD_BY_ANNOTATION,
    }
}

fn node(trouble: &NodeTrouble) -> Advice {
    match trouble {
        NodeTrouble::NoCredential(_) => NO_CREDENTIAL,
        NodeTrouble::Refused(_) => CREDENTIAL_REFUSED,
        NodeTrouble::Forbidden(_) => FORBIDDEN,
        NodeTrouble::Missing(_) => NODE_MISSING,
        NodeTrouble::Unreachable(_) => API_UNREACHABLE,
    }
}

const NO_UPDATE: Advice = nothing_to_do("an update is staged or a reboot is asked for");
const SYSTEM_UNKNOWN: Advice = helped(
    "it answers; the agent keeps asking",
    "See the status of its service: rpm-ostreed, update-engine, or what [updates] names.",
);
const BOOT_UNKNOWN: Advice = nothing_to_do("systemd has said how the last shutdown ended");
const NO_SLOT_BACKEND: Advice = helped(
    "a slot backend is configured and the agent has loaded it",
    "Set [slot] in /etc/lockkeeper/config.d/, `lockkeeper config check`, then `systemctl \
     reload lockkeeper`.",
);
const ONLY_NODE_NOT_CONFIRMED: Advice = helped(
    "the configuration names a slot server, or says `only_node = true`",
    "Change [slot] in /etc/lockkeeper/config.d/, then `systemctl reload lockkeeper`.",
);
const TARGET_DENIED: Advice = helped(
    "another update is staged, or you allow this one again",
    "`lockkeeper history` shows how it failed; `lockkeeper retry` allows it again.",
);
const ATTEMPT_LIMIT: Advice = helped(
    "another update is staged, or you allow more tries",
    "`lockkeeper history` shows how each try ended; `lockkeeper retry` forgets the count.",
);
const WINDOW_CLOSED: Advice = helped(
    "the next window opens that is long enough",
    "The windows are in `lockkeeper config show`.",
);
const WINDOW_NEVER: Advice = helped(
    "a window is configured that is longer than the drain's deadline and a reboot",
    "Make a window longer or the deadline shorter (`lockkeeper config show`), then `systemctl \
     reload lockkeeper`.",
);
const CLOCK_NOT_SYNCHRONISED: Advice =
    helped("the clock is synchronised", "See `timedatectl` and `chronyc tracking`.");
const INHIBITED: Advice = helped(
    "every program has dropped its lock",
    "`systemd-inhibit --list --mode=block` shows them.",
);
const USERS_LOGGED_IN: Advice = helped(
    "they have logged out",
    "`loginctl list-sessions` shows them; the configuration can ignore them.",
);
const BOOT_FULL: Advice = helped(
    "there is room",
    "`rpm-ostree cleanup -r` removes the rollback deployment; see `df /boot`.",
);
const FINALIZE_UNIT_INACTIVE: Advice = helped(
    "the unit is active",
    "`systemctl start ostree-finalize-staged.service`, or stage the update anew.",
);
const LEGACY_LOCK: Advice = helped(
    "the file has gone",
    "See which tool made it, then remove /run/ostree/staged-deployment-locked.",
);
const CONFIG_WRONG: Advice = helped(
    "the configuration is right and loaded",
    "`lockkeeper config check` tells all that is wrong. Mend it, then `systemctl reload lockkeeper`.",
);
const MINIMUM_UPTIME: Advice = nothing_to_do("the host has been up long enough");
const OTHER_LOCK_CLIENT: Advice = helped(
    "Zincati is disabled, or asks the same slot server",
    "`systemctl disable --now zincati` leaves the reboots to lockkeeper.",
);
const ZINCATI_HAS_NOT_ASKED: Advice = helped(
    "Zincati asks for leave to reboot; it does so once it has staged the update itself",
    "`systemctl status zincati` says what it does; `lockkeeper reboot --reason TEXT` goes without it.",
);
const ZINCATI_MUST_ASK: Advice =
    nothing_to_do("Zincati asks again, which it does every five minutes");
const ZINCATI_MAY_REBOOT: Advice = nothing_to_do(
    "Zincati finalizes the update and reboots; a quarter of an hour without it, and the agent turns back",
);
const OTHER_REBOOTER: Advice = helped(
    "nothing else on this host reboots it",
    "Stop and mask what is named: it would reboot the host without slot and drain.",
);
const UPDATE_WITHDRAWN: Advice =
    nothing_to_do("update_engine has an update again, or says so to the agent");
const HOST_UNKNOWN: Advice = nothing_to_do("the host has been looked at");
const HOST_UNREADABLE: Advice = helped(
    "they can be read; the agent keeps looking",
    "See `journalctl -u lockkeeper` and `systemctl status systemd-logind dbus`.",
);
const BACKING_OFF: Advice = helped(
    "the pause is over",
    "`lockkeeper retry` ends the pause now; `lockkeeper history` shows why there is one.",
);
const NODE_UNKNOWN: Advice = helped(
    "the Node has been read",
    "If it takes longer than a minute, see `journalctl -u lockkeeper`.",
);
const REHEARSING: Advice = nothing_to_do("every eviction has been asked as a dry run");
const DRAIN_WOULD_BLOCK: Advice = helped(
    "those pods could be evicted; the rehearsal is repeated every few minutes",
    "`kubectl get poddisruptionbudgets -A` shows the budgets; `lockkeeper retry` rehearses now.",
);
const SLOT_ASKED: Advice = nothing_to_do("the slot server answers");
const SLOT_DENIED: Advice = helped(
    "another node gives its slot back; the agent asks again by itself",
    "See who holds the slots on the slot server (`lockkeeper slots list` on our coordinator).",
);
const SLOT_PENDING: Advice = nothing_to_do("the slot server has decided");
const SLOT_FAILED: Advice = helped(
    "the slot server answers; the agent asks again by itself",
    "See whether this host reaches the server in `lockkeeper config show`, [slot]. If it is the \
     wrong one, correct it and `systemctl reload lockkeeper`; `lockkeeper status` says what else \
     it takes.",
);
const CORDONING: Advice = nothing_to_do("the Node carries our mark");
const DRAINING: Advice = helped(
    "the node is empty, or the drain's deadline passes",
    "`lockkeeper status --watch` shows the pods that are left; `lockkeeper hold REASON` stops \
     here.",
);
const CONFIRMING: Advice = nothing_to_do("the slot server answers");
const VERIFYING: Advice = nothing_to_do("the Node has been looked at");
const SHUTDOWN_PENDING: Advice = helped(
    "the host goes down; if it does not, the agent undoes the attempt",
    "`systemctl list-jobs` and `systemd-inhibit --list` show what holds it.",
);
const SHUTTING_DOWN: Advice = nothing_to_do("the host is down");
const UNDOING_REBOOT: Advice = nothing_to_do("the update is locked again");
const REBOOT_UNRESOLVED: Advice = helped(
    "the host is rebooted, or the shutdown job has gone",
    "See `systemctl list-jobs`; a `systemctl reboot` by hand ends it, the node is empty.",
);
const KUBELET_NOT_READY: Advice = helped(
    "the kubelet of this boot reports Ready",
    "See `systemctl status kubelet` and `journalctl -b -u kubelet`.",
);
const NOT_WELL: Advice = helped(
    "all of them are well; the agent keeps looking and goes on by itself",
    "`systemctl --failed` and the checks in /etc/lockkeeper/health.d say more.",
);
const CHECKING_HEALTH: Advice = nothing_to_do("they have been looked at");
const SETTLE_TIME: Advice = nothing_to_do("the settle time has passed without a fault");
const UNCORDONING: Advice = nothing_to_do("the API server confirms it");
const RESTORING_CORDON: Advice = nothing_to_do("the API server confirms it");
const SLOT_ELSEWHERE: Advice = helped(
    "the configuration names that place again, or you let it go",
    "Put the old [slot] back and `systemctl reload lockkeeper`: then it is released. Or free it \
     there by hand and say `lockkeeper resume`.",
);
const RELEASING_SLOT: Advice = nothing_to_do("the slot server confirms the release");
const STOPPING_DRAIN: Advice = nothing_to_do("the evictions under way have been answered");
const HALTED: Advice = helped(
    "a person says so, since the next node would repeat the fault",
    "Find out why the update failed (`journalctl -b -1`, `lockkeeper history`), then \
     `lockkeeper resume`.",
);
const RECORD_UNWRITABLE: Advice = helped(
    "the record can be written again; nothing dangerous is begun before",
    "See whether the disk is full or read-only: `df /var/lib/lockkeeper`.",
);
const HELD_BY_COMMAND: Advice =
    helped("a person ends the hold", "`lockkeeper resume` ends it, once its reason has gone.");
const HELD_BY_FILE: Advice = helped(
    "the hold file is removed",
    "Remove the hold file (/etc/lockkeeper/hold, unless configured otherwise).",
);
const HELD_BY_ANNOTATION: Advice = helped(
    "the Node's annotation is removed",
    "`kubectl annotate node NODE lockkeeper.dev/hold-` removes it.",
);
const NO_CREDENTIAL: Advice = helped(
    "there is a usable kubeconfig; without one the node is never rebooted undrained",
    "See [node] in `lockkeeper config show`; a host without Kubernetes says `kubernetes = \
     \"none\"`.",
);
const CREDENTIAL_REFUSED: Advice = helped(
    "the API server accepts the credential",
    "See whether the kubelet's certificate has expired: `journalctl -u kubelet`.",
);
const FORBIDDEN: Advice = helped(
    "the identity has the missing right",
    "`kubectl auth can-i --list` with the agent's kubeconfig shows what it may do.",
);
const NODE_MISSING: Advice = helped(
    "the kubelet registers the Node, or the configured name is put right",
    "See `kubectl get nodes` and the name in `lockkeeper config show`.",
);
const API_UNREACHABLE: Advice = helped(
    "the API server answers; the agent keeps asking",
    "See whether this host reaches the API server: `journalctl -u kubelet`.",
);

const fn nothing_to_do(ends: &'static str) -> Advice {
    Advice { ends, help: None }
}

const fn helped(ends: &'static str, help: &'static str) -> Advice {
    Advice { ends, help: Some(help) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_need_a_person_name_a_command() {
        let reasons = [
            Waiting::Held { origin: HoldOrigin::Command, reason: "disk".to_owned() },
            Waiting::Halted { because: "x".to_owned() },
            Waiting::AttemptLimit { tries: 3 },
            Waiting::NoSlotBackend,
            Waiting::OnlyNodeNotConfirmed,
            Waiting::OtherLockClient("http://slots.example".to_owned()),
            Waiting::ClockNotSynchronised,
            Waiting::Inhibited(Vec::new()),
            Waiting::BootFull { free: 0, needed: 1 },
            Waiting::FinalizeUnitInactive,
            Waiting::LegacyLock,
            Waiting::ConfigWrong("50-x.toml:2: drain.deadline: expected a duration".to_owned()),
            Waiting::HostUnreadable(Vec::new()),
            Waiting::DrainWouldBlock(Vec::new()),
            Waiting::Draining,
            Waiting::RebootUnresolved(String::new()),
            Waiting::KubeletNotReady(None),
            Waiting::NotWell(Vec::new()),
            Waiting::RecordUnwritable(String::new()),
        ];
        for waiting in reasons {
            let advice = advice(&waiting);
            assert!(advice.help.is_some(), "{}: no help", waiting.code());
        }
    }
}
