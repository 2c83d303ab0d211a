//! The frozen part of the record, as every version of the agent writes and reads it.

use serde_json::json;

use super::super::record::{Cordon, Record, Slot, Stage};

/// Version 1 as it is on the disks of hosts: never to be changed.
fn version_1() -> serde_json::Value {
    json!({
        "stage": "draining",
        "attempt": {
            "id": "11111111-3",
            "target": { "source": "rpm-ostree", "identity": "sha256:42", "version": "42" },
            "boot_before": { "id": "11111111111111111111111111111111", "soft_reboots": 1 },
            "booted_before": "sha256:41",
        },
        "slot": { "state": "held", "since": "2026-03-02T10:00:00Z" },
        "cordon": "ours",
        "boot": { "id": "11111111111111111111111111111111", "soft_reboots": 1 },
    })
}

#[test]
fn the_core_alone_is_a_record() {
    let record: Record = serde_json::from_value(version_1()).unwrap();
    assert_eq!(record.core.stage, Stage::Draining);
    assert!(matches!(record.core.slot, Slot::Held { .. }));
    assert_eq!(record.core.cordon, Cordon::Ours);
    assert_eq!(record.core.attempt.as_ref().unwrap().id.as_str(), "11111111-3");
    assert_eq!(Record { core: record.core.clone(), ..Record::default() }, record);
}

#[test]
fn the_core_is_written_as_it_was_frozen() {
    let record: Record = serde_json::from_value(version_1()).unwrap();
    let written = serde_json::to_value(&record).unwrap();
    for (key, value) in version_1().as_object().unwrap() {
        assert_eq!(written.get(key), Some(value), "{key}");
    }
}

#[test]
fn what_a_newer_agent_added_is_no_hindrance() {
    let mut newer = version_1();
    newer["attempt"]["canary"] = json!(true);
    newer["moon_phase"] = json!("full");
    let record: Record = serde_json::from_value(newer).unwrap();
    let usual: Record = serde_json::from_value(version_1()).unwrap();
    assert_eq!(record, usual);
}

#[test]
fn every_word_of_the_core_is_frozen() {
    let stages = Stage::ALL.map(|stage| serde_json::to_value(stage).unwrap());
    assert_eq!(stages, Stage::ALL.map(|stage| json!(stage.name())));
    let slots = [Slot::None, Slot::Asked].map(|slot| serde_json::to_value(slot).unwrap());
    assert_eq!(slots, [json!({ "state": "none" }), json!({ "state": "asked" })]);
    let cordons = [Cordon::None, Cordon::Foreign, Cordon::Ours];
    let cordons = cordons.map(|cordon| serde_json::to_value(cordon).unwrap());
    assert_eq!(cordons, ["none", "foreign", "ours"].map(|word| json!(word)));
}
