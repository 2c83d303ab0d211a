use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::rig::{Rig, folder};
use crate::config::SlotServer;
use crate::effects::slot::SlotClient;
use crate::fleetlock::{ReleaseAnswer, SlotAnswer};

fn client(rig: &Rig, id: String) -> SlotClient {
    let settings = SlotServer {
        base_url: format!("http://{}", rig.address),
        group: "default".to_owned(),
        id: Some(id),
        ca_file: None,
        client_certificate: None,
        headers: BTreeMap::new(),
        proxy: None,
        connect_timeout: Duration::from_secs(20),
        answer_timeout: Duration::from_secs(30),
    };
    SlotClient::direct(&settings).unwrap()
}

/// What the clients of one race share.
struct Course {
    slots: usize,
    holders: AtomicUsize,
    released: Notify,
}

/// Asks until granted, holds while all others ask at once, confirms, releases.
async fn take_a_turn(client: SlotClient, course: Arc<Course>) {
    loop {
        // Listens before it asks, so that no release is missed in between.
        let mut released = pin!(course.released.notified());
        released.as_mut().enable();
        match client.request().await {
            SlotAnswer::Granted => break,
            SlotAnswer::Denied { .. } => released.await,
            other @ (SlotAnswer::Pending { .. } | SlotAnswer::Failed { .. }) => {
                panic!("neither yes nor no: {other:?}")
            }
        }
    }
    let now = course.holders.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(now <= course.slots, "{now} holders of {} slots", course.slots);
    let confirmed = client.request().await;
    assert_eq!(confirmed, SlotAnswer::Granted, "a slot was lost while it was held");
    assert!(course.holders.fetch_sub(1, Ordering::SeqCst) <= course.slots);
    assert_eq!(client.release().await, ReleaseAnswer::Released);
    course.released.notify_waiters();
}

async fn race(clients: usize, slots: u32) {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", slots)]).await;
    let course = Arc::new(Course {
        slots: usize::try_from(slots).unwrap(),
        holders: AtomicUsize::new(0),
        released: Notify::new(),
    });
    let mut turns = JoinSet::new();
    for index in 0..clients {
        let client = client(&rig, format!("n{index}"));
        turns.spawn(take_a_turn(client, Arc::clone(&course)));
    }
    let all = async {
        while let Some(turn) = turns.join_next().await {
            turn.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(100), all).await.expect("not all had their turn");
    let view = rig.desk.view();
    assert!(view.slots.groups["default"].holders.is_empty());
    // Two changes a client; batching can only make the writes fewer.
    assert!(view.writes <= 2 * u64::try_from(clients).unwrap(), "{} writes", view.writes);
    rig.stop().await;
}

#[tokio::test]
async fn sixty_four_clients_and_one_slot_never_two_holders() {
    race(64, 1).await;
}

#[tokio::test]
async fn twenty_four_clients_and_three_slots_never_four_holders() {
    race(24, 3).await;
}

/// Every free slot is given to who asks, and what one gives back goes to the next.
#[tokio::test]
async fn three_slots_are_three_at_once() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 3)]).await;
    let clients: Vec<SlotClient> = (0..5).map(|index| client(&rig, format!("n{index}"))).collect();
    for client in &clients[..3] {
        assert_eq!(client.request().await, SlotAnswer::Granted);
    }
    assert_eq!(rig.desk.view().slots.groups["default"].holders.len(), 3);
    for (gives_back, asks) in [(1, 3), (0, 4)] {
        let answer = clients[asks].request().await;
        assert!(matches!(answer, SlotAnswer::Denied { .. }), "{answer:?}");
        assert_eq!(clients[gives_back].release().await, ReleaseAnswer::Released);
        assert_eq!(clients[asks].request().await, SlotAnswer::Granted);
    }
    rig.stop().await;
}
