//! What the heart is told, when much happens between two looks; and who is meant by a URL.

use futures::FutureExt;

use super::super::desk::OpenCall;
use super::super::line::Line;
use super::super::{Desk, leads_to_bridge};
use crate::fleetlock::Operation;
use crate::lifecycle::Event;

const ASKS: Event = Event::ZincatiWaits(true);
const ASKS_NO_MORE: Event = Event::ZincatiWaits(false);

fn reboot(desk: &Desk) -> OpenCall {
    desk.open(Operation::PreReboot, &Line::default())
}

fn steady(desk: &Desk) -> OpenCall {
    desk.open(Operation::SteadyState, &Line::default())
}

/// All that is to be told now.
fn news(desk: &Desk) -> Vec<Event> {
    std::iter::from_fn(|| desk.news().now_or_never()).collect()
}

#[test]
fn each_change_is_told_and_each_further_call() {
    let desk = Desk::default();
    assert_eq!(news(&desk), []);
    let first = reboot(&desk);
    assert_eq!(news(&desk), [ASKS]);
    assert_eq!(news(&desk), [], "once");
    let second = reboot(&desk);
    assert_eq!(news(&desk), [ASKS], "again");
    drop(first);
    assert_eq!(news(&desk), [], "one is left");
    drop(second);
    assert_eq!(news(&desk), [ASKS_NO_MORE]);
    let call = steady(&desk);
    assert_eq!(news(&desk), [Event::ZincatiSteady]);
    drop(call);
    assert_eq!(news(&desk), []);
}

#[test]
fn one_that_went_and_one_that_came_are_two() {
    let desk = Desk::default();
    let first = reboot(&desk);
    assert_eq!(news(&desk), [ASKS]);
    drop(first);
    let _second = reboot(&desk);
    assert_eq!(
        news(&desk),
        [ASKS_NO_MORE, ASKS],
        "the second has not been granted what the first was"
    );
}

#[test]
fn a_restarted_zincati_is_told_in_its_order() {
    let desk = Desk::default();
    let before = reboot(&desk);
    assert_eq!(news(&desk), [ASKS]);
    drop(before);
    let _steady = steady(&desk);
    let _reboot = reboot(&desk);
    assert_eq!(news(&desk), [ASKS_NO_MORE, Event::ZincatiSteady, ASKS]);
}

#[test]
fn what_came_and_went_untold_is_no_news() {
    let desk = Desk::default();
    for _ in 0..100 {
        drop(reboot(&desk));
    }
    assert_eq!(news(&desk), []);
    let calls: Vec<OpenCall> = (0..100).map(|_| reboot(&desk)).collect();
    assert_eq!(news(&desk), [ASKS]);
    drop(calls);
    assert_eq!(news(&desk), [ASKS_NO_MORE]);
}

#[test]
fn a_base_url_leads_to_the_bridge_or_elsewhere() {
    for (url, listen, leads) in [
        ("http://127.0.0.1:9092/", "127.0.0.1:9092", true),
        ("http://127.0.0.1:9092", "127.0.0.1:9092", true),
        // The path is lost, and so it leads there.
        ("http://127.0.0.1:9092/fl", "127.0.0.1:9092", true),
        ("http://localhost:9092/", "127.0.0.1:9092", true),
        ("http://[::1]:9092/", "[::1]:9092", true),
        ("http://127.0.0.1/", "127.0.0.1:80", true),
        ("http://127.0.0.1:9092/fl/", "127.0.0.1:9092", false),
        ("https://127.0.0.1:9092/", "127.0.0.1:9092", false),
        ("http://127.0.0.1:9093/", "127.0.0.1:9092", false),
        ("http://127.0.0.2:9092/", "127.0.0.1:9092", false),
        ("http://192.0.2.1:9092/", "127.0.0.1:9092", false),
        ("", "127.0.0.1:9092", false),
    ] {
        assert_eq!(leads_to_bridge(url, listen.parse().unwrap()), leads, "{url}");
    }
}
