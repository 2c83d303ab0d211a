use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::desk::{Desk, DeskError};
use super::super::line::LINE_WAIT;
use super::super::slots::{Ask, Claim, Decision, Grant, Slots};
use super::super::store::{Store, StoreError};
use super::rig::policies;
use crate::fleetlock::Operation;

/// A store that tells each write and waits to be told how it ends.
struct Puppet {
    told: Sender<Slots>,
    ends: Receiver<bool>,
}

struct Strings {
    written: Receiver<Slots>,
    end: Sender<bool>,
}

impl Store for Puppet {
    fn write(&mut self, slots: &Slots) -> Result<(), StoreError> {
        self.told.send(slots.clone()).unwrap();
        match self.ends.recv_timeout(Duration::from_secs(10)) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(StoreError::File {
                file: PathBuf::from("slots.json"),
                doing: "syncing it",
                source: std::io::ErrorKind::StorageFull.into(),
            }),
        }
    }
}

fn open(slots: u32) -> (Desk, Strings, JoinHandle<()>) {
    let (told, written) = channel();
    let (end, ends) = channel();
    let policies = policies(&[("g", slots)]);
    let (desk, clerk) =
        Desk::open(Puppet { told, ends }, Slots::default(), policies, Timestamp::now);
    (desk, Strings { written, end }, clerk)
}

fn ask(operation: Operation, id: &str) -> Ask {
    Ask { group: "g".to_owned(), id: id.to_owned(), operation, claim: Claim::default() }
}

fn asking(desk: &Desk, operation: Operation, id: &str) -> JoinHandle<Result<Decision, DeskError>> {
    let (desk, ask) = (desk.clone(), ask(operation, id));
    tokio::spawn(async move { desk.ask(ask).await })
}

fn lock(desk: &Desk, id: &str) -> JoinHandle<Result<Decision, DeskError>> {
    asking(desk, Operation::PreReboot, id)
}

fn unlock(desk: &Desk, id: &str) -> JoinHandle<Result<Decision, DeskError>> {
    asking(desk, Operation::SteadyState, id)
}

/// The next write, off the runtime's only thread.
async fn next_write(strings: Strings) -> (Strings, Vec<String>) {
    tokio::task::spawn_blocking(move || {
        let slots = strings.written.recv_timeout(Duration::from_secs(10)).unwrap();
        let holders = slots.groups.get("g").map(|g| g.holders.clone()).unwrap_or_default();
        (strings, holders.into_iter().map(|holder| holder.id).collect())
    })
    .await
    .unwrap()
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn granted(decision: &Result<Decision, DeskError>) -> bool {
    matches!(decision, Ok(Decision::Granted { .. }))
}

#[tokio::test]
async fn nobody_is_answered_before_the_write_and_one_write_carries_all_that_wait() {
    let (desk, strings, clerk) = open(20);
    let first = lock(&desk, "n0");
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n0"]);
    let others: Vec<_> = (1..=30).map(|index| lock(&desk, &format!("n{index}"))).collect();
    settle().await;
    assert!(!first.is_finished(), "answered before it was written");
    assert!(desk.view().slots.groups.is_empty(), "shown before it was written");
    strings.end.send(true).unwrap();
    assert!(granted(&first.await.unwrap()));
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders.len(), 20);
    settle().await;
    assert!(others.iter().all(|other| !other.is_finished()));
    strings.end.send(true).unwrap();
    let mut yes = 0;
    for other in others {
        yes += usize::from(granted(&other.await.unwrap()));
    }
    assert_eq!((yes, desk.view().writes), (19, 2));
    drop(desk);
    timeout(Duration::from_secs(5), clerk).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_write_that_fails_changes_nothing_and_the_next_answer_waits_for_one_that_succeeds() {
    let (desk, strings, _clerk) = open(1);
    let first = lock(&desk, "n1");
    let (strings, _) = next_write(strings).await;
    strings.end.send(true).unwrap();
    assert!(granted(&first.await.unwrap()));

    let release = unlock(&desk, "n1");
    let (strings, holders) = next_write(strings).await;
    assert!(holders.is_empty());
    strings.end.send(false).unwrap();
    let error = release.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("slots.json: syncing it: "), "{error}");
    let view = desk.view();
    assert_eq!((view.writes, view.failed_writes), (2, 1));
    assert!(view.trouble.is_some());
    assert_eq!(view.slots.groups["g"].holders[0].id, "n1");

    // The disk may be ahead. A denial and a confirmation change nothing, yet rest on a write.
    let (denied, confirmed) = (lock(&desk, "n2"), lock(&desk, "n1"));
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n1"]);
    assert!(!denied.is_finished() && !confirmed.is_finished());
    strings.end.send(true).unwrap();
    assert!(matches!(denied.await.unwrap(), Ok(Decision::Full { .. })));
    let confirmed = confirmed.await.unwrap();
    assert!(matches!(confirmed, Ok(Decision::Granted { grant: Grant::Confirmed, .. })));
    assert_eq!(desk.view().trouble, None);
    drop(strings);
}

#[tokio::test]
async fn who_hung_up_before_its_turn_gets_no_slot_but_a_release_counts() {
    let (desk, strings, _clerk) = open(2);
    let first = lock(&desk, "n1");
    let (strings, _) = next_write(strings).await;
    let (gone, leaving) = (lock(&desk, "n2"), unlock(&desk, "n1"));
    settle().await;
    gone.abort();
    leaving.abort();
    settle().await;
    strings.end.send(true).unwrap();
    assert!(granted(&first.await.unwrap()));
    let (strings, holders) = next_write(strings).await;
    assert!(holders.is_empty(), "{holders:?}");
    strings.end.send(true).unwrap();
}

/// A desk whose group is held by n1.
async fn held_by_n1() -> (Desk, Strings) {
    let (desk, strings, _) = open(1);
    let first = lock(&desk, "n1");
    let (strings, _) = next_write(strings).await;
    strings.end.send(true).unwrap();
    assert!(granted(&first.await.unwrap()));
    (desk, strings)
}

#[tokio::test]
async fn who_stands_in_line_gets_what_is_given_back_in_the_same_write() {
    let (desk, strings) = held_by_n1().await;
    let waiting: Vec<_> = ["n2", "n3"].map(|id| lock(&desk, id)).into();
    settle().await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "nobody is denied at once");
    let release = unlock(&desk, "n1");
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n2"], "first come, first served");
    strings.end.send(true).unwrap();
    assert!(release.await.unwrap().is_ok());
    let ends: Vec<_> = futures::future::join_all(waiting).await;
    assert!(granted(ends[0].as_ref().unwrap()));
    assert!(matches!(ends[1], Ok(Ok(Decision::Full { .. }))), "{ends:?}");
    assert_eq!(desk.view().writes, 2);
    drop(strings);
}

#[tokio::test]
async fn who_stood_in_line_for_a_moment_is_denied() {
    let (desk, _strings) = held_by_n1().await;
    let began = tokio::time::Instant::now();
    let denied = lock(&desk, "n2").await.unwrap();
    assert!(matches!(denied, Ok(Decision::Full { .. })), "{denied:?}");
    let waited = began.elapsed();
    assert!(waited >= LINE_WAIT, "{waited:?}");
}

#[tokio::test]
async fn who_hung_up_or_gave_up_in_line_gets_nothing() {
    let (desk, strings) = held_by_n1().await;
    let (gone, gave_up, next) = (lock(&desk, "n2"), lock(&desk, "n3"), lock(&desk, "n4"));
    settle().await;
    gone.abort();
    assert_eq!(unlock(&desk, "n3").await.unwrap(), Ok(Decision::NotHeld));
    assert!(matches!(gave_up.await.unwrap(), Ok(Decision::Full { .. })));
    let release = unlock(&desk, "n1");
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n4"]);
    strings.end.send(true).unwrap();
    assert!(release.await.unwrap().is_ok() && granted(&next.await.unwrap()));
}

#[tokio::test]
async fn a_write_that_fails_leaves_those_behind_in_line() {
    let (desk, strings) = held_by_n1().await;
    let (second, third) = (lock(&desk, "n2"), lock(&desk, "n3"));
    settle().await;
    let release = unlock(&desk, "n1");
    let (strings, _) = next_write(strings).await;
    strings.end.send(false).unwrap();
    assert!(release.await.unwrap().is_err() && second.await.unwrap().is_err());
    let release = unlock(&desk, "n1");
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n3"]);
    strings.end.send(true).unwrap();
    assert!(release.await.unwrap().is_ok() && granted(&third.await.unwrap()));
}

#[tokio::test]
async fn a_desk_whose_store_is_lost_is_closed() {
    struct Panics;
    impl Store for Panics {
        fn write(&mut self, _: &Slots) -> Result<(), StoreError> {
            panic!("on purpose")
        }
    }
    let (desk, clerk) = Desk::open(Panics, Slots::default(), policies(&[("g", 1)]), Timestamp::now);
    assert_eq!(desk.ask(ask(Operation::PreReboot, "n1")).await, Err(DeskError::Closed));
    clerk.await.unwrap();
    assert_eq!(desk.ask(ask(Operation::PreReboot, "n1")).await, Err(DeskError::Closed));
}

#[tokio::test]
async fn a_desk_that_closes_answers_what_waits_and_nothing_more() {
    let (desk, strings, clerk) = open(2);
    let first = lock(&desk, "n1");
    let (strings, _) = next_write(strings).await;
    let second = lock(&desk, "n2");
    settle().await;
    desk.close();
    strings.end.send(true).unwrap();
    assert!(granted(&first.await.unwrap()));
    let (strings, holders) = next_write(strings).await;
    assert_eq!(holders, ["n1", "n2"]);
    assert_eq!(desk.ask(ask(Operation::PreReboot, "n3")).await, Err(DeskError::Closed));
    strings.end.send(true).unwrap();
    assert!(granted(&second.await.unwrap()));
    timeout(Duration::from_secs(5), clerk).await.unwrap().unwrap();
}
