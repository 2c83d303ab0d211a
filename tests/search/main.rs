//! Exhaustive search of the heart: every order of events in a small world, with every fault that
//! the budget allows, and the promises checked in every state.
//!
//! From every state that was reached the world is also played to its end without further faults:
//! the node must end uncordoned and its slot released, or name what it waits for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm
)]

mod effects;
mod moves;
mod world;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use lockkeeper::lifecycle;
use world::{Heart, World};

/// Steps from any state to its end without faults, at most; a cycle with a denial takes about 60.
const STEPS_TO_REST: usize = 400;

struct Search {
    states: usize,
    deepest: usize,
}

fn key(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Visits every world that can be reached; the first broken promise ends it with its story.
fn search(heart: Heart, first: World, states_max: usize) -> Result<Search, String> {
    let mut parents: HashMap<u64, (u64, String)> = HashMap::new();
    let mut rests: HashMap<u64, ()> = HashMap::new();
    let mut queue = VecDeque::new();
    parents.insert(key(&first), (0, "the world begins".to_owned()));
    queue.push_back((first, 0));
    let mut deepest = 0;
    while let Some((world, depth)) = queue.pop_front() {
        deepest = depth;
        let here = key(&world);
        for (words, next) in world.successors(heart) {
            let story = |broken: &str| format!("{broken}\n{}{words}", tell(&parents, here));
            let next = next.map_err(|broken| story(&broken))?;
            if let Some(broken) = next.check() {
                return Err(story(&broken));
            }
            let there = key(&next);
            if parents.contains_key(&there) {
                continue;
            }
            rest(heart, &next, &mut rests).map_err(|broken| story(&broken))?;
            parents.insert(there, (here, words));
            if parents.len() >= states_max {
                return Ok(Search { states: parents.len(), deepest });
            }
            queue.push_back((next, depth + 1));
        }
    }
    Ok(Search { states: parents.len(), deepest })
}

/// Plays a world to its end without faults: every effect works, the first that can happen happens.
fn rest(heart: Heart, world: &World, known: &mut HashMap<u64, ()>) -> Result<(), String> {
    let mut world = world.clone();
    world.faults = 0;
    let mut path = Vec::new();
    for _ in 0..STEPS_TO_REST {
        if world.halted_for_good() {
            return world.at_rest().map_or(Ok(()), |broken| Err(format!("at rest: {broken}")));
        }
        let here = key(&world);
        if known.contains_key(&here) {
            break;
        }
        path.push(here);
        // The update is staged once in a world, and then time passes only when nothing else does.
        let next = world.successors(heart).into_iter().next();
        let Some((_, next)) = next else {
            if let Some(broken) = world.at_rest() {
                return Err(format!("at rest: {broken}"));
            }
            known.extend(path.into_iter().map(|here| (here, ())));
            return Ok(());
        };
        world = next?;
    }
    if path.len() >= STEPS_TO_REST {
        let stages: Vec<_> = world.hosts.iter().map(world::Host::stage).collect();
        return Err(format!("no rest within {STEPS_TO_REST} steps: {stages:?}"));
    }
    known.extend(path.into_iter().map(|here| (here, ())));
    Ok(())
}

fn tell(parents: &HashMap<u64, (u64, String)>, mut at: u64) -> String {
    let mut lines = Vec::new();
    while let Some((parent, words)) = parents.get(&at) {
        lines.push(words.clone());
        at = *parent;
    }
    lines.reverse();
    lines.iter().map(|line| format!("  {line}\n")).collect::<String>() + "  "
}

fn expect_good(name: &str, first: World, states_max: usize) {
    match search(lifecycle::step, first, states_max) {
        Ok(Search { states, deepest }) => {
            println!("{name}: {states} states, {deepest} steps deep, no promise broken");
        }
        Err(story) => panic!("{name}: {story}"),
    }
}

#[test]
fn one_node_with_two_faults() {
    expect_good("one node, two faults", World::new(1, 2, false), 150_000);
}

#[test]
fn one_node_that_releases_after_a_fallback() {
    expect_good("slot freed after a fallback", World::new(1, 2, false).releasing(), 60_000);
}

#[test]
fn one_node_cordoned_by_a_person() {
    expect_good("a person's cordon, two faults", World::new(1, 2, true), 60_000);
}

/// A promise that was never seen broken proves nothing: each of these hearts is wrong in one way,
/// and the search must say so in the words of that promise.
#[test]
fn broken_hearts_are_found_out() {
    use lockkeeper::fleetlock::SlotAnswer;
    use lockkeeper::lifecycle::{Effect, Event, UncordonAnswer, Verification};

    let takes_no_for_yes: Heart = |policy, state, now, event| {
        let event = match event {
            Event::SlotAnswered(SlotAnswer::Denied { .. }) => {
                Event::SlotAnswered(SlotAnswer::Granted)
            }
            other => other,
        };
        lifecycle::step(policy, state, now, event)
    };
    let believes_in_empty_nodes: Heart = |policy, state, now, event| {
        let event = match event {
            Event::Verified(_) => Event::Verified(Verification::Good),
            other => other,
        };
        lifecycle::step(policy, state, now, event)
    };
    let forgets_the_cordon: Heart = |policy, state, now, event| {
        let mut step = lifecycle::step(policy, state, now, event);
        if step.effects.contains(&Effect::Uncordon) {
            step.effects.retain(|effect| *effect != Effect::Uncordon);
            let told = Event::Uncordoned(UncordonAnswer::Lifted);
            step = lifecycle::step(policy, &step.next, now, told);
        }
        step
    };
    let asks_again: Heart = |policy, state, now, event| {
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
    };
    let does_not_settle: Heart = |policy, state, now, event| {
        let mut state = state.clone();
        if let Some(Ok(node)) = &mut state.view.node {
            node.ready = true;
            node.boot_id = Some(state.boot.id.clone());
        }
        lifecycle::step(policy, &state, now, event)
    };
    let forgives: Heart = |policy, state, now, event| {
        let mut state = state.clone();
        state.record.denied.clear();
        lifecycle::step(policy, &state, now, event)
    };
    let never_gives_back: Heart = |policy, state, now, event| {
        let mut step = lifecycle::step(policy, state, now, event);
        if step.effects.contains(&Effect::ReleaseSlot) {
            step.effects.retain(|effect| *effect != Effect::ReleaseSlot);
            let told = Event::SlotReleased(lockkeeper::fleetlock::ReleaseAnswer::Released);
            step = lifecycle::step(policy, &step.next, now, told);
        }
        step
    };
    let table: [(&str, Heart, World, &str); 7] = [
        ("takes no for yes", takes_no_for_yes, World::new(2, 0, false), "without the slot"),
        ("no last look", believes_in_empty_nodes, World::new(1, 2, false), "pods that should"),
        ("forgets the cordon", forgets_the_cordon, World::new(1, 1, false), "cordon stands"),
        ("asks again", asks_again, World::new(1, 2, false), "reboots twice"),
        ("does not settle", does_not_settle, World::new(1, 0, false), "before it is ready"),
        ("forgives", forgives, World::new(1, 1, false).releasing(), "that fell back"),
        ("never gives back", never_gives_back, World::new(1, 0, false), "keeps the slot"),
    ];
    for (name, heart, first, promise) in table {
        let Err(story) = search(heart, first, 200_000) else {
            panic!("the heart that {name} was not found out");
        };
        let first_line = story.lines().next().unwrap_or_default();
        assert!(first_line.contains(promise), "{name}: {story}");
    }
}

#[test]
fn two_nodes_with_one_slot() {
    expect_good("two nodes, one fault", World::new(2, 1, false), 150_000);
}
