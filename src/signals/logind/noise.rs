//! Signals of every shape and of anybody: only the owner's own word that the host goes down counts.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use zbus::Variant;

use super::{MANAGER, watch};
use crate::lifecycle::Event;
use crate::signals::bus::fake::{Fake, error, value};
use crate::signals::bus::odd::{KINDS, odd};
use crate::signals::bus::private::PrivateBus;

/// Members that mean something, and one that does not.
const MEMBERS: [(&str, &str); 6] = [
    (MANAGER.interface, "PrepareForShutdown"),
    (MANAGER.interface, "SessionNew"),
    (MANAGER.interface, "SessionRemoved"),
    ("org.freedesktop.DBus.Properties", "PropertiesChanged"),
    ("org.freedesktop.DBus", "NameOwnerChanged"),
    (MANAGER.interface, "Odd"),
];

/// One signal: of the owner or a stranger, straight to the watch or to all, member, body.
type Said = (bool, bool, usize, usize);

async fn say(fake: &Fake, to: Option<&str>, member: usize, body: usize) {
    let (interface, member) = MEMBERS[member];
    let path = MANAGER.path;
    match body {
        // The body that a stranger would send.
        0 if member == "NameOwnerChanged" => {
            let body = (MANAGER.service, "", fake.connection.unique_name().unwrap().as_str());
            fake.signal(to, path, interface, member, &body).await;
        }
        0 => fake.signal(to, path, interface, member, &true).await,
        // What the owner never means by a shutdown.
        kind if kind < KINDS => {
            let body: Variant<'static> = odd(kind);
            fake.signal(to, path, interface, member, &body).await;
        }
        _ => fake.signal(to, path, interface, member, &("Manager", 7_u32)).await,
    }
}

#[test]
fn no_signal_of_a_stranger_and_no_odd_one_takes_the_host_down() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let bus = PrivateBus::start();
    let logind =
        runtime.block_on(Fake::serve(&bus.bus(), MANAGER.service, |called, call| match called {
            "Get:PreparingForShutdown" => value(call, false),
            _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
        }));
    let (events, mut heard) = tokio::sync::mpsc::channel(1024);
    runtime.spawn(watch(bus.bus(), events));
    let stranger = runtime.block_on(Fake::serve(&bus.bus(), "com.example.Odd", |_, _| None));
    let next = async |heard: &mut tokio::sync::mpsc::Receiver<Event>| {
        tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.unwrap().unwrap()
    };
    runtime
        .block_on(async { while next(&mut heard).await != Event::PreparingForShutdown(false) {} });
    let said = (any::<bool>(), any::<bool>(), 0..MEMBERS.len(), 0..KINDS + 1);
    let said = proptest::collection::vec(said, 1..6);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let heard = std::cell::RefCell::new(heard);
    let ran = TestRunner::new(config).run(&said, |said: Vec<Said>| {
        let mut heard = heard.borrow_mut();
        runtime.block_on(async {
            let mut truly = false;
            for (owner, straight, member, body) in said {
                let fake = if owner { &logind } else { &stranger };
                truly |= owner && member == 0 && body == 0;
                for number in 0..if straight { 6 } else { 1 } {
                    let to = format!(":1.{number}");
                    say(fake, straight.then_some(to.as_str()), member, body).await;
                }
            }
            // A stranger's last word has been delivered once the bus has answered it.
            let _ = stranger.connection.request_name("com.example.Later").await;
            let _ = stranger.connection.release_name("com.example.Later").await;
            logind
                .signal(None, MANAGER.path, MANAGER.interface, "PrepareForShutdown", &false)
                .await;
            let mut told = false;
            loop {
                match next(&mut heard).await {
                    Event::PreparingForShutdown(true) => told = true,
                    Event::PreparingForShutdown(false) => break,
                    _ => {}
                }
            }
            // Not the other way round: two truths in a row are told as they come.
            prop_assert!(truly || !told);
            prop_assert!(told || !truly);
            Ok(())
        })
    });
    ran.unwrap();
}
