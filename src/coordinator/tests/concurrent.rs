use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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

/// Asks until granted, holds for some turns of the others, releases.
async fn take_a_turn(client: SlotClient, holders: Arc<AtomicUsize>, slots: usize) {
    loop {
        match client.request().await {
            SlotAnswer::Granted => break,
            SlotAnswer::Denied { .. } => tokio::task::yield_now().await,
            other @ (SlotAnswer::Pending { .. } | SlotAnswer::Failed { .. }) => {
                panic!("neither yes nor no: {other:?}")
            }
        }
    }
    let now = holders.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(now <= slots, "{now} holders of {slots} slots");
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert!(holders.load(Ordering::SeqCst) <= slots);
    }
    assert_eq!(client.request().await, SlotAnswer::Granted, "a slot was lost while it was held");
    holders.fetch_sub(1, Ordering::SeqCst);
    assert_eq!(client.release().await, ReleaseAnswer::Released);
}

async fn race(clients: usize, slots: u32) {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", slots)]).await;
    let holders = Arc::new(AtomicUsize::new(0));
    let mut turns = JoinSet::new();
    for index in 0..clients {
        let client = client(&rig, format!("n{index}"));
        let slots = usize::try_from(slots).unwrap();
        turns.spawn(take_a_turn(client, Arc::clone(&holders), slots));
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
