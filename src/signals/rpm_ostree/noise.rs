//! A daemon that answers and signals anything: the system is read rightly or not at all.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use zbus::Variant;

use super::deployments::tests::{dictionary, text};
use super::{NAME, Options, Reading, SYSROOT, read, watch};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, error, reply, value};
use crate::signals::bus::odd::{ANSWERS, KINDS, is_plain, odd, odd_answer};
use crate::signals::bus::private::PrivateBus;
use crate::signals::system::Heard;

fn good(called: &str, call: &zbus::Message) -> Answer {
    match called {
        "Get:ActiveTransaction" => value(call, Variant::new(("", "", ""))),
        "Reload" => reply(call, &()),
        "Get:Deployments" => {
            let booted = [("checksum", text("run")), ("booted", Variant::from(true))];
            value(call, Variant::new(vec![dictionary(&booted)]))
        }
        _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
    }
}

#[tokio::test]
async fn every_odd_answer_to_every_question_is_an_error_with_plain_words() {
    for odd_one in ["Get:ActiveTransaction", "Get:Deployments", "Reload"] {
        let bus = PrivateBus::start();
        let mut kind = 0;
        let _daemon = Fake::serve(&bus.bus(), NAME, move |called, call| {
            if called != odd_one {
                return good(called, call);
            }
            kind += 1;
            odd_answer(call, kind - 1)
        })
        .await;
        let link = bus.bus().connect().await.unwrap();
        for kind in 0..ANSWERS {
            match read(&link, true).await {
                // A call whose answer has no content is answered by anything that is no error.
                Ok(Reading::Entries(entries)) => {
                    let known = odd_one == "Reload" && entries.len() == 1;
                    assert!(known, "{odd_one} {kind}: {entries:?}");
                }
                Ok(Reading::Busy) => panic!("{odd_one} {kind}"),
                Err(trouble) => assert!(is_plain(&trouble.text()), "{odd_one} {kind}"),
            }
        }
        assert!(matches!(read(&link, true).await, Ok(_) | Err(_)));
    }
}

#[tokio::test]
async fn odd_signals_and_those_of_a_stranger_neither_end_nor_deceive_the_watch() {
    let bus = PrivateBus::start();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("ostree/deploy")).unwrap();
    std::fs::create_dir_all(root.path().join("run")).unwrap();
    let daemon = Fake::serve(&bus.bus(), NAME, good).await;
    let (events, mut heard) = tokio::sync::mpsc::channel(64);
    let options = Options {
        host: Host::new(bus.bus(), root.path()),
        debounce: Duration::from_millis(10),
        patience: Duration::from_secs(600),
    };
    tokio::spawn(watch(options, events));
    let first = tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.unwrap();
    assert!(matches!(first, Some(Heard { reading: Ok(_), .. })), "{first:?}");
    let stranger = Fake::serve(&bus.bus(), "com.example.Stranger", |_, _| None).await;
    let properties = "org.freedesktop.DBus.Properties";
    let none: Vec<String> = Vec::new();
    for kind in 0..KINDS {
        for fake in [&daemon, &stranger] {
            for number in 0..5 {
                let to = format!(":1.{number}");
                let body = odd(kind);
                fake.signal(Some(&to), SYSROOT.path, properties, "PropertiesChanged", &body).await;
                let changed = [("ActiveTransaction", odd(kind)), ("Deployments", odd(kind))];
                let body = (SYSROOT.interface, dictionary(&changed), &none);
                fake.signal(Some(&to), SYSROOT.path, properties, "PropertiesChanged", &body).await;
            }
        }
    }
    // It still hears, and has read nothing else meanwhile.
    let reads = daemon.count("Get:Deployments");
    let changed = dictionary(&[("ActiveTransaction", Variant::new(("", "", "")))]);
    let body = (SYSROOT.interface, changed, &none);
    daemon.signal(None, SYSROOT.path, properties, "PropertiesChanged", &body).await;
    let read_again = async {
        while daemon.count("Get:Deployments") <= reads {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read_again).await.unwrap();
    assert!(heard.try_recv().is_err(), "news without any change");
}
