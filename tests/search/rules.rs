//! What can happen in a world, and the configuration that its agents have.

use std::time::Duration;

use lockkeeper::lifecycle::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
use lockkeeper::schedule::Windows;

/// Faults beyond those that can come in every world: crashes, lost answers, refusals, servers that are
/// away, power cuts, bad boots, an update that is withdrawn, a person who uncordons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person cordons the Node.
    PersonCordons,
    /// A person reboots the host.
    PersonReboots,
    /// The slot server forgets a grant and gives the slot to somebody else.
    ServerForgets,
    /// The disk is full for a while.
    DiskFull,
    /// The record is lost.
    RecordLost,
    /// The host goes back to a snapshot.
    Snapshot,
    /// The Node is deleted and registers again.
    NodeReplaced,
    /// A newer update takes the place of the staged one.
    NewerUpdate,
    /// The wall clock is set a day ahead.
    ClockAhead,
    /// The wall clock is set a day back.
    ClockBack,
    /// A program blocks the shutdown for good.
    StaysInhibited,
    /// Pods never leave.
    PodsStay,
}

/// One world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Its name, for people.
    pub(crate) name: &'static str,
    /// Faults that a path may hold, by host.
    pub(crate) faults: &'static [u8],
    /// How often each node goes round; 0: again and again.
    pub(crate) rounds: u8,
    /// What can happen without a fault happens before time passes.
    pub(crate) prompt: bool,
    /// Further kinds of faults.
    pub(crate) kinds: &'static [Kind],
    /// Zincati decides when.
    pub(crate) zincati: bool,
    /// A person cordoned the Nodes before.
    pub(crate) person_cordoned: bool,
    /// The slot server cordons what it grants, and its release lifts any cordon.
    pub(crate) server_cordons: bool,
    /// After a fallback.
    pub(crate) after_rollback: AfterRollback,
    /// After the drain's deadline.
    pub(crate) on_deadline: OnDeadline,
    /// When somebody uncordons.
    pub(crate) on_foreign_uncordon: OnForeignUncordon,
}

/// One host, two faults of the kinds that come everywhere.
pub(crate) const PLAIN: Rules = Rules {
    name: "one node",
    faults: &[2],
    rounds: 0,
    prompt: false,
    kinds: &[],
    zincati: false,
    person_cordoned: false,
    server_cordons: false,
    after_rollback: AfterRollback::Halt,
    on_deadline: OnDeadline::Yield,
    on_foreign_uncordon: OnForeignUncordon::Yield,
};

impl Kind {
    /// The words for it in a story.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::PersonCordons => "a person cordons",
            Self::PersonReboots => "a person reboots the host",
            Self::ServerForgets => "the server forgets, and grants to another",
            Self::DiskFull => "the disk is full",
            Self::RecordLost => "agent is killed, its record is lost",
            Self::Snapshot => "the snapshot is restored",
            Self::NodeReplaced => "the Node is deleted",
            Self::NewerUpdate => "a newer update is staged",
            Self::ClockAhead => "the clock is set a day ahead",
            Self::ClockBack => "the clock is set a day back",
            Self::StaysInhibited => "a program blocks the shutdown for good",
            Self::PodsStay => "pods stay for good",
        }
    }
}

/// Two hosts that want the one slot, each until it has gone round.
pub(crate) const TWO: Rules =
    Rules { name: "two nodes, one slot", faults: &[0, 0], rounds: 1, prompt: true, ..PLAIN };

/// Where no further update comes, so that what a node keeps after the first it keeps for good.
pub(crate) const ONCE: Rules =
    Rules { name: "one node, one update", rounds: 1, prompt: true, ..PLAIN };

/// Where a fallback frees the slot.
pub(crate) const RELEASING: Rules = Rules {
    name: "one node, slot freed after a fallback",
    after_rollback: AfterRollback::Release,
    ..PLAIN
};

const fn rare(name: &'static str, kinds: &'static [Kind]) -> Rules {
    Rules { name, kinds, faults: &[1], ..PLAIN }
}

/// Where the slot server cordons what it grants, and its release lifts also what a person cordoned.
pub(crate) const SERVER_CORDONS: Rules = Rules {
    server_cordons: true,
    person_cordoned: true,
    ..rare("one node, a person and the server cordon", &[])
};

/// Where Zincati decides when. Time passes only when nothing else can happen, since it acts on the leave
/// that it has, or is gone, long before its time is over.
pub(crate) const BRIDGED: Rules =
    Rules { name: "one node, Zincati decides when", zincati: true, prompt: true, ..PLAIN };

/// Where a shutdown is blocked for good.
pub(crate) const INHIBITED: Rules =
    rare("one node, a program blocks the shutdown", &[Kind::StaysInhibited]);

/// Worlds with one thing that comes rarely, or with another answer in the configuration.
pub(crate) const RARE: [Rules; 16] = [
    rare("one node, a person cordons", &[Kind::PersonCordons]),
    rare("one node, a person reboots", &[Kind::PersonReboots]),
    rare("one node, a newer update", &[Kind::NewerUpdate]),
    rare("one node, the clock jumps", &[Kind::ClockAhead, Kind::ClockBack]),
    rare("one node, the server forgets", &[Kind::ServerForgets]),
    rare("one node, the disk is full", &[Kind::DiskFull]),
    rare("one node, its record is lost", &[Kind::RecordLost]),
    rare("one node, a snapshot is restored", &[Kind::Snapshot]),
    rare("one node, the Node is replaced", &[Kind::NodeReplaced]),
    INHIBITED,
    rare("one node, pods stay", &[Kind::PodsStay]),
    Rules { server_cordons: true, ..rare("one node, the server cordons", &[]) },
    SERVER_CORDONS,
    Rules {
        on_deadline: OnDeadline::Delete,
        ..rare("one node, deletes what stays", &[Kind::PodsStay])
    },
    Rules {
        on_deadline: OnDeadline::Reboot,
        ..rare("one node, reboots whatever stays", &[Kind::PodsStay])
    },
    Rules {
        on_foreign_uncordon: OnForeignUncordon::Cordon,
        ..rare("one node, cordons again", &[])
    },
];

impl Rules {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            kubernetes: KubernetesPolicy::Required,
            slot: SlotPolicy::Server,
            slot_place: Some("server".to_owned()),
            answer_timeout: Duration::from_secs(600),
            confirm_every: Duration::from_secs(300),
            denial_retry: Duration::from_secs(30),
            windows: Windows::default(),
            drain_deadline: Duration::from_secs(900),
            on_deadline: self.on_deadline,
            delete_timeout: Duration::from_secs(60),
            on_foreign_uncordon: self.on_foreign_uncordon,
            rehearsal_every: Duration::from_secs(600),
            reboot_estimate: Duration::from_secs(300),
            shutdown_wait: Duration::from_secs(60),
            zincati: self.zincati,
            users: OnUsers::Wait,
            minimum_uptime: Duration::ZERO,
            boot_free: 0,
            settle_time: Duration::from_secs(30),
            settle_deadline: Duration::from_secs(600),
            check_every: Duration::from_secs(60),
            attempt_limit: 2,
            backoff_first: Duration::from_secs(300),
            backoff_max: Duration::from_secs(3600),
            after_rollback: self.after_rollback,
        }
    }
}
