//! A real bus, a daemon that behaves as it is told, and what is heard of it.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use zbus::{OwnedObjectPath, Variant};

use super::deployments::tests::{dictionary, text};
use super::{Hint, NAME, Options, SYSROOT, Work, watch};
use crate::model::{Reading, SystemView};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, error, reply, value};
use crate::signals::bus::private::PrivateBus;
use crate::signals::system::Heard;

/// What the daemon has.
#[derive(Debug, Default)]
struct State {
    staged: Option<&'static str>,
    busy: bool,
    /// Answer of `Deployments` with another type.
    odd: bool,
    /// Calls that get no answer but an error, from now on.
    no_reply: usize,
}

#[derive(Debug)]
struct Scene {
    bus: PrivateBus,
    root: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    heard: Receiver<Heard>,
}

impl Scene {
    /// A bus, a root folder, and a watch that listens to both.
    fn new(bus: PrivateBus) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("ostree/deploy")).unwrap();
        std::fs::create_dir_all(root.path().join("run")).unwrap();
        let (events, heard) = tokio::sync::mpsc::channel(8);
        let options = Options {
            host: Host::new(bus.bus(), root.path()),
            debounce: Duration::from_millis(50),
            patience: Duration::from_secs(600),
        };
        tokio::spawn(watch(options, events));
        Self { bus, root, state: Arc::default(), heard }
    }

    async fn daemon(&self) -> Fake {
        let state = self.state.clone();
        Fake::serve(&self.bus.bus(), NAME, move |called, call| {
            answer(&mut state.lock().unwrap(), called, call)
        })
        .await
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    async fn next(&mut self) -> Heard {
        tokio::time::timeout(Duration::from_secs(30), self.heard.recv()).await.unwrap().unwrap()
    }

    async fn system(&mut self) -> SystemView {
        match self.next().await.reading {
            Ok(Reading::Deployments(deployments)) => {
                SystemView { deployments, ..SystemView::default() }
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    async fn unreadable(&mut self) -> String {
        self.next().await.reading.unwrap_err()
    }

    async fn staged(&mut self) -> Option<String> {
        self.system().await.target().map(|target| target.identity)
    }
}

fn answer(state: &mut State, called: &str, call: &zbus::Message) -> Answer {
    if state.no_reply > 0 {
        state.no_reply -= 1;
        return error(call, "org.freedesktop.DBus.Error.NoReply", "it left");
    }
    match called {
        "Get:ActiveTransaction" => {
            let method = if state.busy { "upgrade" } else { "" };
            value(call, Variant::new((method, "", "")))
        }
        "Reload" => reply(call, &()),
        "Get:Deployments" if state.odd => value(call, "none"),
        "Get:Deployments" => {
            let mut list = Vec::new();
            if let Some(staged) = state.staged {
                list.push(dictionary(&[
                    ("checksum", text(staged)),
                    ("staged", Variant::from(true)),
                ]));
            }
            list.push(dictionary(&[("checksum", text("run")), ("booted", Variant::from(true))]));
            value(call, Variant::new(list))
        }
        _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
    }
}

/// What the daemon signals when something changed.
async fn changed(daemon: &Fake, to: Option<&str>, properties: &[(&str, Variant<'static>)]) {
    let changed = dictionary(properties);
    let none: Vec<String> = Vec::new();
    daemon
        .signal(
            to,
            SYSROOT.path,
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            &(SYSROOT.interface, changed, none),
        )
        .await;
}

fn active(method: &'static str) -> (&'static str, Variant<'static>) {
    ("ActiveTransaction", Variant::new((method, "", "")))
}

#[tokio::test]
async fn a_signal_leads_to_one_read_and_only_a_change_is_told() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    // The watch may have looked before the daemon had its name.
    let mut first = scene.next().await;
    if first.reading.is_err() {
        first = scene.next().await;
    }
    let Ok(Reading::Deployments(deployments)) = first.reading else {
        panic!("unexpected {first:?}")
    };
    let view = SystemView { deployments, ..SystemView::default() };
    assert_eq!(view.target(), None);
    assert_eq!(view.booted().map(|one| one.identity.as_str()), Some("run"));

    let before = daemon.count("Get:Deployments");
    for _ in 0..20 {
        changed(&daemon, None, &[]).await;
    }
    scene.set(|state| state.staged = Some("new"));
    changed(&daemon, None, &[]).await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
    assert!(daemon.count("Get:Deployments") <= before + 2, "{:?}", daemon.calls());
    assert_eq!(daemon.count("Reload"), daemon.count("Get:Deployments"));

    scene.set(|state| state.staged = None);
    changed(&daemon, None, &[]).await;
    assert_eq!(scene.staged().await, None);
}

#[tokio::test]
async fn the_first_hint_is_acted_upon_at_once_and_its_followers_together() {
    let (debounce, now) = (Duration::from_secs(600), Instant::now());
    let changed = Hint::Changed { busy: None };
    for (last, at) in
        [(None, None), (now.checked_sub(2 * debounce), None), (Some(now), Some(now + debounce))]
    {
        let mut work = Work { due: None, last, ..Work::new() };
        work.hint(changed, debounce);
        work.hint(changed, debounce);
        let due = work.due.unwrap().deadline();
        assert!(at.map_or(due <= Instant::now(), |at| due == at), "after {last:?}");
    }
}

#[tokio::test]
async fn a_stranger_is_not_believed() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    let stranger = Fake::serve(&scene.bus.bus(), "com.example.Stranger", |_, _| None).await;

    scene.set(|state| state.staged = Some("new"));
    let reads = daemon.count("Get:ActiveTransaction");
    // Nobody else has connected: every name up to here is tried, the watch's own among them.
    for number in 0..20 {
        changed(&stranger, Some(&format!(":1.{number}")), &[]).await;
    }
    changed(&stranger, None, &[]).await;
    // The bus keeps the order of messages from one sender to one receiver, and a debounced read
    // would have come within its 50 ms.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(daemon.count("Get:ActiveTransaction"), reads);
    changed(&daemon, None, &[]).await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_transaction_puts_the_read_off() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    let reads = daemon.count("Get:Deployments");

    scene.set(|state| state.busy = true);
    changed(&daemon, None, &[active("upgrade")]).await;
    scene.set(|state| state.staged = Some("new"));
    changed(&daemon, None, &[]).await;
    std::fs::create_dir(scene.root.path().join("run/ostree")).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(daemon.count("Get:Deployments"), reads);

    scene.set(|state| state.busy = false);
    changed(&daemon, None, &[active("")]).await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_transaction_that_its_daemon_takes_along_still_leads_to_a_read() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    scene.set(|state| state.busy = true);
    changed(&daemon, None, &[active("upgrade")]).await;
    daemon.leave().await;
    // The read that was put off is done now, and there is nobody to start the daemon.
    assert!(scene.unreadable().await.contains("ServiceUnknown"));
    scene.set(|state| (state.busy, state.staged) = (false, Some("new")));
    let _daemon = scene.daemon().await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_daemon_that_leaves_is_not_called_back_and_its_successor_is_read() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    daemon.leave().await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    // A call would have failed, and that would have been told.
    assert!(scene.heard.try_recv().is_err());
    scene.set(|state| state.staged = Some("new"));
    let daemon = scene.daemon().await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
    assert_eq!(daemon.count("Get:Deployments"), 1);
}

#[tokio::test]
async fn files_tell_what_no_signal_does() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let _daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    let run = scene.root.path().join("run");

    // The folder comes, then files in it by rename, then the time of the other folder.
    scene.set(|state| state.staged = Some("one"));
    std::fs::create_dir(run.join("ostree")).unwrap();
    assert_eq!(scene.staged().await.as_deref(), Some("one"));

    scene.set(|state| state.staged = Some("two"));
    std::fs::write(run.join("half"), "").unwrap();
    std::fs::rename(run.join("half"), run.join("ostree/staged-deployment")).unwrap();
    assert_eq!(scene.staged().await.as_deref(), Some("two"));

    scene.set(|state| state.staged = None);
    std::fs::remove_file(run.join("ostree/staged-deployment")).unwrap();
    assert_eq!(scene.staged().await, None);

    scene.set(|state| state.staged = Some("three"));
    let deploy = std::fs::File::open(scene.root.path().join("ostree/deploy")).unwrap();
    // Both times, as utimensat does for libostree: for one alone there is another event.
    let times = std::fs::FileTimes::new()
        .set_accessed(std::time::UNIX_EPOCH)
        .set_modified(std::time::UNIX_EPOCH);
    deploy.set_times(times).unwrap();
    assert_eq!(scene.staged().await.as_deref(), Some("three"));

    std::fs::remove_dir(run.join("ostree")).unwrap();
    scene.set(|state| state.staged = Some("four"));
    std::fs::create_dir(run.join("ostree")).unwrap();
    std::fs::write(run.join("ostree/staged-deployment"), "").unwrap();
    assert_eq!(scene.staged().await.as_deref(), Some("four"));
}

#[tokio::test]
async fn lost_replies_are_kept_quiet_and_odd_types_are_not() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    scene.set(|state| state.no_reply = 2);
    // It has its name before the watch's first call in most runs; either way nothing is told of
    // the lost replies.
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}

    scene.set(|state| (state.no_reply, state.staged) = (2, Some("new")));
    changed(&daemon, None, &[]).await;
    assert_eq!(scene.staged().await.as_deref(), Some("new"));

    scene.set(|state| state.odd = true);
    changed(&daemon, None, &[("Deployments", Variant::from(7u32))]).await;
    assert_eq!(
        scene.unreadable().await,
        "org.projectatomic.rpmostree1: Deployments answered with s, expected aa{sv}"
    );
    // Once it can be read again, that is told even though nothing changed.
    scene.set(|state| state.odd = false);
    assert_eq!(scene.staged().await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_bus_that_restarts_is_found_again() {
    let bus = PrivateBus::start();
    let mut scene = Scene::new(bus);
    let daemon = scene.daemon().await;
    while scene.next().await.reading.is_err() {}
    scene.bus.restart();
    drop(daemon);
    scene.set(|state| state.staged = Some("new"));
    let _daemon = scene.daemon().await;
    loop {
        match scene.next().await.reading {
            Ok(Reading::Deployments(deployments)) => {
                let view = SystemView { deployments, ..SystemView::default() };
                assert_eq!(view.target().unwrap().identity, "new");
                return;
            }
            Err(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_watch_ends_with_its_listener() {
    let bus = PrivateBus::start();
    let (events, heard) = tokio::sync::mpsc::channel(1);
    let watch = tokio::spawn(watch(Options::new(Host::new(bus.bus(), "/nowhere")), events));
    drop(heard);
    tokio::time::timeout(Duration::from_secs(30), watch).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_host_without_ostree_says_why_at_once() {
    let bus = PrivateBus::start();
    let path = |text: &str| OwnedObjectPath::try_from(text.to_owned()).unwrap();
    let systemd =
        Fake::serve(&bus.bus(), "org.freedesktop.systemd1", move |called, call| match called {
            "StartUnit" => reply(call, &path("/job/7")),
            "LoadUnit" => reply(call, &path("/unit/one")),
            "Get:LoadState" => value(call, "loaded"),
            "Get:ActiveState" => value(call, "inactive"),
            "Get:SubState" => value(call, "dead"),
            "Get:ConditionResult" => value(call, false),
            _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
        })
        .await;
    let mut scene = Scene::new(bus);
    while systemd.count("StartUnit") == 0 {
        tokio::task::yield_now().await;
    }
    let (object, manager) = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
    for number in [6u32, 7] {
        let job = OwnedObjectPath::try_from(format!("/job/{number}")).unwrap();
        let ended = (number, job, "rpm-ostreed.service", "done");
        systemd.signal(None, object, manager, "JobRemoved", &ended).await;
    }
    assert_eq!(
        scene.unreadable().await,
        "rpm-ostreed.service does not start: its condition does not hold"
    );
}
