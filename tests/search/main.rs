//! Exhaustive search of the heart: every order of events in a small world, with every fault that
//! the budget allows, and the promises checked in every state.
//!
//! From every state that was reached the world is also played to its end without further faults:
//! the node must end uncordoned and its slot released, or name what it waits for.
//!
//! A world of one node is searched until there is no further state. `SEARCH_DEEP=1` goes deeper where two
//! nodes are too many for that.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm
)]

mod check;
mod effects;
mod engine;
mod hearts;
mod moves;
mod report;
mod rules;
mod time;
mod world;

use engine::{Found, search};
use hearts::Wrong;
use lockkeeper::lifecycle::{self, Outcome};
use report::ended;
use rules::{PLAIN, RELEASING, Rules};
use world::{Heart, Play};

const HEART: Heart = Heart { step: lifecycle::step, writes_late: false };

/// More than any of these worlds has.
const STEPS_MAX: usize = 2000;
const STATES_MAX: usize = 20_000_000;

fn deep() -> bool {
    std::env::var_os("SEARCH_DEEP").is_some()
}

fn explore(rules: Rules, steps_max: usize) -> Found {
    search(&Play::new(HEART, rules), steps_max, STATES_MAX)
        .unwrap_or_else(|story| panic!("{}: {story}", rules.name))
}

/// Searches a world of one node to its last state: no promise is broken, and nodes went round, also with
/// every fault on the way.
fn exhaust(rules: Rules) -> Found {
    let found = explore(rules, STEPS_MAX);
    let lacks = lacks(&rules, &found);
    assert!(lacks.is_empty(), "{}", lacks.join("\n"));
    found
}

/// What a search to the last state should have met.
fn lacks(rules: &Rules, found: &Found) -> Vec<String> {
    report::world(rules, found);
    let faults = rules.faults.iter().sum();
    let met = [
        (found.all, "not every state was reached"),
        (ended(found, Outcome::Updated, 0) > 0, "no cycle was completed"),
        (ended(found, Outcome::Updated, faults) > 0, "none with its faults"),
    ];
    let never =
        rules.kinds.iter().map(|kind| kind.told()).filter(|told| !found.told.contains(told));
    let lacks = met.into_iter().filter(|(met, _)| !met).map(|(_, what)| what.to_owned());
    let lacks = lacks.chain(never.map(|told| format!("never came: {told}")));
    lacks.map(|what| format!("{}: {what}", rules.name)).collect()
}

#[test]
fn one_node_with_two_faults() {
    let found = exhaust(PLAIN);
    for outcome in [
        Outcome::Yielded,
        Outcome::Withdrawn,
        Outcome::FinalizeFailed,
        Outcome::NotFinalized,
        Outcome::RebootNeverCame,
        Outcome::Interrupted,
    ] {
        assert!(ended(&found, outcome, 2) > 0, "{outcome:?} was not reached");
    }
}

#[test]
fn one_node_that_releases_after_a_fallback() {
    let found = exhaust(RELEASING);
    assert!(ended(&found, Outcome::FellBack, 2) > 0, "no fallback was reached");
}

#[test]
fn one_node_cordoned_by_a_person() {
    exhaust(Rules { name: "one node, cordoned by a person", person_cordoned: true, ..PLAIN });
}

/// A story that breaks the right heart too says nothing of the wrong one: in the same world the right one
/// keeps the promise at least as long.
fn holds_with_the_right_heart(wrong: &Wrong, steps: usize) {
    // These are exhausted by tests of their own.
    if [PLAIN, RELEASING].contains(&wrong.rules) {
        return;
    }
    let play = Play { only: Some(wrong.promise), ..Play::new(HEART, wrong.rules) };
    if let Err(story) = search(&play, steps, STATES_MAX) {
        panic!("promise {}: also the right heart breaks it: {story}", wrong.promise);
    }
}

#[test]
fn broken_hearts_are_found_out() {
    let mut rows = Vec::new();
    for wrong in hearts::wrong_hearts() {
        let play = Play { only: Some(wrong.promise), ..Play::new(wrong.heart, wrong.rules) };
        let Err(story) = search(&play, STEPS_MAX, STATES_MAX) else {
            panic!("promise {}: the heart that {} was not found out", wrong.promise, wrong.what);
        };
        assert_eq!(story.broken.promise, wrong.promise, "the heart that {}: {story}", wrong.what);
        holds_with_the_right_heart(&wrong, story.steps.len());
        let (steps, words) = (story.steps.len(), &story.broken.what);
        rows.push(format!("| {} | {} | {steps} steps | {words} |", wrong.promise, wrong.what));
    }
    report::hearts(rows);
}

/// What comes rarely, and the other answers of the configuration, each in a world of its own: with one
/// fault, and beside a second one of any kind with `SEARCH_DEEP=1`.
#[test]
fn one_node_and_what_comes_rarely() {
    let faults: &[u8] = if deep() { &[2] } else { &[1] };
    let mut wrong = Vec::new();
    for rules in rules::RARE {
        let rules = Rules { faults, ..rules };
        match search(&Play::new(HEART, rules), STEPS_MAX, STATES_MAX) {
            Ok(found) => wrong.extend(lacks(&rules, &found)),
            Err(story) => wrong.push(format!("{}: {story}", rules.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Too many for every state: every order up to so many steps, and from each of these states the world
/// is played to its end, in which both nodes have gone round one after the other.
#[test]
fn two_nodes_with_one_slot() {
    let rules = Rules { name: "two nodes, one slot", faults: &[1, 1], rounds: 1, ..PLAIN };
    let steps = if deep() { 17 } else { 15 };
    let found = explore(rules, steps);
    report::world(&rules, &found);
    assert!(found.deepest == steps && found.states > 1000, "{found:?}");
    assert!(engine::goes_round(&Play::new(HEART, rules)), "the nodes did not go round");
}
