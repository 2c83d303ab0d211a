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
use lockkeeper::lifecycle::{self, AfterRollback, Outcome};
use report::ended;
use rules::{Kind, PLAIN, Rules};
use world::{Heart, Play};

const HEART: Heart = Heart { step: lifecycle::step, writes_late: false };

/// More than any of these worlds has.
const STEPS_MAX: usize = 2000;
const STATES_MAX: usize = 20_000_000;

fn explore(rules: Rules, steps_max: usize) -> Found {
    match search(&Play::new(HEART, rules), steps_max, STATES_MAX) {
        Ok(found) => {
            report::world(&rules, &found);
            found
        }
        Err(story) => panic!("{}: {story}", rules.name),
    }
}

/// Searches a world of one node to its last state: no promise is broken, and nodes went round, also with
/// every fault on the way.
fn exhaust(rules: Rules) -> Found {
    let found = explore(rules, STEPS_MAX);
    assert!(found.all, "{}: not every state was reached", rules.name);
    let faults = rules.faults.iter().sum();
    assert!(ended(&found, Outcome::Updated, 0) > 0, "{}: no cycle was completed", rules.name);
    assert!(ended(&found, Outcome::Updated, faults) > 0, "{}: none with its faults", rules.name);
    found
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
    let name = "one node, slot freed after a fallback";
    let found = exhaust(Rules { name, after_rollback: AfterRollback::Release, ..PLAIN });
    assert!(ended(&found, Outcome::FellBack, 2) > 0, "no fallback was reached");
}

#[test]
fn one_node_cordoned_by_a_person() {
    exhaust(Rules { name: "one node, cordoned by a person", person_cordoned: true, ..PLAIN });
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
        let (steps, words) = (story.steps.len(), &story.broken.what);
        rows.push(format!("| {} | {} | {steps} steps | {words} |", wrong.promise, wrong.what));
    }
    report::hearts(rows);
}

/// What comes rarely, each beside two faults of any kind. All of them with `SEARCH_DEEP=1`.
#[test]
fn one_node_and_what_comes_rarely() {
    const RARE: [(&[Kind], &str); 4] = [
        (&[Kind::PersonCordons], "one node, a person cordons"),
        (&[Kind::PersonReboots], "one node, a person reboots"),
        (&[Kind::NewerUpdate], "one node, a newer update"),
        (&[Kind::ClockJumps], "one node, the clock jumps"),
    ];
    let deep = std::env::var_os("SEARCH_DEEP").is_some();
    for (kinds, name) in RARE.into_iter().take(if deep { RARE.len() } else { 1 }) {
        exhaust(Rules { name, kinds, ..PLAIN });
    }
}

/// Too many for every state: every order up to so many steps, and from each of these states the world
/// is played to its end, in which both nodes have gone round one after the other.
#[test]
fn two_nodes_with_one_slot() {
    let deep = std::env::var_os("SEARCH_DEEP").is_some();
    let rules = Rules { name: "two nodes, one slot", faults: &[1, 1], rounds: 1, ..PLAIN };
    let steps = if deep { 17 } else { 15 };
    let found = explore(rules, steps);
    assert!(found.deepest == steps && found.states > 1000, "{found:?}");
    assert!(engine::goes_round(&Play::new(HEART, rules)), "the nodes did not go round");
}
