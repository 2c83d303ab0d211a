#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::super::slots::{Claim, Group, Holder};
use super::*;

fn slots(count: usize) -> Slots {
    let holders = (0..count)
        .map(|index| Holder {
            id: format!("n{index}"),
            since: "2026-11-30T12:00:00Z".parse().unwrap(),
            claim: Claim::read(Some("3f2a9c1e-7"), None, Some("worker-1")).unwrap(),
            earlier: Vec::new(),
        })
        .collect();
    Slots { groups: [("default".to_owned(), Group { holders })].into() }
}

fn error_text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn what_was_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let nested = folder.path().join("a/b");
    let (mut store, empty) = FileStore::open(&nested).unwrap();
    assert_eq!(empty, Slots::default());
    for count in [3, 1, 0, 2] {
        store.write(&slots(count)).unwrap();
    }
    drop(store);
    assert_eq!(FileStore::open(&nested).unwrap().1, slots(2));
}

#[test]
fn a_second_process_is_kept_away() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = FileStore::open(folder.path()).unwrap();
    let second = FileStore::open(folder.path()).unwrap_err();
    assert!(error_text(&second).contains("/lock: another coordinator"), "{second}");
    drop(store);
    FileStore::open(folder.path()).unwrap();
}

#[test]
fn a_file_that_is_not_what_was_written_stops_the_start_and_is_kept() {
    let good = format(&slots(2)).unwrap();
    let newer = good.replacen("\"version\":1", "\"version\":2", 1);
    let other = good.replacen(FORMAT, "something", 1);
    let twice_state = serde_json::to_string(&slots(2)).unwrap().replace("n1", "n0");
    let head = Head { format: FORMAT.into(), version: 1, sha256: checksum(&twice_state) };
    let twice = format!("{}\n{twice_state}\n", serde_json::to_string(&head).unwrap());
    let state = r#"{"groups":[]}"#;
    let head = Head { format: FORMAT.into(), version: 1, sha256: checksum(state) };
    let shape = format!("{}\n{state}\n", serde_json::to_string(&head).unwrap());
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "ends in its head"),
        (b"{}\n{}\n".to_vec(), "no head"),
        (b"\xff\xfe\n".to_vec(), "not UTF-8"),
        (vec![0; 4096], "ends in its head"),
        (good.as_bytes()[..good.len() - 1].to_vec(), "its end is missing"),
        (good.as_bytes()[..good.len() / 2].to_vec(), "its end is missing"),
        (good.replace("n1", "n9").into(), "checksum"),
        (newer.into(), "a newer lockkeeper"),
        (other.into(), "expected format"),
        (twice.into(), "twice"),
        (shape.into(), "no state"),
    ];
    for (content, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slots.json");
        fs::write(&file, &content).unwrap();
        let error = error_text(&FileStore::open(folder.path()).unwrap_err());
        assert!(error.contains("slots.json") && error.contains(expected), "{expected}: {error}");
        assert_eq!(fs::read(&file).unwrap(), content);
    }
}

#[test]
fn every_single_changed_byte_is_noticed() {
    let good = format(&slots(1)).unwrap().into_bytes();
    for index in 0..good.len() {
        for bit in [0x01, 0x20, 0x80] {
            let mut bad = good.clone();
            bad[index] ^= bit;
            // A head's own key may change its case into an unknown one; all else must be refused.
            if let Ok(read) = parse(&bad) {
                panic!("byte {index} changed to {:?} was read as {read:?}", char::from(bad[index]));
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_or_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("slots.json")).unwrap();
    let error = error_text(&FileStore::open(folder.path()).unwrap_err());
    assert!(error.contains("slots.json: reading it: "), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = FileStore::open(folder.path()).unwrap();
    fs::create_dir(folder.path().join("slots.json.new")).unwrap();
    let error = error_text(&store.write(&slots(1)).unwrap_err());
    assert!(error.contains("slots.json.new: creating it: "), "{error}");
}
