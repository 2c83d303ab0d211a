//! What the heart knows: the record, what the signals last said, and what is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::drain::{Obstacle, Progress};
use crate::fleetlock::SlotAnswer;
use crate::model::{AttemptId, SystemView, Target};

use super::effect::{Effect, Lane};
use super::event::{BootEvidence, ConfigWrong, Health, HostView, NodeTrouble, NodeView};
use super::record::{BootMark, Outcome, Record, Stage};
use super::waiting::Waiting;

/// The whole memory of the heart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// What is kept on disk.
    pub record: Record,
    /// The boot that runs.
    pub boot: BootMark,
    /// A kubelet unit exists on this host.
    pub kubelet_unit: bool,
    /// Seed of this host's jitter.
    pub seed: u64,
    /// What the signals last said.
    pub view: View,
    /// What is under way in this stage; begins empty with each stage.
    pub run: Run,
    /// Effects under way, one a lane at most.
    pub in_flight: BTreeSet<Lane>,
    /// Lanes that rest before they try again, `CLOCK_BOOTTIME`.
    pub not_before: BTreeMap<Lane, Duration>,
    /// Failures in a row, by lane.
    pub failures: BTreeMap<Lane, u32>,
    /// Why the record cannot be written, while it cannot.
    pub unwritable: Option<String>,
    /// What is wrong with the configuration that this process began with, until one is loaded anew.
    pub config_wrong: Option<ConfigWrong>,
    /// Since when the current reason has held, wall time.
    pub waiting_since: Option<(&'static str, Timestamp)>,
}

/// What the signals last said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct View {
    /// The update system; `None` before its first read.
    pub system: Option<SystemView>,
    /// Why it could not be read last.
    pub system_trouble: Option<String>,
    /// The own Node.
    pub node: Option<Result<NodeView, NodeTrouble>>,
    /// Text of the hold file.
    pub hold_file: Option<String>,
    /// What Zincati asks.
    pub zincati: ZincatiView,
    /// logind is going down.
    pub preparing_for_shutdown: bool,
    /// The host's gates and when they were looked at.
    pub host: Option<(HostView, Duration)>,
    /// Something changed since the last look began: it is shown, and opens no gate.
    pub host_changed: bool,
    /// Evidence of the last boot.
    pub evidence: Option<BootEvidence>,
    /// The last rehearsal and when it was held.
    pub rehearsal: Option<(Rehearsed, Duration)>,
    /// Rehearsals in a row that were blocked.
    pub blocked_rehearsals: u32,
    /// How far the drain of this attempt is.
    pub progress: Option<Progress>,
    /// When a request whose answer was lost must have ended, by the time since boot. Nothing where a
    /// process before this one lost it: then the record's wall time counts.
    pub lost_request_ends: Option<Duration>,
    /// Before the request that went out last, no slot could be ours: if that one certainly was not
    /// granted, none can be now.
    pub asked_first: bool,
    /// The last answer of the slot server that was no grant.
    pub slot_answer: Option<SlotAnswer>,
    /// Units and checks.
    pub health: Option<Health>,
}

/// What Zincati asks of its slot server, which this agent is. Times are `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZincatiView {
    /// It waits for an answer right now: until it has one, it does not reboot.
    pub waits: bool,
    /// When it asked last, or when its last call ended.
    pub asked: Option<Duration>,
}

/// The result of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rehearsed {
    /// It passes.
    Passes,
    /// It would block.
    Blocked(Vec<Obstacle>),
    /// It could not be held.
    Failed(NodeTrouble),
}

/// What is under way in one stage. Deadlines are `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Run {
    /// When the stage began (for this process).
    pub began: Duration,
    /// The Node was read freshly for the request.
    pub node_read: bool,
    /// The cordon is in place.
    pub cordoned: bool,
    /// The drain has ended with nothing left.
    pub drained: bool,
    /// The deadline passed and the policy lets pods stay.
    pub pods_may_stay: bool,
    /// The deadline passed and the policy deletes.
    pub deleting: bool,
    /// When the drain ended.
    pub drained_at: Duration,
    /// When the slot was last confirmed in this stage.
    pub confirmed: Option<Duration>,
    /// The Node was seen schedulable, gone or another one: old news of the watch, or somebody's doing.
    pub doubt_node: bool,
    /// What came that turns the attempt back.
    pub broken: Option<(Because, String)>,
    /// The last look was good.
    pub verified: bool,
    /// The drain was told to stop.
    pub stopping: bool,
    /// Zincati was gone before it could be told that it may reboot.
    pub zincati_missed: bool,
    /// Zincati has begun anew since it was told that it may reboot.
    pub zincati_restarted: bool,
    /// When the call that reboots was answered, without a refusal.
    pub reboot_answered: Option<Duration>,
    /// The reboot must be undone: why.
    pub undo: Option<String>,
    /// Undoing failed: why.
    pub undo_failed: Option<String>,
    /// It is undone.
    pub undone: bool,
    /// Since when the node has been well without a break.
    pub well_since: Option<Duration>,
    /// When units and checks were last looked at.
    pub checked: Option<Duration>,
    /// Why the Node could not be written last.
    pub node_trouble: Option<NodeTrouble>,
    /// The cordon has been lifted, or was not ours.
    pub uncordoned: bool,
    /// The host was looked at before a release without an attempt.
    pub other_client_checked: bool,
    /// Why the release was not confirmed last: a bounded word and a sentence.
    pub release_trouble: Option<(String, String)>,
    /// A request under way was replaced by the release.
    pub preempted: bool,
    /// A person's cordon was looked after.
    pub cordon_restored: bool,
}

/// A change of stage, for the journal, Events and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transition {
    /// From where.
    pub from: Stage,
    /// To where.
    pub to: Stage,
    /// A bounded word: why.
    pub because: Because,
    /// More, for people.
    pub detail: Option<String>,
    /// The attempt.
    pub attempt: Option<AttemptId>,
    /// Its target.
    pub target: Option<Target>,
    /// How the attempt ended, if it did.
    pub outcome: Option<Outcome>,
}

/// Why a stage ended: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Because {
    /// An update was staged.
    UpdateSeen,
    /// The update went away.
    UpdateWithdrawn,
    /// All gates are open and the rehearsal passes.
    GatesOpen,
    /// A gate closed.
    GateClosed,
    /// A person holds the node.
    Held,
    /// The slot was granted.
    Granted,
    /// The slot server denied what it had granted.
    SlotLost,
    /// The slot server could not be reached until the deadline.
    SlotUnconfirmed,
    /// The node is empty and the last look was good.
    NodeEmpty,
    /// The drain did not finish by its deadline.
    DrainDeadline,
    /// The drain can never finish.
    DrainImpossible,
    /// Somebody made the Node schedulable.
    ForeignUncordon,
    /// The Node is another one than the attempt began with.
    OtherNode,
    /// The reboot was refused.
    RebootRefused,
    /// Zincati asks again, or was gone before its answer: everything is looked at anew.
    ZincatiAsksAgain,
    /// The reboot did not come and was undone.
    RebootNeverCame,
    /// The reboot neither comes nor can be undone.
    RebootUnresolved,
    /// The agent started in a new boot.
    NewBoot,
    /// The record is missing or was set aside.
    NoRecord,
    /// The node is well.
    Well,
    /// The node did not become well in time.
    NotWell,
    /// The cordon is lifted or was not ours.
    Uncordoned,
    /// The slot is released.
    Released,
    /// The target fell back and the policy halts.
    FellBack,
    /// A person said `resume`.
    Resumed,
    /// The record cannot be written.
    RecordUnwritable,
}

/// When the heart wants to be woken, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wake {
    /// From now.
    pub after: Duration,
    /// What for.
    pub reason: &'static str,
}

/// What one step decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The state from now on; its record is written before the effects that need it.
    pub next: State,
    /// What to do, in this order.
    pub effects: Vec<Effect>,
    /// Changes of stage, in order.
    pub transitions: Vec<Transition>,
    /// Why nothing more is done.
    pub waiting: Waiting,
    /// When to come back, at the latest.
    pub wake: Option<Wake>,
}

impl Because {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpdateSeen => "update-seen",
            Self::UpdateWithdrawn => "update-withdrawn",
            Self::GatesOpen => "gates-open",
            Self::GateClosed => "gate-closed",
            Self::Held => "held",
            Self::Granted => "granted",
            Self::SlotLost => "slot-lost",
            Self::SlotUnconfirmed => "slot-unconfirmed",
            Self::NodeEmpty => "node-empty",
            Self::DrainDeadline => "drain-deadline",
            Self::DrainImpossible => "drain-impossible",
            Self::ForeignUncordon => "foreign-uncordon",
            Self::OtherNode => "other-node",
            Self::RebootRefused => "reboot-refused",
            Self::ZincatiAsksAgain => "zincati-asks-again",
            Self::RebootNeverCame => "reboot-never-came",
            Self::RebootUnresolved => "reboot-unresolved",
            Self::NewBoot => "new-boot",
            Self::NoRecord => "no-record",
            Self::Well => "well",
            Self::NotWell => "not-well",
            Self::Uncordoned => "uncordoned",
            Self::Released => "released",
            Self::FellBack => "fell-back",
            Self::Resumed => "resumed",
            Self::RecordUnwritable => "record-unwritable",
        }
    }
}
