//! Where a slot that may be ours can be given back.

use std::time::Duration;

use jiff::Timestamp;

use super::policy;
use crate::lifecycle::{self, Attempt, BootMark, Record, Slot, Stage, Start};
use crate::model::{AttemptId, BootId, Now, Source, Target};

#[test]
fn a_slot_is_given_back_where_it_was_asked_for() {
    let policy = policy(Duration::from_secs(60));
    let now = Now { wall: Timestamp::UNIX_EPOCH, since_boot: Duration::from_secs(100) };
    let boot = BootMark { id: BootId::parse(&"1".repeat(32)).unwrap(), soft_reboots: 0 };
    for (slot, slot_at, release_again, place) in [
        (Slot::None, None, false, None),
        (Slot::None, Some("old"), false, None),
        (Slot::None, None, true, Some("server")),
        (Slot::Asked, None, false, None),
        (Slot::Asked, None, true, Some("server")),
        (Slot::Asked, Some("old"), false, Some("old")),
        (Slot::Held { since: now.wall }, Some("old"), true, Some("old")),
    ] {
        let mut record = Record::default();
        record.core.boot = Some(boot.clone());
        record.core.slot = slot;
        record.slot_at = slot_at.map(str::to_owned);
        record.release_again = release_again.then_some(Timestamp::MAX);
        let start = Start {
            boot: boot.clone(),
            kubelet_unit: true,
            record_set_aside: None,
            config_wrong: None,
            seed: 0,
        };
        let state = lifecycle::start(&policy, record, start, now).next;
        assert_eq!(state.slot_place(&policy), place, "{slot:?} {slot_at:?} {release_again}");
    }
}

#[test]
fn only_the_attempt_whose_slot_it_is_releases_by_name() {
    let policy = policy(Duration::from_secs(60));
    let now = Now { wall: Timestamp::UNIX_EPOCH, since_boot: Duration::from_secs(100) };
    let boot = BootMark { id: BootId::parse(&"1".repeat(32)).unwrap(), soft_reboots: 0 };
    let id = AttemptId::new(&boot.id, 1);
    let identity = "42".to_owned();
    let target = Target { source: Source::RpmOstree, identity, version: None };
    for stage in Stage::ALL {
        let mut record = Record::default();
        record.core.boot = Some(boot.clone());
        let start = Start {
            boot: boot.clone(),
            kubelet_unit: true,
            record_set_aside: None,
            config_wrong: None,
            seed: 0,
        };
        let mut state = lifecycle::start(&policy, record, start, now).next;
        state.record.core.attempt = Some(Attempt {
            id: id.clone(),
            target: target.clone(),
            boot_before: None,
            booted_before: None,
            place_before: None,
            by_zincati: false,
            also: Vec::new(),
        });
        state.record.core.stage = stage;
        let named = (stage == Stage::Releasing).then_some(&id);
        assert_eq!(state.releases_for(), named, "{stage:?}");
    }
}
