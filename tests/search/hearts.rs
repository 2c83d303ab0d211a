//! Hearts that are wrong in one way each. A promise that was never seen broken proves nothing: the search
//! must find each of them out, in the words of the promise that it breaks.

use std::time::Duration;

use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    self, Cordon, DrainEnd, Effect, Event, Health, Lane, Policy, Slot, Stage, State, Step,
    UncordonAnswer, Verification,
};
use lockkeeper::model::Now;

use crate::rules::{BRIDGED, INHIBITED, Kind, ONCE, PLAIN, RELEASING, Rules, SERVER_CORDONS, TWO};
use crate::world::Heart;

type StepOf = fn(&Policy, &State, Now, Event) -> Step;

/// A heart that is wrong, and where that shows.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The promise that it breaks.
    pub(crate) promise: u8,
    /// What it does wrong: "the heart that …".
    pub(crate) what: &'static str,
    /// The heart.
    pub(crate) heart: Heart,
    /// The world in which it is searched for.
    pub(crate) rules: Rules,
}

const SERVER_FORGETS: Rules = Rules { kinds: &[Kind::ServerForgets], ..PLAIN };
const BRIDGE_FORGETS: Rules = Rules { kinds: &[Kind::ServerForgets], ..BRIDGED };
const NO_FAULT: Rules = Rules { faults: &[0], ..PLAIN };

/// All of them, by promise.
pub(crate) fn wrong_hearts() -> Vec<Wrong> {
    let wrong = |promise, what, step: StepOf, rules| {
        let heart = Heart { step, writes_late: false };
        Wrong { promise, what, heart, rules }
    };
    let late = Heart { step: lifecycle::step, writes_late: true };
    vec![
        wrong(1, "takes no for yes", takes_no_for_yes, TWO),
        wrong(1, "goes on draining after a restart without asking", never_confirms, SERVER_FORGETS),
        wrong(1, "does not confirm the slot before the reboot", trusts_its_slot, SERVER_FORGETS),
        wrong(1, "leaves out the last look", believes_in_empty_nodes, PLAIN),
        wrong(2, "takes no for yes", takes_no_for_yes, TWO),
        wrong(3, "does not look after a person's cordon", never_restores, SERVER_CORDONS),
        wrong(3, "does not note a person's cordon", notes_no_cordon, SERVER_CORDONS),
        wrong(4, "forgets its cordon", forgets_the_cordon, PLAIN),
        wrong(4, "yields without uncordoning", yields_cordoned, PLAIN),
        wrong(4, "never gives the slot back", never_gives_back, NO_FAULT),
        wrong(4, "forgets the request whose answer was lost", forgets_what_was_lost, ONCE),
        Wrong { promise: 4, what: "acts before its record is written", heart: late, rules: PLAIN },
        wrong(5, "asks for the reboot again instead of undoing it", asks_again, PLAIN),
        wrong(5, "reboots again after a crash", reboots_after_a_crash, PLAIN),
        wrong(5, "does not count its tries", never_counts, PLAIN),
        wrong(6, "releases as soon as it runs again", releases_at_once, NO_FAULT),
        wrong(6, "takes every node for ready", takes_all_for_ready, NO_FAULT),
        wrong(6, "does not look at units and checks", never_looks, NO_FAULT),
        wrong(6, "does not let the node settle", never_settles, NO_FAULT),
        wrong(7, "forgives what fell back", forgives, RELEASING),
        wrong(8, "never sets its alarm", never_wakes, NO_FAULT),
        wrong(8, "ignores the drain's deadline", ignores_the_deadline, INHIBITED),
        wrong(
            1,
            "gives Zincati leave without confirming the slot",
            trusts_its_slot,
            BRIDGE_FORGETS,
        ),
        wrong(1, "gives Zincati leave without the last look", believes_in_empty_nodes, BRIDGED),
        wrong(4, "waits for Zincati for ever", waits_for_ever, BRIDGED),
        wrong(9, "takes any news for a Zincati that began anew", hears_zincati_begin, BRIDGED),
        wrong(9, "forgets over a restart that Zincati has leave", forgets_the_leave, BRIDGED),
    ]
}

fn takes_no_for_yes(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let event = match event {
        Event::SlotAnswered(SlotAnswer::Denied { .. }) => Event::SlotAnswered(SlotAnswer::Granted),
        other => other,
    };
    lifecycle::step(policy, state, now, event)
}

fn never_confirms(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    if state.record.core.stage == Stage::Draining {
        state.run.confirmed.get_or_insert(now.since_boot);
    }
    lifecycle::step(policy, &state, now, event)
}

fn trusts_its_slot(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    if state.run.drained || matches!(event, Event::DrainEnded(_)) {
        state.run.confirmed = Some(now.since_boot);
    }
    lifecycle::step(policy, &state, now, event)
}

fn waits_for_ever(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    if state.run.reboot_answered.is_some() {
        state.run.reboot_answered = Some(now.since_boot);
    }
    lifecycle::step(policy, &state, now, event)
}

fn hears_zincati_begin(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let event = match event {
        Event::Node(_) | Event::System(_) if state.run.reboot_answered.is_some() => {
            Event::ZincatiSteady
        }
        other => other,
    };
    lifecycle::step(policy, state, now, event)
}

/// After a restart it undoes what it takes for a reboot of its own.
fn forgets_the_leave(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    let read = matches!(event, Event::System(_));
    if read && state.record.core.stage == Stage::Rebooting && state.view.system.is_none() {
        state.run.undo = Some("the agent was restarted".to_owned());
    }
    lifecycle::step(policy, &state, now, event)
}

fn believes_in_empty_nodes(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let event = match event {
        Event::Verified(_) => Event::Verified(Verification::Good),
        other => other,
    };
    lifecycle::step(policy, state, now, event)
}

/// Asks for the release in the first step after a boot, and settles then.
fn releases_at_once(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    let held = state.record.core.slot != Slot::None;
    if state.record.core.stage == Stage::Settling && held && !state.in_flight.contains(&Lane::Slot)
    {
        state.record.core.slot = Slot::None;
        state.in_flight.insert(Lane::Slot);
        let mut step = lifecycle::step(policy, &state, now, event);
        step.effects.push(Effect::ReleaseSlot);
        return step;
    }
    lifecycle::step(policy, &state, now, event)
}

fn never_restores(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let step = lifecycle::step(policy, state, now, event);
    pretend(policy, now, step, &Effect::RestoreCordon, Event::CordonRestored(Ok(false)))
}

fn notes_no_cordon(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut step = lifecycle::step(policy, state, now, event);
    if step.next.record.core.cordon == Cordon::Foreign {
        step.next.record.core.cordon = Cordon::None;
    }
    step
}

fn forgets_the_cordon(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let step = lifecycle::step(policy, state, now, event);
    pretend(policy, now, step, &Effect::Uncordon, Event::Uncordoned(UncordonAnswer::Lifted))
}

fn yields_cordoned(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let step = lifecycle::step(policy, state, now, event);
    if step.next.record.core.stage != Stage::Yielding {
        return step;
    }
    pretend(policy, now, step, &Effect::Uncordon, Event::Uncordoned(UncordonAnswer::Lifted))
}

fn never_gives_back(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let step = lifecycle::step(policy, state, now, event);
    let told = Event::SlotReleased(ReleaseAnswer::Released);
    pretend(policy, now, step, &Effect::ReleaseSlot, told)
}

fn forgets_what_was_lost(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    state.record.release_again = None;
    state.view.lost_request_ends = None;
    lifecycle::step(policy, &state, now, event)
}

fn asks_again(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut step = lifecycle::step(policy, state, now, event);
    for effect in &mut step.effects {
        if let (Effect::UndoReboot { target }, Some(attempt)) =
            (&*effect, &step.next.record.core.attempt)
        {
            let (attempt, target) = (attempt.id.clone(), target.clone());
            *effect = Effect::Reboot { attempt, target };
        }
    }
    step
}

fn reboots_after_a_crash(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    let restarted = state.run.undo.as_ref().is_some_and(|why| why.contains("restarted"));
    if state.record.core.stage == Stage::Rebooting && restarted {
        state.run.undo = None;
        state.in_flight.remove(&Lane::Reboot);
    }
    lifecycle::step(policy, &state, now, event)
}

fn never_counts(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    state.record.tries.clear();
    lifecycle::step(policy, &state, now, event)
}

fn takes_all_for_ready(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    let boot = state.boot.id.clone();
    if let Some(Ok(node)) = &mut state.view.node {
        node.ready = true;
        node.boot_id = Some(boot.clone());
    }
    let event = match event {
        Event::Node(node) => {
            Event::Node(lifecycle::NodeView { ready: true, boot_id: Some(boot), ..node })
        }
        other => other,
    };
    lifecycle::step(policy, &state, now, event)
}

fn never_looks(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let step = lifecycle::step(policy, state, now, event);
    pretend(policy, now, step, &Effect::CheckHealth, Event::HealthChecked(Health::Well))
}

fn never_settles(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let policy = Policy { settle_time: Duration::ZERO, ..policy.clone() };
    lifecycle::step(&policy, state, now, event)
}

fn forgives(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    state.record.denied.clear();
    lifecycle::step(policy, &state, now, event)
}

fn never_wakes(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    Step { wake: None, ..lifecycle::step(policy, state, now, event) }
}

fn ignores_the_deadline(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut state = state.clone();
    if state.record.drain_began.is_some() {
        state.record.drain_began = Some(now.since_boot.as_secs());
        state.run.drained_at =
            state.run.drained_at.max(now.since_boot.saturating_sub(Duration::from_secs(1)));
    }
    let event = match event {
        Event::DrainEnded(DrainEnd::DeadlinePassed(_)) => Event::DrainEnded(DrainEnd::Stopped),
        other => other,
    };
    lifecycle::step(policy, &state, now, event)
}

/// Leaves an effect out and says that it happened.
fn pretend(policy: &Policy, now: Now, mut step: Step, effect: &Effect, told: Event) -> Step {
    if !step.effects.contains(effect) {
        return step;
    }
    step.effects.retain(|other| other != effect);
    let then = lifecycle::step(policy, &step.next, now, told);
    step.effects.extend(then.effects);
    step.transitions.extend(then.transitions);
    let Step { effects, transitions, .. } = step;
    Step { effects, transitions, ..then }
}
