//! Whatever a disk makes of the slots: they read as they were written, or nothing is started.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::super::slots::{Claim, Group, Holder};
use super::*;

fn slots() -> impl Strategy<Value = Slots> {
    let node = proptest::option::of("[a-z]{1,8}");
    let holder = ("[!-~]{1,12}", -4000_i64..4000, node).prop_map(|(id, since, node)| Holder {
        id,
        since: jiff::Timestamp::from_second(1_800_000_000 + since).unwrap(),
        claim: Claim::read(None, None, node.as_deref()).unwrap(),
        earlier: Vec::new(),
    });
    let holders = proptest::collection::vec(holder, 0..4);
    let groups = proptest::collection::btree_map("[a-z]{1,8}", holders, 0..3);
    groups.prop_map(|groups| Slots {
        groups: groups
            .into_iter()
            .map(|(name, mut holders)| {
                holders.sort_by(|a, b| a.id.cmp(&b.id));
                holders.dedup_by(|a, b| a.id == b.id);
                (name, Group { holders })
            })
            .collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_slots_stop_the_start_and_are_kept(
        slots in slots(),
        at: Index,
        bit in 0..8_u8,
        cut: bool,
        noise in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = FileStore::open(folder.path()).unwrap();
        store.write(&slots).unwrap();
        drop(store);
        let file = folder.path().join("slots.json");
        let whole = fs::read(&file).unwrap();
        let mut bad = whole.clone();
        let at = at.index(bad.len());
        if cut { bad.truncate(at) } else { bad[at] ^= 1 << bit }
        bad.extend(noise);
        fs::write(&file, &bad).unwrap();
        match FileStore::open(folder.path()) {
            Ok((_, read)) => {
                prop_assert_eq!(&bad, &whole);
                prop_assert_eq!(read, slots);
            }
            Err(error) => {
                prop_assert_ne!(&bad, &whole, "{}", error);
                prop_assert!(error.to_string().contains("slots.json"));
                prop_assert_eq!(fs::read(&file).unwrap(), bad);
            }
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(parse(&bytes).is_err());
    }
}

#[test]
fn what_is_no_file_stops_the_start_at_once() {
    type Make = fn(&Path);
    let cases: [(&str, Make); 5] = [
        ("found a folder", |at| fs::create_dir(at).unwrap()),
        ("found a pipe", |at| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("device", |at| symlink("/dev/zero", at).unwrap()),
        ("symbolic links", |at| symlink("slots.json", at).unwrap()),
        ("longer than", |at| File::create(at).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (expected, make) in cases {
        let folder = tempfile::tempdir().unwrap();
        make(&folder.path().join("slots.json"));
        let error = FileStore::open(folder.path()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let told = format!("{error}: {}", source.unwrap_or_default());
        assert!(told.contains("slots.json") && told.contains(expected), "{expected}: {told}");
    }
}
