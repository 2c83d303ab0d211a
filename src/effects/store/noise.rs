//! Whatever a disk makes of the record: it reads as it was written or is set aside, and nothing is
//! evicted or rebooted on the word of one that was forged.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::*;
use crate::fleetlock::{ReleaseAnswer, SlotAnswer};
use crate::lifecycle::tests::any::{news, record};
use crate::lifecycle::tests::policy;
use crate::lifecycle::{
    BootMark, CordonAnswer, DrainEnd, Effect, Event, NodeView, Policy, RebootAnswer, Start,
    UncordonAnswer, Verification, start, step,
};
use crate::model::{BootId, NodeUid, Now};

/// Every time of the policy, and how long passes between two looks.
const SHORT: Duration = Duration::from_secs(60);

/// What may happen to the bytes of a file.
#[derive(Debug, Clone)]
enum Damage {
    Cut(Index),
    Flip(Index, u8),
    /// A power cut leaves blocks of zeros.
    Zeros(Index, usize),
    Noise(Index, Vec<u8>),
    More(Vec<u8>),
    Swap(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || proptest::collection::vec(any::<u8>(), 1..64);
    prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (any::<Index>(), 1..4096_usize).prop_map(|(at, count)| Damage::Zeros(at, count)),
        (any::<Index>(), bytes()).prop_map(|(at, noise)| Damage::Noise(at, noise)),
        bytes().prop_map(Damage::More),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damage: &[Damage]) -> Vec<u8> {
    for one in damage {
        let length = bytes.len();
        if length == 0 {
            break;
        }
        match one {
            Damage::Cut(at) => bytes.truncate(at.index(length)),
            Damage::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Damage::Zeros(at, count) => {
                let from = at.index(length);
                bytes[from..length.min(from + count)].fill(0);
            }
            Damage::Noise(at, noise) => {
                let from = at.index(length);
                bytes[from..].iter_mut().zip(noise).for_each(|(byte, new)| *byte = *new);
            }
            Damage::More(more) => bytes.extend(more),
            Damage::Swap(a, b) => bytes.swap(a.index(length), b.index(length)),
        }
    }
    bytes
}

/// The file of a record, as it is written.
fn file_of(body: &Value) -> Vec<u8> {
    let body = serde_json::to_vec(body).unwrap();
    let mut file = format!("{MAGIC} {RECORD_VERSION} {}\n", checksum(&body)).into_bytes();
    file.extend(body);
    file
}

/// Values that do not belong where they are put.
fn stranger() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        proptest::sample::select(vec![
            "",
            "rebooting",
            "draining",
            "ours",
            "held",
            "-999999-01-01T00:00:00Z",
            "\u{0}\n\u{1b}",
        ])
        .prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[[[[]]]]])),
        Just(json!({ "state": "held", "since": "9999-12-30T00:00:00Z" })),
        Just(json!({ "id": "1".repeat(32), "soft_reboots": 4_294_967_295_u64 })),
    ]
}

/// Replaces one value somewhere, counted from the top.
fn replace(value: &mut Value, left: &mut usize, new: &Value) {
    if *left == 0 {
        *value = new.clone();
    }
    *left = left.wrapping_sub(1);
    if *left >= usize::MAX / 2 {
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, left, new)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(_, field)| replace(field, left, new));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// A world in which all is well, so that only the slot is missing: what it answers to an effect.
fn outcome(effect: &Effect, slot: &SlotAnswer, news: &[Event], boot: &BootMark) -> Option<Event> {
    let told = |wanted: fn(&Event) -> bool| news.iter().find(|event| wanted(event)).cloned();
    match effect {
        Effect::Inspect => told(|event| matches!(event, Event::Inspected(_))),
        Effect::ReadBoot => told(|event| matches!(event, Event::BootRead(_))),
        Effect::Rehearse => told(|event| matches!(event, Event::Rehearsed(_))),
        Effect::CheckHealth => told(|event| matches!(event, Event::HealthChecked(_))),
        Effect::ReadNode => Some(Event::NodeRead(Ok(NodeView {
            uid: NodeUid("uid".to_owned()),
            unschedulable: false,
            mark: None,
            hold: None,
            reboot: None,
            ready: true,
            not_ready_because: None,
            boot_id: Some(boot.id.clone()),
        }))),
        Effect::RequestSlot { .. } => Some(Event::SlotAnswered(slot.clone())),
        Effect::ReleaseSlot => Some(Event::SlotReleased(ReleaseAnswer::Released)),
        Effect::Cordon { .. } => Some(Event::Cordoned(CordonAnswer::Ours)),
        Effect::Drain { .. } => Some(Event::DrainEnded(DrainEnd::Empty)),
        Effect::StopDrain => Some(Event::DrainEnded(DrainEnd::Stopped)),
        Effect::VerifyEmpty { .. } => Some(Event::Verified(Verification::Good)),
        Effect::Reboot { .. } => Some(Event::RebootAnswered(RebootAnswer::Accepted)),
        Effect::AllowZincati { .. } => Some(Event::ZincatiAllowed(true)),
        Effect::UndoReboot { .. } => Some(Event::RebootUndone(Ok(()))),
        Effect::Uncordon => Some(Event::Uncordoned(UncordonAnswer::Lifted)),
        Effect::RestoreCordon => Some(Event::CordonRestored(Ok(false))),
    }
}

/// Lets an agent live on this record for some minutes, with this answer to every request for the
/// slot, and returns what it did to pods and host.
fn harm_done(record: Record, boot: BootMark, slot: &SlotAnswer) -> Vec<Effect> {
    let policy = Policy { confirm_every: Duration::from_secs(3600), ..policy(SHORT) };
    let mut now = Now {
        wall: "2026-11-30T12:00:00Z".parse().unwrap(),
        since_boot: Duration::from_secs(90_000),
    };
    let news = news(&boot);
    let is_look = |event: &&Event| matches!(event, Event::System(_) | Event::Node(_));
    let begin = Start {
        boot: boot.clone(),
        kubelet_unit: true,
        record_set_aside: None,
        config_wrong: None,
        seed: 7,
    };
    let mut harm = Vec::new();
    let mut told = start(&policy, record, begin, now);
    let mut queue = VecDeque::from(told.effects.clone());
    let looks = news.iter().filter(is_look).cloned();
    for event in looks.chain(std::iter::repeat_n(Event::Woke, 12)) {
        told = step(&policy, &told.next, now, event);
        queue.extend(told.effects.clone());
        // As many as any way through the cycle has, and no more where one goes round.
        for _ in 0..100 {
            let Some(effect) = queue.pop_front() else { break };
            if matches!(effect, Effect::Drain { .. } | Effect::Reboot { .. }) {
                harm.push(effect.clone());
            }
            if let Some(event) = outcome(&effect, slot, &news, &boot) {
                told = step(&policy, &told.next, now, event);
                queue.extend(told.effects.clone());
            }
        }
        now.since_boot += SHORT;
        now.wall += jiff::SignedDuration::from_secs(60);
    }
    harm
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_full_record_is_noticed() {
    let mut runner = TestRunner::deterministic();
    let record = (0..50)
        .map(|_| record().new_tree(&mut runner).unwrap().current())
        .max_by_key(|record| serde_json::to_string(record).unwrap().len())
        .unwrap();
    let whole = file_of(&serde_json::to_value(&record).unwrap());
    assert!(whole.len() > 800, "{} bytes show too little", whole.len());
    let path = Path::new("record");
    for cut in 0..whole.len() {
        assert!(parse(&whole[..cut], path).is_err(), "cut at {cut}");
    }
    let mut bytes = whole.clone();
    for at in 0..whole.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            assert!(parse(&bytes, path).is_err(), "bit {bit} of byte {at}");
            bytes[at] ^= 1 << bit;
        }
    }
    assert_eq!(parse(&bytes, path).unwrap(), record);
}

/// The world of `harm_done` would show harm: with a slot it is done.
#[test]
fn with_a_slot_the_same_world_leads_to_a_reboot() {
    let boot = BootMark { id: BootId::parse(&"1".repeat(32)).unwrap(), soft_reboots: 0 };
    let mut record = Record::default();
    record.core.boot = Some(boot.clone());
    let done = harm_done(record, boot, &SlotAnswer::Granted);
    // The reboot never comes, so that it is tried again later.
    let [Effect::Drain { .. }, Effect::Reboot { .. }, ..] = &done[..] else { panic!("{done:?}") };
}

/// Each stage with a slot that only the record knows of, in the boot of the record.
#[test]
fn a_slot_that_only_the_record_knows_of_is_no_grant() {
    let boot = BootMark { id: BootId::parse(&"1".repeat(32)).unwrap(), soft_reboots: 0 };
    let since = "2026-11-30T11:00:00Z".parse().unwrap();
    let denied = SlotAnswer::Denied { kind: "k".into(), value: "v".into(), retry_after: None };
    for stage in crate::lifecycle::Stage::ALL {
        let mut record = Record::default();
        record.core.stage = stage;
        record.core.slot = crate::lifecycle::Slot::Held { since };
        record.core.boot = Some(boot.clone());
        let done = harm_done(record, boot.clone(), &denied);
        assert!(done.is_empty(), "{}: {done:?}", stage.name());
    }
}

#[test]
fn what_is_no_file_is_set_aside_at_once() {
    use std::os::unix::fs::symlink;
    type Make = fn(&Path);
    let cases: [(&str, Make); 5] = [
        ("a folder", |at| fs::create_dir(at).unwrap()),
        ("a pipe", |at| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("an endless device", |at| symlink("/dev/zero", at).unwrap()),
        ("a loop of links", |at| symlink(NAME, at).unwrap()),
        ("a huge file", |at| File::create(at).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (name, make) in cases {
        let dir = tempfile::tempdir().unwrap();
        make(&dir.path().join(NAME));
        let store = Store::new(dir.path());
        let Loaded::SetAside { error, moved_to } = store.load() else { panic!("{name} was read") };
        assert!(error.to_string().contains("record: "), "{error}");
        assert!(moved_to.is_some(), "{name}");
        assert!(matches!(store.load(), Loaded::Fresh), "{name}");
        store.write(&Record::default()).unwrap();
        assert!(matches!(store.load(), Loaded::Read(_)), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_record_is_the_same_or_set_aside(
        record in record(),
        damage in proptest::collection::vec(damage(), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        store.write(&record).unwrap();
        let file = dir.path().join(NAME);
        let whole = fs::read(&file).unwrap();
        let bad = damaged(whole.clone(), &damage);
        fs::write(&file, &bad).unwrap();
        match store.load() {
            Loaded::Read(read) => {
                prop_assert_eq!(&bad, &whole, "read although it was changed");
                prop_assert_eq!(*read, record);
            }
            Loaded::SetAside { error, moved_to } => {
                prop_assert_ne!(&bad, &whole, "set aside although it is whole");
                prop_assert!(!error.to_string().contains('\n'));
                // Nothing is lost: who wants to look finds it.
                prop_assert_eq!(fs::read(moved_to.unwrap()).unwrap(), bad);
                prop_assert!(matches!(store.load(), Loaded::Fresh));
            }
            Loaded::Fresh => prop_assert!(false, "silently taken for a first start"),
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(parse(&bytes, Path::new("record")).is_err());
    }

    #[test]
    fn a_forged_record_evicts_and_reboots_nothing_without_a_slot(
        record in record(),
        forgeries in proptest::collection::vec((any::<Index>(), stranger()), 0..4),
        same_boot: bool,
        answer in proptest::sample::select(vec![
            SlotAnswer::Denied { kind: "full".into(), value: "full".into(), retry_after: None },
            SlotAnswer::Pending { value: "wait".into(), retry_after: None },
            SlotAnswer::Failed { kind: "io".into(), error: "reset".into(), answer_lost: true },
            SlotAnswer::Failed { kind: "dns".into(), error: "no".into(), answer_lost: false },
        ]),
    ) {
        let mut body = serde_json::to_value(&record).unwrap();
        for (at, new) in &forgeries {
            let mut at = at.index(count(&body));
            replace(&mut body, &mut at, new);
        }
        // The checksum is right: whoever can write the file can also count it.
        if let Ok(record) = parse(&file_of(&body), Path::new("record")) {
            let other = BootMark { id: BootId::parse(&"9".repeat(32)).unwrap(), soft_reboots: 0 };
            let boot = record.core.boot.clone().filter(|_| same_boot).unwrap_or(other);
            let done = harm_done(record, boot, &answer);
            prop_assert!(done.is_empty(), "{done:?}");
        }
    }
}
