//! Any record that a disk can hold: it is read back as it was written, and no step falls over it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::event::{BootEvidence, Event, Health, HostView, NodeView, Rehearsal, Start};
use super::super::record::{
    Asked, Attempt, BootMark, Cordon, Core, Denial, Finished, Hold, Outcome, Record, Slot, Stage,
    StageTime,
};
use super::super::{recover, step};
use super::policy;
use crate::fleetlock::SlotAnswer;
use crate::model::{AttemptId, BootId, Deployment, NodeUid, Now, Source, SystemView, Target};

/// Times near now, and those at either end.
fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        (-4000_i64..4000).prop_map(|s| Timestamp::from_second(1_800_000_000 + s).unwrap()),
    ]
}

fn word() -> impl Strategy<Value = String> {
    select(vec!["", "41", "42", "sha256:é\n\"", "old"]).prop_map(str::to_owned)
}

fn boot() -> impl Strategy<Value = BootMark> {
    (1..3_u8, 0..2_u32).prop_map(|(id, soft_reboots)| BootMark {
        id: BootId::parse(&format!("{id:032x}")).unwrap(),
        soft_reboots,
    })
}

fn target() -> impl Strategy<Value = Target> {
    let source = select(vec![
        Source::RpmOstree,
        Source::Bootc,
        Source::UpdateEngine,
        Source::Sentinel,
        Source::Person,
    ]);
    (source, word(), option::of(word())).prop_map(|(source, identity, version)| Target {
        source,
        identity,
        version,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    select(vec![Outcome::Updated, Outcome::Yielded, Outcome::FellBack, Outcome::NotFinalized])
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let also = proptest::collection::vec(target(), 0..2);
    (boot(), target(), option::of(boot()), option::of(word()), also).prop_map(
        |(boot, target, boot_before, booted_before, also)| Attempt {
            id: AttemptId::new(&boot.id, u32::MAX),
            target,
            boot_before,
            place_before: booted_before.clone(),
            by_zincati: false,
            booted_before,
            also,
        },
    )
}

fn core() -> impl Strategy<Value = Core> {
    let slot = prop_oneof![
        Just(Slot::None),
        Just(Slot::Asked),
        time().prop_map(|since| Slot::Held { since })
    ];
    let cordon = select(vec![Cordon::None, Cordon::Foreign, Cordon::Ours]);
    let stage = select(Stage::ALL.to_vec());
    (stage, option::of(attempt()), slot, cordon, option::of(boot())).prop_map(
        |(stage, attempt, slot, cordon, boot)| Core { stage, attempt, slot, cordon, boot },
    )
}

fn stages() -> impl Strategy<Value = Vec<StageTime>> {
    let one = (select(Stage::ALL.to_vec()), time());
    proptest::collection::vec(one.prop_map(|(stage, since)| StageTime { stage, since }), 0..3)
}

fn finished() -> impl Strategy<Value = Finished> {
    (attempt(), outcome(), option::of(word()), stages(), time()).prop_map(
        |(attempt, outcome, detail, stages, ended)| Finished {
            attempt: attempt.id,
            target: attempt.target,
            outcome,
            detail,
            stages,
            ended,
        },
    )
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    let count = || select(vec![0, 1, u32::MAX]);
    let numbers = (count(), count(), option::of(select(vec![0, 9000, u64::MAX])), any::<bool>());
    let times = (option::of(time()), option::of(time()), time());
    let texts = (word(), word(), option::of(word()), option::of(outcome()));
    let lists = (stages(), proptest::collection::vec(finished(), 0..3));
    (core(), numbers, times, texts, lists).prop_map(|(core, numbers, times, texts, lists)| {
        let (attempts, yields, drain_began, flag) = numbers;
        let (backoff_until, release_again, since) = times;
        let (key, text, ending_detail, ending) = texts;
        let (stages, history) = lists;
        let denial = Denial { since, because: text.clone(), version: ending_detail.clone() };
        let hold = Hold { reason: text.clone(), by: key.clone(), since };
        let key_of_slot = flag.then(|| key.clone());
        Record {
            core,
            node_uid: flag.then_some(NodeUid(text)),
            seen_as_node: flag,
            attempts,
            tries: BTreeMap::from([(key.clone(), yields)]),
            denied: if flag { BTreeMap::from([(key, denial)]) } else { BTreeMap::new() },
            backoff_until,
            yields,
            hold: (attempts == 1).then_some(hold),
            asked: flag.then(|| Asked { reason: "disk".to_owned(), by: "ada".to_owned(), since }),
            fulfilled: ending_detail.clone(),
            slot_at: key_of_slot,
            release_again,
            cordon_owed: flag,
            drain_began,
            ending,
            ending_detail,
            stages,
            history,
        }
    })
}

/// News of a node with which all is well.
pub(crate) fn news(boot: &BootMark) -> Vec<Event> {
    let entry = |identity: &str, booted, staged| Deployment {
        identity: identity.to_owned(),
        version: None,
        place: None,
        booted,
        staged,
    };
    let deployments = vec![entry("42", false, true), entry("41", true, false)];
    let node = NodeView {
        uid: NodeUid("uid".to_owned()),
        unschedulable: false,
        mark: None,
        hold: None,
        reboot: None,
        ready: true,
        not_ready_because: None,
        boot_id: Some(boot.id.clone()),
    };
    let host = HostView { finalize_unit_active: true, ..HostView::default() };
    vec![
        Event::System(SystemView { deployments, ..SystemView::default() }),
        Event::Node(node),
        Event::Inspected(host),
        Event::Rehearsed(Rehearsal::Passes),
        Event::BootRead(BootEvidence::default()),
        Event::HealthChecked(Health::Well),
        Event::SlotAnswered(SlotAnswer::Granted),
        Event::Woke,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        let text = serde_json::to_string(&record).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, record);
    }

    #[test]
    fn no_record_and_no_time_makes_a_step_fall_over(
        record in record(),
        other_boot in option::of(boot()),
        time in select(vec![Duration::ZERO, Duration::from_secs(60), Duration::MAX]),
        since_boot in select(vec![Duration::ZERO, Duration::from_secs(9000), Duration::MAX]),
        wall in time(),
        seed: u64,
    ) {
        // Mostly the boot of the record: there a stage goes on, elsewhere it settles.
        let boot = other_boot.or(record.core.boot.clone());
        let boot = boot.unwrap_or(BootMark { id: BootId::parse(&"1".repeat(32)).unwrap(), soft_reboots: 0 });
        let policy = policy(time);
        let now = Now { wall, since_boot };
        let news = news(&boot);
        let start = Start { boot, kubelet_unit: true, record_set_aside: None, config_wrong: None, seed };
        let mut state = recover::start(&policy, record, start, now).next;
        for event in news {
            let step = step::step(&policy, &state, now, event);
            prop_assert!(!step.waiting.to_string().is_empty());
            state = step.next;
        }
    }
}
