//! The heart: one pure function from state, time and event to the next state and its effects.

mod after;
mod before;
mod down;
mod effect;
mod event;
mod gates;
mod heart;
mod node;
mod people;
mod policy;
mod record;
mod recover;
mod state;
mod step;
#[cfg(test)]
pub(crate) mod tests;
mod verdict;
mod waiting;
mod zincati;

pub use effect::{Effect, Lane};
pub use event::{
    BootEvidence, Command, ConfigWrong, CordonAnswer, DrainEnd, Event, Health, HostView, Inhibitor,
    NodeTrouble, NodeView, RebootAnswer, Rehearsal, Start, UncordonAnswer, Verification,
};
pub use people::answer;
pub use policy::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
pub use record::{
    Asked, Attempt, BootMark, Cordon, Core, Denial, Finished, HISTORY_LENGTH, Hold, Outcome,
    Record, Slot, Stage, StageTime,
};
pub use recover::start;
pub use state::{Because, Rehearsed, Run, State, Step, Transition, View, Wake, ZincatiView};
pub use step::step;
pub use waiting::{HoldOrigin, Waiting};
