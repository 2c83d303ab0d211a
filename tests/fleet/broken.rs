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
    /// The server grants one slot more after each restart.
    ServerGrantsOneMore,
    /// The agent takes the kubelet's word from before the boot.
    AgentDoesNotSettle,
    /// The agent takes a lost answer for a denial, and never gives the slot back.
    AgentNeverGivesBack,
    /// The agent forgets its deny list.
    AgentForgives,
    /// The agent takes every answer for a grant.
    AgentTakesNoForYes,
    /// The agent lifts every cordon.
    AgentLiftsAll,
}

// === impl Broken ===

impl Broken {
    /// One step of the heart, or of a heart that is wrong in this way.
    pub(crate) fn step(self, policy: &Policy, state: &State, now: Now, event: Event) -> Step {
        match self {
            Self::Nothing
            | Self::ServerForgets
            | Self::ServerGrantsOneMore
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
            Self::AgentTakesNoForYes => {
                let event = match event {
                    Event::SlotAnswered(SlotAnswer::Denied { .. }) => {
                        Event::SlotAnswered(SlotAnswer::Granted)
                    }
                    other => other,
                };
                lifecycle::step(policy, state, now, event)
            }
        }
    }
}
