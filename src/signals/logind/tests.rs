//! A real bus, a logind that behaves as it is told, and what is heard of it.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use zbus::{OwnedObjectPath, Variant};

use super::{MANAGER, watch};
use crate::lifecycle::Event;
use crate::signals::bus::Bus;
use crate::signals::bus::fake::{Fake, error, value};
use crate::signals::bus::private::PrivateBus;

async fn logind(bus: &Bus, going: Arc<AtomicBool>) -> Fake {
    Fake::serve(bus, MANAGER.service, move |called, call| match called {
        "Get:PreparingForShutdown" => value(call, going.load(Ordering::Relaxed)),
        _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
    })
    .await
}

async fn next(heard: &mut Receiver<Event>) -> Event {
    tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.unwrap().unwrap()
}

/// Waits for one event and passes over others.
async fn until(heard: &mut Receiver<Event>, wanted: &Event) {
    while next(heard).await != *wanted {}
}

async fn prepare(logind: &Fake, to: Option<&str>, going: bool) {
    logind.signal(to, MANAGER.path, MANAGER.interface, "PrepareForShutdown", &going).await;
}

async fn changed(logind: &Fake, property: &str) {
    let changed = HashMap::from([(property, Variant::from("shutdown"))]);
    let none: Vec<String> = Vec::new();
    let body = (MANAGER.interface, changed, none);
    let properties = "org.freedesktop.DBus.Properties";
    logind.signal(None, MANAGER.path, properties, "PropertiesChanged", &body).await;
}

#[tokio::test]
async fn the_property_at_the_start_then_the_signals() {
    let bus = PrivateBus::start();
    let going = Arc::new(AtomicBool::new(true));
    let logind = logind(&bus.bus(), going).await;
    let (events, mut heard) = tokio::sync::mpsc::channel(8);
    tokio::spawn(watch(bus.bus(), events));
    let first = [next(&mut heard).await, next(&mut heard).await];
    assert!(first.contains(&Event::PreparingForShutdown(true)), "{first:?}");
    assert!(first.contains(&Event::HostChanged), "{first:?}");

    prepare(&logind, None, false).await;
    assert_eq!(next(&mut heard).await, Event::PreparingForShutdown(false));

    // Several at once are one look at the gates.
    changed(&logind, "DelayInhibited").await;
    changed(&logind, "BlockInhibited").await;
    let session = OwnedObjectPath::try_from("/org/freedesktop/login1/session/_31").unwrap();
    for member in ["SessionNew", "SessionRemoved"] {
        logind.signal(None, MANAGER.path, MANAGER.interface, member, &("1", &session)).await;
    }
    assert_eq!(next(&mut heard).await, Event::HostChanged);
    prepare(&logind, None, true).await;
    assert_eq!(next(&mut heard).await, Event::PreparingForShutdown(true));
}

#[tokio::test]
async fn a_stranger_cannot_tell_that_the_host_goes_down() {
    let bus = PrivateBus::start();
    let logind = logind(&bus.bus(), Arc::default()).await;
    let (events, mut heard) = tokio::sync::mpsc::channel(8);
    tokio::spawn(watch(bus.bus(), events));
    until(&mut heard, &Event::PreparingForShutdown(false)).await;
    let stranger = Fake::serve(&bus.bus(), "com.example.Stranger", |_, _| None).await;
    for number in 0..20 {
        prepare(&stranger, Some(&format!(":1.{number}")), true).await;
    }
    prepare(&logind, None, false).await;
    loop {
        let event = next(&mut heard).await;
        assert_ne!(event, Event::PreparingForShutdown(true));
        if event == Event::PreparingForShutdown(false) {
            break;
        }
    }
    // Messages of two senders may cross.
    tokio::time::sleep(Duration::from_millis(300)).await;
    while let Ok(event) = heard.try_recv() {
        assert_ne!(event, Event::PreparingForShutdown(true));
    }
}

#[tokio::test]
async fn a_new_logind_and_a_new_bus_are_asked_again() {
    let mut bus = PrivateBus::start();
    let (events, mut heard) = tokio::sync::mpsc::channel(8);
    tokio::spawn(watch(bus.bus(), events));
    // Nobody is there yet: only its coming leads to an answer.
    assert_eq!(next(&mut heard).await, Event::HostChanged);
    let going = Arc::new(AtomicBool::new(false));
    let first = logind(&bus.bus(), going.clone()).await;
    until(&mut heard, &Event::PreparingForShutdown(false)).await;
    first.leave().await;
    going.store(true, Ordering::Relaxed);
    let second = logind(&bus.bus(), going.clone()).await;
    until(&mut heard, &Event::PreparingForShutdown(true)).await;

    going.store(false, Ordering::Relaxed);
    bus.restart();
    drop(second);
    let _third = logind(&bus.bus(), going).await;
    until(&mut heard, &Event::PreparingForShutdown(false)).await;
}
