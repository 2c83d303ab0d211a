//! A daemon that answers and signals anything, and a host with any files: an update is heard of
//! rightly or not at all.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::host::Booted;
use super::status::{MANAGER, NAME, Wire, known_version, now_within};
use super::tests::{IDLE, NEED_REBOOT, host_files, signal, wire};
use super::{Options, Status, Update, systems, watch};
use crate::model::Reading;
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Fake, reply};
use crate::signals::bus::odd::{ANSWERS, FORGED, KINDS, is_plain, odd, odd_answer};
use crate::signals::bus::private::PrivateBus;

#[tokio::test]
async fn every_odd_answer_is_an_error_with_plain_words() {
    let bus = PrivateBus::start();
    let mut kind = 0;
    let _daemon = Fake::serve(&bus.bus(), NAME, move |_, call| {
        kind += 1;
        if kind <= ANSWERS { odd_answer(call, kind - 1) } else { reply(call, &wire(IDLE, "")) }
    })
    .await;
    let host = Host::new(bus.bus(), "/");
    for kind in 0..ANSWERS {
        let why = now_within(&host, Duration::from_secs(30)).await.unwrap_err();
        assert!(is_plain(&why) && why.starts_with(NAME), "{kind}: {why}");
    }
    assert!(now_within(&host, Duration::from_secs(30)).await.is_ok());
}

/// An answer of another type will not mend itself, so that it is told at once.
#[tokio::test]
async fn an_odd_answer_is_told_and_a_right_one_ends_it() {
    let (bus, root) = (PrivateBus::start(), host_files());
    let mut count = 0;
    let _daemon = Fake::serve(&bus.bus(), NAME, move |_, call| {
        count += 1;
        if count == 1 { reply(call, &(FORGED, 7_u8)) } else { reply(call, &wire(IDLE, "")) }
    })
    .await;
    let (to, mut heard) = tokio::sync::mpsc::channel(8);
    tokio::spawn(watch(Options::new(Host::new(bus.bus(), root.path())), to));
    let mut next = async || {
        let heard = tokio::time::timeout(Duration::from_secs(30), heard.recv()).await;
        heard.unwrap().unwrap().reading
    };
    let why = next().await.unwrap_err();
    assert!(why.contains("GetStatus answered with") && why.contains("expected xdssx"), "{why}");
    assert!(next().await.is_ok());
}

#[tokio::test]
async fn odd_signals_and_those_of_a_stranger_neither_end_nor_deceive_the_watch() {
    let (bus, root) = (PrivateBus::start(), host_files());
    let daemon = Fake::serve(&bus.bus(), NAME, |_, call| reply(call, &wire(IDLE, ""))).await;
    let (to, mut heard) = tokio::sync::mpsc::channel(64);
    let options = Options {
        pace: Duration::from_millis(10),
        ..Options::new(Host::new(bus.bus(), root.path()))
    };
    tokio::spawn(watch(options, to));
    let first = tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.unwrap();
    assert!(matches!(&first.unwrap().reading, Ok(Reading::Deployments(one)) if one.len() == 1));
    let stranger = Fake::serve(&bus.bus(), "com.example.Stranger", |_, _| None).await;
    let huge = "x".repeat(1 << 20);
    for fake in [&daemon, &stranger] {
        for number in 0..5 {
            let to = format!(":1.{number}");
            for kind in 0..KINDS {
                let (path, interface) = (MANAGER.path, MANAGER.interface);
                fake.signal(Some(&to), path, interface, "StatusUpdate", &odd(kind)).await;
                let mixed = (0_i64, 0_f64, NEED_REBOOT, odd(kind), 0_i64);
                fake.signal(Some(&to), path, interface, "StatusUpdate", &mixed).await;
                let (dbus, name) = ("org.freedesktop.DBus", "NameOwnerChanged");
                fake.signal(Some(&to), "/", dbus, name, &(NAME, "", odd(kind))).await;
            }
            for text in [FORGED, huge.as_str()] {
                signal(fake, Some(&to), text, text).await;
                signal(fake, Some(&to), NEED_REBOOT, text).await;
            }
        }
    }
    // It still hears, and has told nothing else meanwhile.
    let count = daemon.count("GetStatus");
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    let asked_again = async {
        while daemon.count("GetStatus") <= count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked_again).await.unwrap();
    assert!(heard.try_recv().is_err(), "news without any change");
}

/// Words that matter, and any others.
fn operation() -> impl Strategy<Value = String> {
    prop_oneof![Just(NEED_REBOOT.to_owned()), Just(IDLE.to_owned()), any::<String>()]
}

fn version() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("0.0.0".to_owned()),
        Just("4300.1.0".to_owned()),
        any::<String>(),
        "[0.]{0,9}",
        "x{100,300}",
    ]
}

proptest! {
    /// Whatever is answered, what comes of it is short and plain, and waits only if it was said so.
    #[test]
    fn any_status_is_short_and_plain(
        looked in any::<i64>(), progress in any::<f64>(), size in any::<i64>(),
        operation in operation(), version in version(),
    ) {
        let wire: Wire = (looked, progress, operation.clone(), version, size);
        let status = Status::new(wire);
        prop_assert!(is_plain(&status.operation));
        prop_assert_eq!(status.needs_reboot(), operation == NEED_REBOOT);
        if let Some(version) = &status.version {
            prop_assert!(is_plain(version) && version.len() <= 128);
            prop_assert_eq!(known_version(version), Some(version.clone()));
        }
        let booted = Booted { version: "1".to_owned(), partition: None };
        let systems = systems(&booted, Some(&Update { version: status.version }));
        prop_assert!(systems.iter().all(|one| !one.identity.is_empty()));
        prop_assert!(systems[0].staged && systems[1].booted);
    }

    /// Whatever the files hold, what runs is known by a plain version or not at all.
    #[test]
    fn any_files_are_read_or_named(
        os_release in any::<Vec<u8>>(), value in any::<String>(), line in any::<Vec<u8>>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        for (file, bytes) in [
            ("usr/lib/os-release", [&os_release[..], b"\nVERSION=", value.as_bytes()].concat()),
            ("proc/cmdline", [b"usr=PARTUUID=", &line[..]].concat()),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        match Booted::read(root.path()) {
            Ok(booted) => prop_assert!(is_plain(&booted.version) && !booted.version.is_empty()),
            Err(trouble) => prop_assert!(is_plain(&crate::signals::bus::one_line(&trouble))),
        }
    }
}
