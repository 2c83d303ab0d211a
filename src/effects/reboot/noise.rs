//! A daemon that answers anything on the way to the reboot: nothing of it is taken for one.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zbus::{Message, OwnedObjectPath, Variant};

use super::reboot;
use crate::lifecycle::RebootAnswer;
use crate::model::{AttemptId, BootId, Source, Target};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, reply, value};
use crate::signals::bus::odd::{ANSWERS, is_plain, odd_answer};
use crate::signals::bus::private::PrivateBus;

fn good(called: &str, call: &Message) -> Answer {
    match called {
        "Get:PreparingForShutdown" => value(call, false),
        "Get:ActiveTransaction" => value(call, Variant::new(("", "", ""))),
        "Get:Deployments" => {
            let entry = |name: &'static str, flag: &'static str| {
                HashMap::from([("checksum", Variant::from(name)), (flag, Variant::from(true))])
            };
            value(call, Variant::new(vec![entry("42", "staged"), entry("41", "booted")]))
        }
        "Get:Booted" => value(call, OwnedObjectPath::try_from("/").unwrap()),
        "GetOS" => reply(call, &OwnedObjectPath::try_from("/os").unwrap()),
        // Nobody is there.
        "FinalizeDeployment" => reply(call, &"unix:path=/nowhere/at/all"),
        _ => reply(call, &()),
    }
}

async fn try_reboot(bus: &PrivateBus, root: &std::path::Path) -> RebootAnswer {
    let host = Host::new(bus.bus(), root);
    let target = Target { source: Source::RpmOstree, identity: "42".to_owned(), version: None };
    let attempt = AttemptId::new(&BootId::parse(&"1".repeat(32)).unwrap(), 1);
    reboot(&host, &target, &attempt, "into 42").await
}

/// Every `step`-th kind of odd answer to one question.
async fn ask_oddly(question: &'static str, step: usize) {
    let root = tempfile::tempdir().unwrap();
    let bus = PrivateBus::start();
    let kind = Arc::new(AtomicUsize::new(0));
    let told = kind.clone();
    let answer = move |called: &str, call: &Message| {
        let kind = told.load(Ordering::Relaxed);
        if called == question { odd_answer(call, kind) } else { good(called, call) }
    };
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", answer.clone()).await;
    let _daemon = Fake::serve(&bus.bus(), "org.projectatomic.rpmostree1", answer).await;
    for number in (0..ANSWERS).step_by(step) {
        kind.store(number, Ordering::Relaxed);
        let answer = try_reboot(&bus, root.path()).await;
        let RebootAnswer::Refused(why) = &answer else { panic!("{question} {number}: {answer:?}") };
        assert!(is_plain(why), "{question} {number}: {why:?}");
    }
}

#[tokio::test]
async fn no_odd_answer_is_taken_for_a_reboot() {
    // After some of them it is tried again, with a rest between: fewer kinds.
    tokio::join!(
        ask_oddly("Get:PreparingForShutdown", 1),
        ask_oddly("RegisterClient", 7),
        ask_oddly("Get:ActiveTransaction", 7),
        ask_oddly("Get:Deployments", 7),
        ask_oddly("GetOS", 7),
        ask_oddly("FinalizeDeployment", 1),
    );
}

#[tokio::test]
async fn a_transaction_is_looked_for_on_this_host_only_and_nothing_is_run_for_it() {
    let root = tempfile::tempdir().unwrap();
    let marker = root.path().join("ran");
    let bus = PrivateBus::start();
    let addresses = [
        format!("unixexec:path=/usr/bin/touch,argv1={}", marker.display()),
        format!("unix:path=/nowhere;unixexec:path=/usr/bin/touch,argv1={}", marker.display()),
        "tcp:host=127.0.0.1,port=1".to_owned(),
        "nonce-tcp:host=127.0.0.1,port=1,noncefile=/dev/zero".to_owned(),
        "autolaunch:".to_owned(),
        "launchd:env=HOME".to_owned(),
        String::new(),
    ];
    let number = Arc::new(AtomicUsize::new(0));
    let (told, all) = (number.clone(), addresses.clone());
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", good).await;
    let _daemon = Fake::serve(&bus.bus(), "org.projectatomic.rpmostree1", move |called, call| {
        if called == "FinalizeDeployment" {
            return reply(call, &all[told.load(Ordering::Relaxed)]);
        }
        good(called, call)
    })
    .await;
    for (index, address) in addresses.iter().enumerate() {
        number.store(index, Ordering::Relaxed);
        let answer = try_reboot(&bus, root.path()).await;
        let RebootAnswer::Refused(why) = answer else { panic!("{address}: {answer:?}") };
        assert!(why.contains("expected a local socket"), "{address}: {why}");
        assert!(!marker.exists(), "{address}");
    }
}
