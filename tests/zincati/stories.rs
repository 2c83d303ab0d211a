//! What Zincati does, and what the bridge makes of it.

use std::time::Duration;

use lockkeeper::lifecycle::Event;

use crate::rig::{PATIENCE, Rig, System};
use crate::zincati::machine::{Fault, Killed, State, rest};

const ASKS: Event = Event::ZincatiWaits(true);
const ASKS_NO_MORE: Event = Event::ZincatiWaits(false);

#[tokio::test]
async fn an_update_goes_through() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("sha256:40.2");
    let mut zincati = rig.zincati(&system, &[]);
    assert_eq!(rig.event().await, Event::ZincatiSteady);
    assert!(!rig.desk.grant().await, "it does not ask for a reboot yet");
    rig.desk.steady();
    zincati.says("state: ReportedSteady").await;
    assert_eq!(rig.event().await, ASKS);
    assert!(system.finalized().is_empty(), "it finalizes only once it is granted");
    assert!(rig.desk.grant().await);
    zincati.says("state: UpdateFinalized").await;
    zincati.says("state: EndState").await;
    assert_eq!(system.finalized(), ["sha256:40.2"]);
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    assert!(!zincati.process.is_finished(), "it stays at its end for ever");
}

#[tokio::test]
async fn a_refusal_is_understood_and_it_comes_again() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let mut zincati = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    for (kind, value) in [("held", "ada holds the node"), ("drain-blocked", "pod a/b")] {
        assert_eq!(rig.event().await, ASKS);
        rig.desk.refuse(kind, value);
        let expected = format!("pre-reboot: {kind}: server-side error, code 423: {value}");
        assert_eq!(zincati.says("pre-reboot").await, expected);
        assert_eq!(rig.event().await, ASKS_NO_MORE);
    }
    assert!(system.finalized().is_empty());
}

#[tokio::test]
async fn a_call_whose_time_is_over_tells_what_is_waited_for() {
    let mut rig = Rig::start(Duration::from_millis(100)).await;
    let system = System::with_update("a");
    rig.desk.say("settling", "kubelet of this boot is not ready");
    let mut zincati = rig.zincati(&system, &[]);
    let sentence = "server-side error, code 503: kubelet of this boot is not ready";
    assert_eq!(zincati.says("steady-state").await, format!("steady-state: settling: {sentence}"));
    assert_eq!(rig.event().await, Event::ZincatiSteady);
    rig.desk.say("no-slot", "n7 holds the slot");
    rig.lets_it_be_steady().await;
    let sentence = "server-side error, code 423: n7 holds the slot";
    assert_eq!(zincati.says("pre-reboot").await, format!("pre-reboot: no-slot: {sentence}"));
    assert!(system.finalized().is_empty());
}

#[tokio::test]
async fn users_put_it_off_after_the_grant() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    system.has_users(true);
    let mut zincati = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    for _ in 0..2 {
        assert_eq!(rig.event().await, ASKS);
        assert!(rig.desk.grant().await);
        zincati.says("interactive sessions").await;
        assert_eq!(rig.event().await, ASKS_NO_MORE);
    }
    assert!(system.finalized().is_empty());
    system.has_users(false);
    assert_eq!(rig.event().await, ASKS);
    assert!(rig.desk.grant().await);
    zincati.says("state: EndState").await;
}

#[tokio::test]
async fn a_finalization_that_fails_keeps_asking_and_never_gives_back() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let mut zincati = rig.zincati(&system, &[Fault::FinalizeFails]);
    rig.lets_it_be_steady().await;
    for _ in 0..3 {
        assert_eq!(rig.event().await, ASKS);
        assert!(rig.desk.grant().await);
        zincati.says("failed to finalize deployment").await;
        assert_eq!(rig.event().await, ASKS_NO_MORE);
    }
}

#[tokio::test]
async fn one_that_is_killed_after_the_grant_begins_with_steady_state() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let zincati = rig.zincati(&system, &[Fault::KilledAfterGrant]);
    rig.lets_it_be_steady().await;
    assert_eq!(rig.event().await, ASKS);
    assert!(rig.desk.grant().await, "the answer was written, whatever came after it");
    assert_eq!(zincati.process.await.unwrap(), Killed);
    assert!(system.finalized().is_empty());
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    let mut next = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    next.says("state: ReportedSteady").await;
}

#[tokio::test]
async fn one_that_is_stopped_while_it_waits_gets_no_grant() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let zincati = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    assert_eq!(rig.event().await, ASKS);
    zincati.ends().await;
    assert!(!rig.desk.grant().await);
    assert_eq!(rig.event().await, ASKS_NO_MORE);
    // The next one is a new caller.
    let mut next = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    assert_eq!(rig.event().await, ASKS);
    assert!(rig.desk.grant().await);
    next.says("state: EndState").await;
    assert_eq!(system.finalized(), ["a"]);
}

#[tokio::test]
async fn two_at_once_are_answered_alike() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let mut zincati = rig.zincati(&system, &[Fault::TwoAtOnce]);
    rig.lets_it_be_steady().await;
    let desk = rig.desk.clone();
    let heart = async {
        // The second may come before the first is told, or behind its grant.
        loop {
            if rig.event().await == ASKS {
                assert!(desk.grant().await);
            }
        }
    };
    let said = async {
        assert_eq!(zincati.says("pre-reboot of").await, "pre-reboot of the other: granted");
        zincati.says("state: EndState").await;
    };
    tokio::select! {
        () = heart => {}
        () = said => {}
    }
    assert_eq!(system.finalized(), ["a"]);
}

#[tokio::test]
async fn one_with_another_identity_is_turned_away() {
    let mut rig = Rig::start(PATIENCE).await;
    let system = System::with_update("a");
    let mut config = rig.config();
    assert_eq!(config.id, "074c268827d74fb59ed758e8940cd667", "of the machine id");
    config.group = "workers".to_owned();
    let mut zincati = crate::rig::Zincati::start(config, &system, &[]);
    let said = zincati.says("steady-state").await;
    assert!(said.starts_with("steady-state: other_group: server-side error, code 403:"), "{said}");
    let mut right = rig.zincati(&system, &[]);
    rig.lets_it_be_steady().await;
    right.says("state: ReportedSteady").await;
}

/// Needs root, as the other tests that become somebody else do.
#[tokio::test]
async fn another_user_of_the_host_is_turned_away() {
    let mut rig = Rig::start(PATIENCE).await;
    // Once it is steady, the bridge listens.
    let mut zincati = rig.zincati(&System::default(), &[]);
    rig.lets_it_be_steady().await;
    zincati.says("state: ReportedSteady").await;
    let call = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'POST /v1/pre-reboot HTTP/1.1\\r\\nhost: h\\r\\n\\r\\n' >&3; \
         cat <&3",
        rig.address.port()
    );
    let mut shell = tokio::process::Command::new("bash");
    let told = shell.args(["-c", &call]).uid(65534).kill_on_drop(true).output();
    let told = tokio::time::timeout(PATIENCE, told).await.expect("no answer").unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
    assert!(told.contains("found uid 65534"), "{told}");
}

#[test]
fn it_rests_as_zincati_does() {
    let staged = |left| State::UpdateStaged("a".to_owned(), left);
    for (state, jitter, secs) in [
        (State::Initialized, 0, 300),
        (State::Initialized, 10, 330),
        (staged(10), 10, 330),
        (staged(9), 10, 60),
        (State::NoNewUpdate, 10, 60),
        (State::End, 10, 11_880),
    ] {
        assert_eq!(rest(&state, 50, jitter).as_secs(), secs, "{state:?}");
    }
}
