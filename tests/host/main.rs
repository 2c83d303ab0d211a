//! The host's rooms against the stand-in for rpm-ostreed, on a bus of their own.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm)]

mod place;

use std::time::Duration;

use lockkeeper::effects::boot;
use lockkeeper::effects::reboot::{reboot, undo};
use lockkeeper::lifecycle::RebootAnswer;
use lockkeeper::model::{AttemptId, BootId, Reading, Source, SystemView, Target};
use lockkeeper::signals::rpm_ostree::{Options, watch};
use lockkeeper::signals::system::Heard;
use tokio::sync::mpsc::Receiver;

use place::Place;

const PATIENCE: Duration = Duration::from_secs(60);

fn listen(place: &Place) -> Receiver<Heard> {
    let (events, heard) = tokio::sync::mpsc::channel(8);
    let options =
        Options { debounce: Duration::from_millis(100), ..Options::new(place.host.clone()) };
    tokio::spawn(watch(options, events));
    heard
}

async fn next(heard: &mut Receiver<Heard>) -> Heard {
    tokio::time::timeout(PATIENCE, heard.recv()).await.expect("nothing was heard").unwrap()
}

async fn system(heard: &mut Receiver<Heard>) -> SystemView {
    match next(heard).await.reading {
        Ok(Reading::Deployments(deployments)) => {
            SystemView { deployments, ..SystemView::default() }
        }
        other => panic!("unexpected {other:?}"),
    }
}

async fn version(heard: &mut Receiver<Heard>) -> Option<String> {
    system(heard).await.target().and_then(|target| target.version)
}

fn attempt() -> AttemptId {
    AttemptId::new(&BootId::parse(place::BOOT_ID).unwrap(), 1)
}

async fn order(place: &Place, target: &Target) -> RebootAnswer {
    reboot(&place.host, target, &attempt(), "lockkeeper reboots into 40.2").await
}

/// A place in which 40.2 is staged with these options, and what it is called.
async fn staged(options: &[&str]) -> (Place, Target) {
    let place = Place::new().await;
    place.standin(&[&["stage", "40.2"], options].concat());
    let mut heard = listen(&place);
    let target = system(&mut heard).await.target().unwrap();
    (place, target)
}

#[tokio::test]
async fn an_update_is_heard_finalized_and_undone() {
    let place = Place::new().await;
    let mut heard = listen(&place);
    let first = system(&mut heard).await;
    assert_eq!(first.target(), None);
    assert_eq!(first.booted().unwrap().version.as_deref(), Some("40.1"));

    place.standin(&["stage", "40.2"]);
    let target = system(&mut heard).await.target().unwrap();
    assert_eq!(target.version.as_deref(), Some("40.2"));
    assert!(target.identity.starts_with("sha256:"), "{target:?}");
    assert_eq!(place.is_locked(), Some(true));

    assert_eq!(order(&place, &target).await, RebootAnswer::Accepted);
    assert_eq!(place.is_locked(), Some(false));
    place.wait_for_systemctl("reboot").await;
    // The daemon has queued a reboot and refuses everything else until it is restarted.
    let again = order(&place, &target).await;
    assert!(matches!(&again, RebootAnswer::Unknown(why) if why.contains("Reboot initiated")));

    undo(&place.host, &target).await.unwrap();
    assert_eq!(place.is_locked(), Some(true));
    assert_eq!(place.restarts(), 1);
    assert_eq!(order(&place, &target).await, RebootAnswer::Accepted);
}

#[tokio::test]
async fn an_update_is_heard_while_the_daemon_is_away() {
    let place = Place::new().await;
    place.standin(&["fault", "set", "idle-exit=1"]);
    let mut heard = listen(&place);
    assert_eq!(version(&mut heard).await, None);
    place.wait_until_daemon_is_away().await;
    // Its leaving does not call it back: a call would activate it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!place.daemon_is_there().await);

    place.standin(&["stage", "40.2"]);
    assert_eq!(version(&mut heard).await.as_deref(), Some("40.2"));
    place.wait_until_daemon_is_away().await;
    place.standin(&["unstage"]);
    assert_eq!(version(&mut heard).await, None);
}

#[tokio::test]
async fn a_slow_daemon_is_waited_for_in_silence() {
    let place = Place::new().await;
    place.standin(&["fault", "set", "slow-activation=4"]);
    let mut heard = listen(&place);
    assert_eq!(version(&mut heard).await, None);
}

#[tokio::test]
async fn odd_properties_are_reported_and_not_guessed() {
    for (fault, expected) in [
        ("wrong-types", "staged has type s, expected b"),
        ("wrong-shape", "org.projectatomic.rpmostree1: "),
    ] {
        let place = Place::new().await;
        place.standin(&["stage", "40.2"]);
        place.standin(&["fault", "set", fault]);
        let mut heard = listen(&place);
        match next(&mut heard).await.reading {
            Err(why) => assert!(why.contains(expected), "{fault}: {why}"),
            other => panic!("{fault}: {other:?}"),
        }
        place.standin(&["fault", "clear", fault]);
        assert_eq!(version(&mut heard).await.as_deref(), Some("40.2"), "{fault}");
    }
}

#[tokio::test]
async fn every_origin_can_be_finalized() {
    for options in [
        &["--container"][..],
        &["--branch"],
        &["--branch", "--layered"],
        &["--container", "--layered"],
        &["--unlocked"],
    ] {
        let (place, target) = staged(options).await;
        assert_eq!(order(&place, &target).await, RebootAnswer::Accepted, "{options:?}");
        assert_eq!(place.is_locked(), Some(false), "{options:?}");
    }
    // An older daemon calls a container by its commit.
    let (place, target) = staged(&["--container"]).await;
    place.standin(&["fault", "set", "old-reference"]);
    assert_eq!(order(&place, &target).await, RebootAnswer::Accepted);
}

#[tokio::test]
async fn a_refusal_changes_nothing() {
    let (place, target) = staged(&[]).await;
    place.block("backup", "nightly");
    let answer = order(&place, &target).await;
    assert!(matches!(&answer, RebootAnswer::Refused(why) if why.contains("Held by: backup")));
    assert_eq!(place.is_locked(), Some(true));
    place.unblock();

    let other = Target { identity: "sha256:other".to_owned(), ..target.clone() };
    assert!(matches!(order(&place, &other).await, RebootAnswer::Refused(_)));
    place.standin(&["unstage"]);
    assert!(matches!(order(&place, &target).await, RebootAnswer::Refused(_)));
    assert_eq!(place.systemctl_lines("reboot"), 0);

    let (place, target) = staged(&["--unlocked", "--legacy-lock"]).await;
    let answer = order(&place, &target).await;
    assert!(matches!(&answer, RebootAnswer::Refused(why) if why.contains("would drop")));
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_can_be_undone() {
    let (place, target) = staged(&[]).await;
    place.standin(&["fault", "set", "lost-reply"]);
    let answer = order(&place, &target).await;
    assert!(matches!(answer, RebootAnswer::Unknown(_)), "{answer:?}");
    place.standin(&["fault", "clear"]);
    undo(&place.host, &target).await.unwrap();
    assert_eq!(place.is_locked(), Some(true));
}

#[tokio::test]
async fn a_silent_systemd_is_waited_for() {
    let place = Place::new().await;
    place.fail_unit("ostree-boot-complete.service");
    place.systemd_answers(false).await;
    let back = async {
        // Longer than a service takes that only comes up late.
        tokio::time::sleep(Duration::from_secs(8)).await;
        place.systemd_answers(true).await;
    };
    let (evidence, ()) = tokio::join!(boot::evidence(&place.host), back);
    assert!(evidence.finalize_failure.is_some(), "a failure is told as none");
}

/// For days, if need be: each try takes its connections down again, however it ends.
#[tokio::test]
async fn tries_that_fail_leave_nothing_behind() {
    let (place, target) = staged(&[]).await;
    let other = Target { identity: "sha256:other".to_owned(), ..target.clone() };
    place.block("backup", "nightly");
    // The first tries may leave what is kept on purpose.
    assert!(matches!(order(&place, &target).await, RebootAnswer::Refused(_)));
    let before = place.open_at_the_bus();
    for _ in 0..4 {
        assert!(matches!(order(&place, &target).await, RebootAnswer::Refused(_)));
        assert!(matches!(order(&place, &other).await, RebootAnswer::Refused(_)));
        place.break_ostree();
        assert!(undo(&place.host, &target).await.is_err());
        boot::evidence(&place.host).await;
    }
    place.wait_until_open_at_the_bus(before + 5).await;
}

#[tokio::test]
async fn nothing_is_undone_while_the_host_may_go_down() {
    let (place, target) = staged(&["--unlocked"]).await;
    place.prepare_for_shutdown(true);
    assert_eq!(undo(&place.host, &target).await.unwrap_err(), "the host is going down");
    place.prepare_for_shutdown(false);
    place.queue_job(Some("reboot.target"));
    let error = undo(&place.host, &target).await.unwrap_err();
    assert_eq!(error, "a job for reboot.target is queued");
    assert_eq!((place.is_locked(), place.restarts()), (Some(false), 0));

    place.queue_job(None);
    place.break_ostree();
    let error = undo(&place.host, &target).await.unwrap_err();
    assert!(error.starts_with("ostree admin lock-finalization: "), "{error}");
    assert_eq!(place.is_locked(), Some(false));
}

/// The agent was killed in mid-transaction, and the transaction comes to its end while the reboot is
/// undone: no reboot behind the lock, for nothing.
#[tokio::test]
async fn a_transaction_under_way_is_ended_before_the_lock() {
    let (place, target) = staged(&[]).await;
    place.standin(&["fault", "set", "slow-transaction=600"]);
    let begun = async {
        while !place.is_busy().await {
            // Sleeps: nobody tells that a transaction has begun.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        answer = order(&place, &target) => panic!("it ended: {answer:?}"),
        begun = tokio::time::timeout(PATIENCE, begun) => begun.expect("a transaction begins"),
    }
    place.end_transactions_when_called();
    undo(&place.host, &target).await.unwrap();
    assert_eq!(place.is_locked(), Some(true));
    assert_eq!((place.systemctl_lines("reboot"), place.restarts()), (0, 1));
}

#[tokio::test]
async fn nothing_staged_any_more_needs_no_lock() {
    let (place, target) = staged(&[]).await;
    assert_eq!(order(&place, &target).await, RebootAnswer::Accepted);
    place.standin(&["unstage"]);
    undo(&place.host, &target).await.unwrap();
    assert_eq!(place.restarts(), 1);
    assert_eq!(target.source, Source::RpmOstree);
}

#[tokio::test]
async fn the_boot_is_told_by_its_mark() {
    let place = Place::new().await;
    let mark = boot::mark(&place.host).await.unwrap();
    assert_eq!((mark.id, mark.soft_reboots), (BootId::parse(place::BOOT_ID).unwrap(), 2));
    assert_eq!(boot::evidence(&place.host).await.finalize_failure, None);
    place.fail_unit("ostree-boot-complete.service");
    let failure = boot::evidence(&place.host).await.finalize_failure.unwrap();
    assert_eq!(failure, "error: During /etc merge: Not a directory");
    assert!(!boot::kubelet_unit_exists(&place.host).await.unwrap());
    place.add_unit_file("/etc/systemd/system/k3s-agent.service");
    assert!(boot::kubelet_unit_exists(&place.host).await.unwrap());
}
