//! Exhaustive search of the heart: every order of events in a small world, with every fault that
//! the budget allows, and the promises checked in every state.
//!
//! From every state that was reached the world is also played to its end without further faults:
//! the node must end uncordoned and its slot released, or name what it waits for.
//!
//! Most worlds are searched until there is no further state. `SEARCH_DEEP=1` goes deeper where that takes
//! too long for every day.

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
mod keys;
mod moves;
mod report;
mod rules;
mod time;
mod world;

use engine::{Found, search};
use hearts::Wrong;
use lockkeeper::lifecycle::{self, Outcome};
use report::ended;
use rules::{BRIDGED, Kind, PLAIN, RELEASING, Rules, TWO};
use world::{Heart, Play};

const HEART: Heart = Heart { step: lifecycle::step, writes_late: false };

/// More than any of these worlds has.
const STEPS_MAX: usize = 2000;
const STATES_MAX: usize = 20_000_000;

fn deep() -> bool {
    std::env::var_os("SEARCH_DEEP").is_some()
}

fn explore(rules: Rules, steps_max: usize) -> Result<Found, String> {
    match search(&Play::new(HEART, rules), steps_max, STATES_MAX) {
        Ok(found) => {
            report::world(&rules, &found);
            Ok(found)
        }
        Err(story) => Err(format!("{}: {story}", rules.name)),
    }
}

/// Searches a world of one node to its last state: no promise is broken, and nodes went round, also with
/// every fault on the way.
fn exhaust(rules: Rules) -> Found {
    let found = explore(rules, STEPS_MAX).unwrap_or_else(|story| panic!("{story}"));
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

/// Every order with one fault at any time, and with two where time passes only when nothing else can happen;
/// with `SEARCH_DEEP=1` with two at any time, but for clocks that jump and servers that forget, whose states
/// are too many for that.
fn exhaust_both(rules: Rules) -> [Found; 2] {
    let wide = [Kind::ClockAhead, Kind::ServerForgets];
    let wide = rules.kinds.iter().any(|kind| wide.contains(kind));
    let few: &[u8] = if deep() && !wide { &[2] } else { &[1] };
    [Rules { faults: few, ..rules }, Rules { faults: &[2], prompt: true, ..rules }].map(exhaust)
}

#[test]
fn one_node_that_releases_after_a_fallback() {
    let [any_time, prompt] = exhaust_both(RELEASING);
    assert!(ended(&any_time, Outcome::FellBack, 1) > 0, "no fallback was reached");
    assert!(ended(&prompt, Outcome::FellBack, 2) > 0, "no fallback was reached");
}

#[test]
fn one_node_cordoned_by_a_person() {
    exhaust_both(Rules { name: "one node, cordoned by a person", person_cordoned: true, ..PLAIN });
}

/// Zincati may reboot in its own time once it has leave: no leave before the node is empty and the slot
/// confirmed, no release as long as it stands, and no slot kept for a reboot that never comes.
#[test]
fn one_node_where_zincati_decides() {
    let found = exhaust(BRIDGED);
    for outcome in [Outcome::Yielded, Outcome::Withdrawn, Outcome::RebootNeverCame] {
        assert!(ended(&found, outcome, 2) > 0, "{outcome:?} was not reached");
    }
}

/// A story that breaks the right heart too says nothing of the wrong one: in the same world the right one
/// keeps the promise at least as long.
fn holds_with_the_right_heart(wrong: &Wrong, steps: usize) {
    // The plain world is exhausted by a test of its own.
    if wrong.rules == PLAIN {
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

/// What comes rarely, and the other answers of the configuration, each in a world of its own.
#[test]
fn one_node_and_what_comes_rarely() {
    for rules in rules::RARE {
        let [_, prompt] = exhaust_both(rules);
        for kind in rules.kinds {
            assert!(prompt.told.contains(kind.told()), "{}: {kind:?} never came", rules.name);
        }
    }
}

/// Whole cycles of both, with a fault on either of them or none: to the last state.
#[test]
fn two_nodes_with_one_slot() {
    for faults in [&[0, 0], &[1, 0], &[0, 1]] {
        let found = exhaust(Rules { faults, ..TWO });
        assert!(found.all_round > 0, "the nodes did not go round");
    }
}

/// Where time may pass at any moment there are too many for every state: every order up to so many steps,
/// and from each of these states the world is played to its end.
#[test]
fn two_nodes_at_any_time() {
    let rules = Rules { name: "two nodes, at any time", faults: &[1, 1], prompt: false, ..TWO };
    let steps = if deep() { 18 } else { 15 };
    let found = explore(rules, steps).unwrap_or_else(|story| panic!("{story}"));
    assert!(found.deepest == steps && found.states > 1000, "{found:?}");
    assert!(engine::goes_round(&Play::new(HEART, rules)), "the nodes did not go round");
}

/// That one host goes first where the others cannot see it leaves nothing out: without it the worlds end
/// in the same ways, and the same broken hearts are found out.
#[test]
fn one_host_may_go_first() {
    for faults in [&[0_u8, 0], &[1, 0]] {
        let play = Play::new(HEART, Rules { faults, ..TWO });
        let [first, any] = [true, false].map(|reduced| {
            search(&Play { reduced, ..Play::new(HEART, play.rules) }, STEPS_MAX, STATES_MAX)
                .unwrap_or_else(|story| panic!("{story}"))
        });
        assert!(first.all && any.all && first.states < any.states, "{first:?} {any:?}");
        assert_eq!(first.ends, any.ends, "{faults:?}");
        let ways = |found: &Found| found.ended.keys().copied().collect::<Vec<_>>();
        assert_eq!(ways(&first), ways(&any), "{faults:?}");
    }
    let mut both = 0;
    for wrong in hearts::wrong_hearts() {
        let rules = Rules { faults: &[1, 0], kinds: &[], rounds: 1, prompt: true, ..wrong.rules };
        let found = [true, false].map(|reduced| {
            let only = Some(wrong.promise);
            search(&Play { reduced, only, ..Play::new(wrong.heart, rules) }, STEPS_MAX, STATES_MAX)
                .is_err()
        });
        assert_eq!(found[0], found[1], "the heart that {}", wrong.what);
        both += usize::from(found[0]);
    }
    assert!(both > 10, "{both} were found out");
}
