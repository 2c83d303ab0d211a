//! Everything that can wake the agent. An outcome of an effect is an event like any other.

use crate::drain::{Obstacle, Progress};
use crate::fleetlock::{ReleaseAnswer, SlotAnswer};
use crate::model::{BootId, NodeUid, SystemView};

use super::effect::Lane;

/// What can wake the heart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A deadline that a step named has come.
    Woke,
    /// The wall clock was set.
    ClockSet,
    /// Something on the host that a gate looks at may have changed (an inhibitor, a session).
    HostChanged,
    /// The update system was read.
    System(SystemView),
    /// The update system could not be read; the signal source keeps trying.
    SystemUnreadable(String),
    /// The own Node, as the watch sees it.
    Node(NodeView),
    /// The own Node cannot be seen.
    NodeTrouble(NodeTrouble),
    /// The hold file appeared, changed (its text), or went away.
    HoldFile(Option<String>),
    /// logind's `PrepareForShutdown`, or its property at start.
    PreparingForShutdown(bool),
    /// A call of Zincati for leave to reboot is open, or none is any more; told again for each further
    /// call.
    ZincatiWaits(bool),
    /// Zincati says that it runs and needs no slot: it does so when it begins.
    ZincatiSteady,
    /// A person said something over the socket.
    Person(Command),
    /// The record could not be written; dangerous effects of that step were not done.
    RecordUnwritable(String),
    /// The record could be written again.
    RecordWritten,
    /// An effect was not begun, since the record could not be written.
    NotDone(Lane),
    /// The configuration was loaded anew.
    PolicyChanged,

    /// Outcome of [`super::Effect::Inspect`].
    Inspected(HostView),
    /// Outcome of [`super::Effect::ReadBoot`].
    BootRead(BootEvidence),
    /// Outcome of [`super::Effect::ReadNode`].
    NodeRead(Result<NodeView, NodeTrouble>),
    /// Outcome of [`super::Effect::Rehearse`].
    Rehearsed(Rehearsal),
    /// Outcome of [`super::Effect::RequestSlot`].
    SlotAnswered(SlotAnswer),
    /// Outcome of [`super::Effect::ReleaseSlot`].
    SlotReleased(ReleaseAnswer),
    /// Outcome of [`super::Effect::Cordon`].
    Cordoned(CordonAnswer),
    /// A drain goes on.
    DrainProgress(Progress),
    /// Outcome of [`super::Effect::Drain`].
    DrainEnded(DrainEnd),
    /// Outcome of [`super::Effect::VerifyEmpty`].
    Verified(Verification),
    /// Outcome of [`super::Effect::Reboot`].
    RebootAnswered(RebootAnswer),
    /// Outcome of [`super::Effect::AllowZincati`]: whether it was there to hear it.
    ZincatiAllowed(bool),
    /// Outcome of [`super::Effect::UndoReboot`].
    RebootUndone(Result<(), String>),
    /// Outcome of [`super::Effect::CheckHealth`].
    HealthChecked(Health),
    /// Outcome of [`super::Effect::Uncordon`].
    Uncordoned(UncordonAnswer),
    /// Outcome of [`super::Effect::RestoreCordon`]: whether it had been lifted and was put back.
    CordonRestored(Result<bool, String>),
}

/// The own Node, as far as the cycle looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeView {
    /// `metadata.uid`.
    pub uid: NodeUid,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Our mark (`lockkeeper.dev/cordoned-by`): the attempt that cordoned.
    pub mark: Option<String>,
    /// The annotation `lockkeeper.dev/hold`: its text.
    pub hold: Option<String>,
    /// The annotation `lockkeeper.dev/reboot`: a person asks for a reboot, its text is the reason.
    pub reboot: Option<String>,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// Why it is not, in the Node's own words.
    pub not_ready_because: Option<String>,
    /// `status.nodeInfo.bootID`: the boot that the kubelet reported from.
    pub boot_id: Option<BootId>,
}

/// Why the own Node cannot be seen or written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeTrouble {
    /// No usable credential: the file is missing, half or of another shape.
    NoCredential(String),
    /// 401: expired or unknown to the server.
    Refused(String),
    /// 403: known, but not allowed.
    Forbidden(String),
    /// 404: there is no Node of this name.
    Missing(String),
    /// The API server does not answer or fails.
    Unreachable(String),
}

/// A command of a person.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Stay as it is: no attempt goes on, a node that is down stays down.
    Hold {
        /// Why, for those who read the status.
        reason: String,
        /// Who said so (user name of the caller).
        by: String,
    },
    /// End a hold, or a halt after a rollback.
    Resume,
    /// Reboot without an update, by the same cycle.
    Reboot {
        /// Why, for those who read the status.
        reason: String,
        /// Who said so (user name of the caller).
        by: String,
    },
    /// Take a reboot back that was asked for.
    CancelReboot,
    /// Forget back-off, the attempt count and the denial of the target that waits; rehearse now.
    Retry,
}

/// A lock of mode `block` on shutdown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inhibitor {
    /// The program that took it.
    pub who: String,
    /// The reason that it gave.
    pub why: String,
}

/// What the gates look at on the host. What could not be read closes its gate, and so does the
/// default, which knows of nothing: the finalizing unit is not active, the clock not synchronised.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HostView {
    /// Block inhibitors on shutdown that are not our own.
    pub inhibitors: Vec<Inhibitor>,
    /// Users with a session on a terminal, sorted.
    pub users: Vec<String>,
    /// Free space of the file system that holds /boot, bytes; `None` where there is no /boot.
    pub boot_free: Option<u64>,
    /// `ostree-finalize-staged.service` is active, as finalization needs.
    pub finalize_unit_active: bool,
    /// The legacy lock file lies there: the shutdown would drop the update.
    pub legacy_lock: bool,
    /// The kernel calls its clock synchronised.
    pub clock_synchronised: bool,
    /// A Zincati on this host that asks another slot server: its server.
    pub other_lock_client: Option<String>,
    /// logind prepares a shutdown now.
    pub preparing_for_shutdown: bool,
    /// update_engine says that its update waits no longer: what it says instead. It takes updates back
    /// without a word.
    pub update_withdrawn: Option<String>,
    /// Programs on this host that would reboot it by themselves, each a sentence that says what to do.
    pub other_rebooters: Vec<String>,
    /// What is wrong with the configuration on disk: after the reboot it would be all there is.
    pub config_wrong: Option<String>,
    /// What could not be read, and why; any entry closes the gates.
    pub unreadable: Vec<String>,
}

/// What this boot says about the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BootEvidence {
    /// The text with which `ostree-boot-complete.service` failed: finalization failed.
    pub finalize_failure: Option<String>,
}

/// What a rehearsal of the drain found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rehearsal {
    /// Every eviction would be allowed now.
    Passes,
    /// These would not be.
    Blocked(Vec<Obstacle>),
    /// It could not be held.
    Failed(NodeTrouble),
}

/// How a cordon went.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CordonAnswer {
    /// Cordoned with our mark (or it had been, by this attempt).
    Ours,
    /// It was unschedulable without our mark: left as it is.
    Foreign,
    /// The Node has another UID than the one recorded.
    OtherNode(NodeUid),
    /// Not done.
    Failed(NodeTrouble),
}

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DrainEnd {
    /// Nothing is left that it should have removed, and no volume hangs on.
    Empty,
    /// The deadline passed; what stood in the way is in the last progress.
    DeadlinePassed(Progress),
    /// The configuration refuses a pod (`refuse`), or a right is missing: waiting does not help.
    Impossible(Vec<Obstacle>),
    /// It was told to stop.
    Stopped,
}

/// The last look before the reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verification {
    /// Recorded UID, cordoned, empty.
    Good,
    /// The Node is schedulable again.
    Uncordoned,
    /// Pods came back or came late.
    NotEmpty(Vec<Obstacle>),
    /// The Node has another UID than the one recorded.
    OtherNode(NodeUid),
    /// It could not be looked at.
    Failed(NodeTrouble),
}

/// How the reboot's own call was answered. Only `PrepareForShutdown` proves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RebootAnswer {
    /// The call succeeded.
    Accepted,
    /// Refused before anything was changed.
    Refused(String),
    /// No answer came: it may happen or not.
    Unknown(String),
}

/// How well the host is (units and checks; the Node's readiness comes by the watch).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Health {
    /// All units and checks are well.
    Well,
    /// These are not, each a sentence; never empty.
    NotWell(Vec<String>),
}

/// How an uncordon went.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UncordonAnswer {
    /// Lifted: it carried our mark.
    Lifted,
    /// Schedulable already; a left-over mark of ours was removed.
    AlreadySchedulable,
    /// Unschedulable without our mark: a person's, left alone.
    Foreign,
    /// There is no such Node.
    NoNode,
    /// Not done.
    Failed(NodeTrouble),
}

/// What the shell knows when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Start {
    /// The boot that runs.
    pub boot: super::record::BootMark,
    /// A kubelet unit exists on the host (`auto` decides by it).
    pub kubelet_unit: bool,
    /// Why an existing record was set aside, if it was.
    pub record_set_aside: Option<String>,
    /// What is wrong with the configuration, if something is.
    pub config_wrong: Option<ConfigWrong>,
    /// Seed of this host's jitter.
    pub seed: u64,
}

/// A configuration that is only used as far as it is right.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConfigWrong {
    /// What is wrong, for people: file, key and what was expected.
    pub what: String,
    /// It may say how a well node is known, so that none can be called well.
    pub settle_unknown: bool,
}

impl NodeTrouble {
    /// Whether it is no news beside `other`: the text of an API server that is not reached varies
    /// with each try.
    pub fn is_like(&self, other: &Self) -> bool {
        let unreachable = |trouble: &Self| matches!(trouble, Self::Unreachable(_));
        self == other || (unreachable(self) && unreachable(other))
    }

    /// A bounded word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoCredential(_) => "no-credential",
            Self::Refused(_) => "credential-refused",
            Self::Forbidden(_) => "forbidden",
            Self::Missing(_) => "node-missing",
            Self::Unreachable(_) => "api-unreachable",
        }
    }

    /// The sentence for people.
    pub fn text(&self) -> &str {
        match self {
            Self::NoCredential(text)
            | Self::Refused(text)
            | Self::Forbidden(text)
            | Self::Missing(text)
            | Self::Unreachable(text) => text,
        }
    }
}
