//! Parts that are broken on purpose: each must be found out.

use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{self, Effect, Event, Policy, Stage, State, Step};
use lockkeeper::model::Now;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Nothing.
    Nothing,
    /// The server forgets what it granted when it is killed.
    ServerForgets,
    /// The server answers before what it says is on disk.
    ServerAnswersBeforeItWrites,
    /// The server grants one slot more after each restart.
    ServerGrantsOneMore,
    /// The agent takes the kubelet's word from before the boot.
    AgentDoesNotSettle,
    /// The agent takes a lost answer for a denial, and never gives the slot back.
    AgentNeverGivesBack,
    /// The agent forgets its deny list.
    AgentForgives,
    /// The agent forgets how often it tried.
    AgentForgetsTries,
    /// The agent asks for its reboot again where it should undo it.
    AgentAsksTwice,
    /// The agent takes every answer for a grant.
    AgentTakesNoForYes,
    /// The agent lifts every cordon.
    AgentLiftsAll,
    /// The agent says that it uncordoned, and did not.
    AgentLeavesItsCordon,
    /// The agent sets no time to come back.
    AgentOversleeps,
    /// The agent writes its record after what follows from it.
    AgentWritesLate,
}

/// Each of them, and the words of the promise that it breaks.
pub(crate) const TABLE: [(Broken, &str); 13] = [
    (Broken::ServerForgets, "without a slot (promise 1)"),
    (Broken::ServerAnswersBeforeItWrites, "without a slot (promise 1)"),
    (Broken::ServerGrantsOneMore, "more nodes down than the group allows (promise 2)"),
    (Broken::AgentLiftsAll, "a person's cordon was lifted (promise 3)"),
    (Broken::AgentNeverGivesBack, "keeps a slot that it needs no longer (promise 4)"),
    (Broken::AgentAsksTwice, "reboots twice for one attempt (promise 5)"),
    (Broken::AgentWritesLate, "(promise 5)"),
    (Broken::AgentForgetsTries, "reboots into one target without end (promise 5)"),
    (Broken::AgentDoesNotSettle, "gives the slot back before it is well (promise 6)"),
    (Broken::AgentLeavesItsCordon, "gives the slot back while its cordon stands (promise 6)"),
    (Broken::AgentForgives, "reboots into a target that fell back (promise 7)"),
    (Broken::AgentTakesNoForYes, "evicts without the slot (promise 1)"),
    (Broken::AgentOversleeps, "nothing will wake it (promise 8)"),
];

// === impl Broken ===

impl Broken {
    /// One step of the heart, or of a heart that is wrong in this way.
    pub(crate) fn step(self, policy: &Policy, state: &State, now: Now, event: Event) -> Step {
        match self {
            Self::Nothing
            | Self::ServerForgets
            | Self::ServerAnswersBeforeItWrites
            | Self::ServerGrantsOneMore
            | Self::AgentLeavesItsCordon
            | Self::AgentWritesLate
            | Self::AgentLiftsAll => lifecycle::step(policy, state, now, event),
            Self::AgentDoesNotSettle => {
                let mut state = state.clone();
                if let Some(Ok(node)) = &mut state.view.node {
                    (node.ready, node.boot_id) = (true, Some(state.boot.id.clone()));
                }
                lifecycle::step(policy, &state, now, event)
            }
            Self::AgentNeverGivesBack => {
                let mut step = lifecycle::step(policy, state, now, event);
                let releases = step.effects.contains(&Effect::ReleaseSlot);
                if releases && step.next.record.core.stage == Stage::Releasing {
                    step.effects.retain(|effect| *effect != Effect::ReleaseSlot);
                    let told = Event::SlotReleased(ReleaseAnswer::Released);
                    step = lifecycle::step(policy, &step.next, now, told);
                }
                step
            }
            Self::AgentForgives => {
                let mut state = state.clone();
                state.record.denied.clear();
                state.record.tries.clear();
                lifecycle::step(policy, &state, now, event)
            }
            Self::AgentForgetsTries => {
                let mut state = state.clone();
                state.record.tries.clear();
                lifecycle::step(policy, &state, now, event)
            }
            Self::AgentAsksTwice => {
                let mut step = lifecycle::step(policy, state, now, event);
                for effect in &mut step.effects {
                    let attempt = step.next.record.core.attempt.as_ref();
                    if let (Effect::UndoReboot { target }, Some(attempt)) = (&effect, attempt) {
                        let (attempt, target) = (attempt.id.clone(), target.clone());
                        *effect = Effect::Reboot { attempt, target };
                    }
                }
                step
            }
            Self::AgentTakesNoForYes => {
                let denied = matches!(event, Event::SlotAnswered(SlotAnswer::Denied { .. }));
                let granted = Event::SlotAnswered(SlotAnswer::Granted);
                let event = if denied { granted } else { event };
                lifecycle::step(policy, state, now, event)
            }
            Self::AgentOversleeps => {
                let mut step = lifecycle::step(policy, state, now, event);
                step.wake = None;
                step
            }
        }
    }
}
