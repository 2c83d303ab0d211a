//! The script language itself: what is wrong in a story is said with its line, and a heart that is
//! broken on purpose tells another story.

use lockkeeper::fleetlock::SlotAnswer;
use lockkeeper::lifecycle::{self, Event};

use crate::teller::{Heart, Shown, tell};

fn error(lines: &str) -> String {
    let script = format!("# A story.\n{lines}");
    match tell(lifecycle::step, &script, &mut Shown::default()) {
        Ok(told) => panic!("this was told without an error:\n{told}"),
        Err(error) => error,
    }
}

#[test]
fn what_is_wrong_in_a_script_is_said_with_its_line() {
    let table = [
        ("> system booted=41", "line 2: system booted=41: the agent was not started"),
        ("> start\n> start", "line 3: start: start: the agent was started before, or never"),
        ("> restart", "the agent was started before, or never"),
        ("> start\n> dance", "line 3: dance: there is no verb \"dance\""),
        ("> start\n> node redy", "node: \"redy\" says nothing here"),
        ("> start\n> node ready boot=two", "expected a number, found \"two\""),
        ("> start\n> node ready color=red", "node: color=red says nothing here"),
        ("> start\n> slot granted", "the agent asked for nothing that could end like this"),
        ("> start\n> node ready\n> released ok", "asked for nothing that could end like this"),
        ("> start known\n> wake", "the agent asked for no wake"),
        ("> start\n> wait", "wait: expected how long, found nothing"),
        ("> start\n> wait soon", "expected a duration such as 30s, found \"soon\""),
        ("> start\n> shutdown tomorrow", "expected begins or abandoned, found \"tomorrow\""),
        ("> start\n> person hold \"no end", "expected a closing quote after \"no end\""),
        ("> start\n> well until noon", "nothing more happens before noon"),
        ("> policy colour=red", "policy: colour: there is no such key"),
        ("> policy slot=many", "expected one of unset, server, none, none-only-node"),
        ("> policy window=\"sun 25:00 1h UTC\"", "policy: window: start: expected"),
        ("> clock wall=noon", "clock: wall=noon"),
        ("> node trouble=bad", "trouble=bad: there is no such trouble"),
        ("something else", "line 2: expected \"# \", \"> \" or two blanks"),
    ];
    for (lines, expected) in table {
        let error = error(lines);
        assert!(error.contains(expected), "{lines:?}: expected {expected:?}, found {error:?}");
    }
}

#[test]
fn a_wait_does_not_pass_over_a_wake() {
    let lines = "> policy minimum_uptime=2h\n> start known\n> node ready\n\
                 > system booted=41 staged=42\n> wait 3h";
    let error = error(lines);
    assert!(error.contains("the agent wakes in 59m 58s already: up long enough"), "{error}");
}

#[test]
fn a_story_begins_with_its_promise() {
    let told = tell(lifecycle::step, "> start\n", &mut Shown::default());
    assert!(told.is_err_and(|error| error.contains("says which promise is told")));
}

/// A golden story that a wrong heart tells just the same would prove nothing.
#[test]
fn a_broken_heart_tells_another_story() {
    let takes_no_for_yes: Heart = |policy, state, now, event| {
        let denied = matches!(event, Event::SlotAnswered(SlotAnswer::Denied { .. }));
        let event = if denied { Event::SlotAnswered(SlotAnswer::Granted) } else { event };
        lifecycle::step(policy, state, now, event)
    };
    let golden = include_str!("slot-denied-then-granted.txt");
    let told = tell(takes_no_for_yes, golden, &mut Shown::default());
    assert!(told.is_err_and(|error| error.contains("slot denied")), "the denial changes nothing");
    let told = tell(lifecycle::step, golden, &mut Shown::default());
    assert_eq!(told.as_deref(), Ok(golden));
}
