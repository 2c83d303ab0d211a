//! A bus that is none, and services that answer with anything or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::fake::{Fake, reply, value};
use super::odd::{ANSWERS, FORGED, is_plain, odd_answer};
use super::private::PrivateBus;
use super::systemd::{JobEnd, Systemd, restart_unit};
use super::*;

const SERVICE: &str = "com.example.Odd";
const OBJECT: Object<'static> = Object { service: SERVICE, path: "/", interface: SERVICE };

#[tokio::test]
async fn every_odd_answer_is_an_error_with_plain_words_or_of_its_type() {
    let bus = PrivateBus::start();
    let mut kind = 0;
    let _odd = Fake::serve(&bus.bus(), SERVICE, move |_, call| {
        kind += 1;
        odd_answer(call, (kind - 1) / 4)
    })
    .await;
    let link = bus.bus().connect().await.unwrap();
    for kind in 0..ANSWERS {
        let text = link.string(OBJECT, "Word").await;
        let flag = link.boolean(OBJECT, "Flag").await;
        let count: Result<u32, BusError> = link.call(OBJECT, "Count", &()).await;
        let rows: Result<Vec<(String, u32)>, BusError> = link.call(OBJECT, "Rows", &()).await;
        let errors = [text.err(), flag.err(), count.err(), rows.err()];
        for error in errors.into_iter().flatten() {
            assert!(is_plain(&error.text()), "{kind}: {:?}", error.text());
            assert!(error.words().is_none_or(|words| is_plain(&words)), "{kind}");
        }
    }
}

#[tokio::test]
async fn one_that_never_answers_or_leaves_is_given_up() {
    let bus = PrivateBus::start();
    let silent = Fake::serve(&bus.bus(), SERVICE, |_, _| None).await;
    let link = bus.bus().connect().await.unwrap();
    let short = Duration::from_millis(100);
    let error = link.property(OBJECT, "Word", short).await.unwrap_err();
    assert!(matches!(error, BusError::TimedOut { .. }), "{error:?}");
    // It leaves in mid-reading, and another one takes its name.
    let (asked, leaves) = tokio::join!(link.string(OBJECT, "Word"), async {
        while silent.count("Get:Word") < 2 {
            tokio::task::yield_now().await;
        }
        silent.leave().await;
    });
    let () = leaves;
    assert!(asked.is_err());
    let _next = Fake::serve(&bus.bus(), SERVICE, |_, call| value(call, "new")).await;
    assert_eq!(link.string(OBJECT, "Word").await.unwrap(), "new");
}

#[tokio::test]
async fn a_stranger_cannot_tell_that_a_job_has_ended() {
    let bus = PrivateBus::start();
    let job = zbus::OwnedObjectPath::try_from("/job/7").unwrap();
    let removed = |result: &'static str| (7_u32, job.clone(), "a.service", result);
    let manager = "org.freedesktop.systemd1";
    let systemd = Fake::serve(&bus.bus(), manager, {
        let job = job.clone();
        move |called, call| match called {
            "RestartUnit" => reply(call, &job),
            _ => reply(call, &()),
        }
    })
    .await;
    let stranger = Fake::serve(&bus.bus(), "com.example.Stranger", |_, _| None).await;
    let address = bus.bus();
    let restarted =
        tokio::spawn(async move { restart_unit(&address, "a.service", CALL_TIMEOUT).await });
    while systemd.count("RestartUnit") == 0 {
        tokio::task::yield_now().await;
    }
    let interface = "org.freedesktop.systemd1.Manager";
    let path = "/org/freedesktop/systemd1";
    for number in 0..20 {
        let to = format!(":1.{number}");
        stranger.signal(Some(&to), path, interface, "JobRemoved", &removed("done")).await;
    }
    // What the stranger said has been delivered once the bus has answered it.
    stranger.connection.request_name("com.example.Later").await.unwrap();
    systemd.signal(None, path, interface, "JobRemoved", &removed("failed")).await;
    let end = restarted.await.unwrap().unwrap();
    assert_eq!(end, JobEnd::Result("failed".to_owned()));
}

#[tokio::test]
async fn words_of_systemd_are_plain() {
    let bus = PrivateBus::start();
    let unit = zbus::OwnedObjectPath::try_from("/unit").unwrap();
    let _systemd = Fake::serve(&bus.bus(), "org.freedesktop.systemd1", move |called, call| {
        if called == "LoadUnit" { reply(call, &unit) } else { value(call, FORGED) }
    })
    .await;
    let link = bus.bus().connect().await.unwrap();
    let unit = Systemd::new(&link).unit("a.service").await.unwrap();
    assert!([unit.load, unit.active, unit.sub].iter().all(|word| is_plain(word)));
}

/// A socket at which somebody says this, piece by piece, once he is spoken to, and hangs up.
fn talker(says: Vec<u8>) -> (tempfile::TempDir, Bus, tokio::task::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        for part in says.split(|byte| *byte == 0xfe) {
            let _ = stream.write_all(part).await;
            tokio::task::yield_now().await;
        }
    });
    (folder, Bus::At(format!("unix:path={}", path.display())), task)
}

/// What somebody says who is no bus, or one for a while.
fn says() -> impl Strategy<Value = Vec<u8>> {
    let guid = "0123456789abcdef0123456789abcdef";
    let part = prop_oneof![
        3 => Just(format!("OK {guid}\r\n").into_bytes()),
        2 => Just(b"AGREE_UNIX_FD\r\n".to_vec()),
        1 => Just(b"REJECTED EXTERNAL\r\n".to_vec()),
        1 => "(OK|DATA|ERROR|\\PC{0,8}) ?\\PC{0,20}(\r\n|\n|)".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..80),
        // The head of a message: order, type, flags, version, length of its body, serial, fields.
        3 => (any::<[u8; 4]>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
            |(kind, body, serial, fields)| {
                let order = if kind[0] % 4 == 0 { kind[0] } else { b'l' };
                let mut bytes = vec![order, kind[1] % 6, kind[2], 1];
                for number in [body, serial, fields] {
                    bytes.extend(number.to_le_bytes());
                }
                bytes.extend([kind[3]; 60]);
                bytes
            },
        ),
    ];
    proptest::collection::vec(part, 1..6).prop_map(|parts| parts.join(&0xfe))
}

/// Over the first one the library broke down.
#[tokio::test]
async fn one_that_says_a_line_and_no_more_is_refused() {
    for says in ["\n", "\r\n", "OK\n", "OK 0123456789abcdef0123456789abcdef\r\n\n", ""] {
        let (_folder, bus, _task) = talker(says.into());
        assert!(matches!(bus.connect().await, Err(BusError::Connect { .. })), "{says:?}");
    }
}

#[test]
fn whoever_is_no_bus_is_refused_and_takes_no_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let asked = TestRunner::new(config).run(&says(), |says| {
        let connected = runtime.block_on(async {
            let (_folder, bus, task) = talker(says);
            let connected = tokio::time::timeout(Duration::from_secs(60), bus.connect()).await;
            task.abort();
            connected.expect("neither refused nor connected")
        });
        prop_assert!(connected.is_err());
        prop_assert!(is_plain(&connected.unwrap_err().text()));
        Ok(())
    });
    asked.unwrap();
}
