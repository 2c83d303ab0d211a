//! Services that answer anything: a gate that cannot be looked at is named, and stays closed.

#![allow(clippy::unwrap_used)]

use zbus::{Message, OwnedObjectPath};

use super::{InhibitorRow, inspect};
use crate::config::RebootSettings;
use crate::lifecycle::HostView;
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, reply, value};
use crate::signals::bus::odd::{ANSWERS, is_plain, odd_answer};
use crate::signals::bus::private::PrivateBus;

/// What each question is about, in the words of the view.
const QUESTIONS: [(&str, &str); 6] = [
    ("ListInhibitors", "inhibitors"),
    ("ListSessions", "sessions"),
    ("Get:PreparingForShutdown", "shutdown"),
    ("ListJobs", "jobs"),
    ("LoadUnit", "ostree-finalize-staged.service"),
    ("Get:ActiveState", "ostree-finalize-staged.service"),
];

fn good(called: &str, call: &Message) -> Answer {
    type Session = (String, u32, String, String, OwnedObjectPath);
    type Job = (u32, String, String, String, OwnedObjectPath, OwnedObjectPath);
    match called {
        "ListInhibitors" => reply(call, &Vec::<InhibitorRow>::new()),
        "ListSessions" => reply(call, &Vec::<Session>::new()),
        "ListJobs" => reply(call, &Vec::<Job>::new()),
        "LoadUnit" => reply(call, &OwnedObjectPath::try_from("/unit").unwrap()),
        "Get:PreparingForShutdown" => value(call, false),
        "Get:NTPSynchronized" => value(call, true),
        _ => value(call, "active"),
    }
}

async fn look(bus: &PrivateBus, root: &std::path::Path) -> HostView {
    let host = Host::new(bus.bus(), root);
    inspect(&host, &RebootSettings { boot_dir: root.to_owned() }, None).await
}

#[tokio::test]
async fn every_odd_answer_to_every_question_is_named() {
    let root = tempfile::tempdir().unwrap();
    for (question, about) in QUESTIONS {
        let bus = PrivateBus::start();
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let kind = asked.clone();
        let answer = move |called: &str, call: &Message| {
            let kind = kind.load(std::sync::atomic::Ordering::Relaxed);
            if called == question { odd_answer(call, kind) } else { good(called, call) }
        };
        let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", answer.clone()).await;
        let _systemd = Fake::serve(&bus.bus(), "org.freedesktop.systemd1", answer.clone()).await;
        let _timedated = Fake::serve(&bus.bus(), "org.freedesktop.timedate1", answer).await;
        for kind in 0..ANSWERS {
            asked.store(kind, std::sync::atomic::Ordering::Relaxed);
            let view = look(&bus, root.path()).await;
            assert!(view.unreadable.iter().all(|why| is_plain(why)), "{question} {kind}");
            let named = view.unreadable.iter().any(|why| why.starts_with(about));
            let (is_bool, is_text) = (kind == 1, (9..=12).contains(&kind));
            let of_its_type = match question {
                "Get:PreparingForShutdown" => is_bool,
                "Get:ActiveState" => is_text,
                _ => false,
            };
            assert_eq!(named, !of_its_type, "{question} {kind}: {:?}", view.unreadable);
            let closed = named || !view.finalize_unit_active || is_bool;
            assert!(closed, "{question} {kind}: {view:?}");
        }
    }
}

#[tokio::test]
async fn a_look_that_hangs_has_no_second_one_beside_it() {
    let looks = std::sync::Arc::default();
    let (free, hangs) = std::sync::mpsc::channel::<()>();
    let (started, begun) = tokio::sync::oneshot::channel();
    let first = super::alone(&looks, move || {
        let _ = started.send(());
        let _ = hangs.recv();
    });
    tokio::select! {
        _ = first => panic!("it does not hang"),
        begun = begun => begun.unwrap(),
    }
    // The first one is no longer waited for, and still there.
    let (second, mut ran) = tokio::sync::oneshot::channel();
    let mut next = Box::pin(super::alone(&looks, move || second.send(())));
    for _ in 0..100 {
        assert!(futures::poll!(&mut next).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(ran.try_recv().is_err(), "a second look began beside it");
    drop(free);
    next.await.unwrap().unwrap();
}
