//! A grant is what was written to a caller that was still there.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::super::{Bounds, CALLS_MAX};
use super::rig::{PATIENCE, Rig, bounds};
use crate::lifecycle::Event;

const ASKS: Event = Event::ZincatiWaits(true);
const ASKS_NO_MORE: Event = Event::ZincatiWaits(false);

#[tokio::test]
async fn a_call_waits_for_its_grant() {
    let mut rig = Rig::start().await;
    assert!(!rig.desk.grant().await, "nobody asks");
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    assert!(rig.desk.grant().await);
    assert_eq!(call.answer().await.word(), "200 granted");
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    assert!(!rig.desk.grant().await, "a grant is not given twice");
    rig.stop().await;
}

#[tokio::test]
async fn who_hung_up_gets_no_grant() {
    let mut rig = Rig::start().await;
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    // The runtime has not heard of it when the grant is given: nothing is awaited between the two.
    drop(call);
    assert!(!rig.desk.grant().await);
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    rig.stop().await;
}

#[tokio::test]
async fn a_hang_up_is_told_by_itself() {
    let mut rig = Rig::start().await;
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    drop(call);
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    let mut half = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    half.0.shutdown().await.unwrap();
    assert_eq!(rig.event().await, ASKS_NO_MORE, "Zincati keeps its side open while it waits");
    rig.stop().await;
}

#[tokio::test]
async fn who_hides_its_hang_up_behind_more_bytes_gets_no_grant() {
    let mut rig = Rig::start().await;
    let mut call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    // The first bytes are read by the server, which then looks no further.
    for _ in 0..2 {
        call.0.write_all(b"x").await.unwrap();
        for _ in 0..100 {
            yield_now().await;
        }
    }
    drop(call);
    assert!(!rig.desk.grant().await);
    rig.stop().await;
}

#[tokio::test]
async fn one_of_two_that_is_there_is_enough() {
    let mut rig = Rig::start().await;
    let gone = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    let there = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS, "told again for the second");
    drop(gone);
    assert!(rig.desk.grant().await);
    assert_eq!(there.answer().await.word(), "200 granted");
    rig.stop().await;
}

#[tokio::test]
async fn a_grant_that_nobody_waits_for_is_not_written_later() {
    let mut rig = Rig::start().await;
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    let desk = rig.desk.clone();
    {
        let mut grant = Box::pin(desk.grant());
        // Polled once: the answer is on its way, and not written.
        assert!(futures::poll!(&mut grant).is_pending());
    }
    let answer = call.answer().await;
    assert_eq!((answer.status, answer.head.as_str()), (0, ""), "Zincati would reboot on it");
    rig.stop().await;
}

#[tokio::test]
async fn steady_state_and_pre_reboot_are_answered_apart() {
    let mut rig = Rig::start().await;
    let steady = rig.call("steady-state").await;
    assert_eq!(rig.event().await, Event::ZincatiSteady);
    assert!(!rig.desk.grant().await, "steady-state is no request for a reboot");
    rig.desk.refuse("held", "a person holds the node");
    let reboot = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, ASKS);
    rig.desk.steady();
    assert_eq!(steady.answer().await.word(), "200 granted");
    rig.desk.refuse("held", "a person\nholds the node");
    let answer = reboot.answer().await;
    assert_eq!(answer.word(), "423 held");
    assert_eq!(answer.value(), "a person holds the node");
    rig.stop().await;
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_told_what_is_waited_for() {
    let hold = Duration::from_millis(50);
    let mut rig = Rig::start_within(Bounds { hold, ..bounds() }).await;
    let unsaid = rig.call("pre-reboot").await.answer().await;
    assert_eq!(unsaid.word(), "423 waiting");
    rig.desk.say("window-closed", "the window opens at 02:00");
    for (api, expected) in
        [("pre-reboot", "423 window-closed"), ("steady-state", "503 window-closed")]
    {
        let answer = rig.call(api).await.answer().await;
        assert_eq!(answer.word(), expected);
        assert_eq!(answer.value(), "the window opens at 02:00");
    }
    rig.desk.say("", " \n");
    assert_eq!(rig.call("pre-reboot").await.answer().await.word(), "423 waiting");
    assert_eq!(rig.event().await, ASKS);
    rig.stop().await;
}

#[tokio::test]
async fn of_too_many_calls_the_oldest_is_answered() {
    let mut rig = Rig::start().await;
    let mut calls = Vec::new();
    for _ in 0..CALLS_MAX {
        calls.push(rig.call("pre-reboot").await);
        assert_eq!(rig.event().await, ASKS);
    }
    let steady = rig.call("steady-state").await;
    assert_eq!(rig.event().await, Event::ZincatiSteady);
    assert_eq!(calls.remove(0).answer().await.word(), "503 too_many_calls");
    assert!(rig.desk.grant().await);
    for call in calls {
        assert_eq!(call.answer().await.word(), "200 granted");
    }
    rig.desk.steady();
    assert_eq!(steady.answer().await.word(), "200 granted");
    rig.stop().await;
}

#[tokio::test]
async fn a_caller_in_a_loop_fills_no_channel() {
    let mut rig = Rig::start().await;
    // Nobody takes the events, of which four have room.
    for _ in 0..40 {
        let call = rig.call("pre-reboot").await;
        rig.desk.refuse("x", "y");
        drop(call);
        rig.call("steady-state").await;
    }
    let last = rig.call("pre-reboot").await;
    let mut told = Vec::new();
    // All that is left is told within a few events, and the last is what is true now.
    while !rig.desk.grant().await {
        told.push(rig.event().await);
        assert!(told.len() < 20, "{told:?}");
    }
    assert_eq!(last.answer().await.word(), "200 granted");
    let drained = async {
        let mut heard = 0;
        loop {
            heard += 1;
            if rig.event().await == ASKS_NO_MORE && rig.heard_all() {
                return heard;
            }
        }
    };
    assert!(timeout(PATIENCE, drained).await.unwrap() < 12);
    rig.stop().await;
}
