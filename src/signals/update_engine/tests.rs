//! A real bus, a daemon that behaves as it is told, and what is heard of it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use super::status::{MANAGER, NAME, Wire, now_within};
use super::{Options, Status, Told, watch};
use crate::model::{Deployment, Reading, Source};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, error, reply};
use crate::signals::bus::private::PrivateBus;

pub(super) const IDLE: &str = "UPDATE_STATUS_IDLE";
pub(super) const DOWNLOADING: &str = "UPDATE_STATUS_DOWNLOADING";
pub(super) const NEED_REBOOT: &str = "UPDATE_STATUS_UPDATED_NEED_REBOOT";

const RUNS: &str = "4200.0.0 on USR-A";
const DENIED: &str = "org.freedesktop.DBus.Error.AccessDenied";

pub(super) fn wire(operation: &str, version: &str) -> Wire {
    (1_764_590_000, 0.5, operation.to_owned(), version.to_owned(), 300 << 20)
}

/// A Flatcar host's files.
pub(super) fn host_files() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("usr/lib/os-release", "NAME=\"Flatcar\"\nVERSION=\"4200.0.0\"\n"),
        ("proc/cmdline", "mount.usr=PARTUUID=7130c94a-213a-4e5a-8e26-6cce9662f132 quiet\n"),
    ] {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::create_dir(root.path().join("run")).unwrap();
    root
}

/// A deployment in a few words.
fn words(one: &Deployment) -> String {
    assert_eq!(one.booted, !one.staged, "{one:?}");
    assert!(one.version.as_ref().is_none_or(|version| *version == one.identity), "{one:?}");
    format!("{} on {}", one.identity, one.place.as_deref().unwrap_or("nothing"))
}

#[derive(Debug)]
struct Scene {
    bus: PrivateBus,
    root: tempfile::TempDir,
    /// What the daemon answers; `None`: nothing. An error's name is answered as that error.
    answer: Arc<Mutex<Option<Wire>>>,
    heard: Receiver<super::Heard>,
}

impl Scene {
    /// A bus, a host's files, and a watch that listens to both. Nothing runs on the host yet.
    async fn new(change: impl FnOnce(&mut Options)) -> Self {
        let (bus, root) = (PrivateBus::start(), host_files());
        let mut scene = Self::silent(bus, root, change);
        assert_eq!(scene.next().await, [RUNS], "an absent daemon is no trouble");
        scene
    }

    fn silent(bus: PrivateBus, root: tempfile::TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let (to, heard) = tokio::sync::mpsc::channel(8);
        let mut options = Options {
            host: Host::new(bus.bus(), root.path()),
            pace: Duration::from_millis(20),
            recheck: Duration::from_secs(3600),
            answer: Duration::from_secs(30),
            patience: Duration::from_secs(600),
        };
        change(&mut options);
        tokio::spawn(watch(options, to));
        Self { bus, root, answer: Arc::default(), heard }
    }

    async fn daemon(&self, operation: &str, version: &str) -> Fake {
        self.is(operation, version);
        let answer = self.answer.clone();
        Fake::serve(&self.bus.bus(), NAME, move |called, call| {
            assert_eq!(called, "GetStatus");
            status_or_error(answer.lock().unwrap().as_ref(), call)
        })
        .await
    }

    fn is(&self, operation: &str, version: &str) {
        *self.answer.lock().unwrap() = Some(wire(operation, version));
    }

    fn mute(&self) {
        *self.answer.lock().unwrap() = None;
    }

    fn mark(&self) -> std::path::PathBuf {
        self.root.path().join("run/update_engine_autoupdate_completed")
    }

    async fn heard(&mut self) -> Result<Vec<String>, String> {
        let heard = tokio::time::timeout(Duration::from_secs(30), self.heard.recv()).await;
        let heard = heard.unwrap().unwrap();
        assert_eq!(heard.source, Source::UpdateEngine);
        heard.reading.map(|reading| match reading {
            Reading::Deployments(deployments) => deployments.iter().map(words).collect(),
            Reading::Wants(wants) => panic!("unexpected {wants:?}"),
        })
    }

    async fn next(&mut self) -> Vec<String> {
        self.heard().await.unwrap()
    }
}

fn status_or_error(answer: Option<&Wire>, call: &zbus::Message) -> Answer {
    match answer {
        Some((_, _, name, ..)) if name == DENIED => error(call, DENIED, "Rejected send message"),
        Some(wire) => reply(call, wire),
        None => None,
    }
}

pub(super) async fn signal(daemon: &Fake, to: Option<&str>, operation: &str, version: &str) {
    let body = wire(operation, version);
    daemon.signal(to, MANAGER.path, MANAGER.interface, "StatusUpdate", &body).await;
}

/// Waits until it was asked so often.
async fn asked(daemon: &Fake, times: usize) {
    let asked = async {
        while daemon.count("GetStatus") < times {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap();
}

/// Each percent of a download is a signal, and so is each check that finds what is known.
#[tokio::test]
async fn what_would_change_nothing_is_heard_and_not_asked_about() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    for _ in 0..200 {
        signal(&daemon, None, DOWNLOADING, "4300.1.0").await;
    }
    scene.is(NEED_REBOOT, "4300.1.0");
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    for _ in 0..200 {
        signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    }
    scene.is(IDLE, "0.0.0");
    signal(&daemon, None, IDLE, "0.0.0").await;
    assert_eq!(scene.next().await, [RUNS]);
    assert!(daemon.count("GetStatus") <= 4, "{:?}", daemon.calls());
}

#[tokio::test]
async fn a_signal_is_a_hint_and_the_answer_counts() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    asked(&daemon, 2).await;
    scene.is(NEED_REBOOT, "4400.0.0");
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4400.0.0 on USR-B", RUNS]);
}

/// Hints that follow each other closely are one question.
#[tokio::test]
async fn the_pace_is_bounded_however_much_is_signalled() {
    let mut scene = Scene::new(|options| options.pace = Duration::from_secs(600)).await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    for _ in 0..100 {
        signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
        daemon.signal(None, MANAGER.path, MANAGER.interface, "StatusUpdate", &"odd").await;
    }
    // A successor is asked no sooner.
    daemon.leave().await;
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    // Sleeps: that nothing more is asked shows only after a while.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(daemon.count("GetStatus"), 0);
    assert!(scene.heard.try_recv().is_err());
}

/// The daemon forgets the version when it is started anew, and is away for 30 s meanwhile.
#[tokio::test]
async fn a_restart_of_the_daemon_takes_neither_the_update_nor_its_version() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    std::fs::write(scene.mark(), "").unwrap();
    daemon.leave().await;
    let daemon = scene.daemon(NEED_REBOOT, "0.0.0").await;
    asked(&daemon, 1).await;
    signal(&daemon, None, NEED_REBOOT, "0.0.0").await;
    // Taken back: the next thing that is told.
    scene.is(IDLE, "0.0.0");
    signal(&daemon, None, IDLE, "0.0.0").await;
    assert_eq!(scene.next().await, [RUNS]);
    // Another one, whose version was never known, and is then.
    scene.is(NEED_REBOOT, "0.0.0.0");
    signal(&daemon, None, NEED_REBOOT, "0.0.0.0").await;
    assert_eq!(scene.next().await, ["unknown on USR-B", RUNS]);
    scene.is(NEED_REBOOT, "4400.0.0");
    signal(&daemon, None, NEED_REBOOT, "4400.0.0").await;
    assert_eq!(scene.next().await, ["4400.0.0 on USR-B", RUNS]);
}

#[tokio::test]
async fn an_update_of_which_a_daemon_left_no_mark_goes_with_it() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    daemon.leave().await;
    assert_eq!(scene.next().await, [RUNS]);
    // That of the one before is not taken for its own.
    let _daemon = scene.daemon(NEED_REBOOT, "0.0.0").await;
    assert_eq!(scene.next().await, ["unknown on USR-B", RUNS]);
}

#[tokio::test]
async fn an_update_that_waits_is_seen_while_the_daemon_is_late() {
    let (bus, root) = (PrivateBus::start(), host_files());
    std::fs::write(root.path().join("run/update_engine_autoupdate_completed"), "").unwrap();
    let mut scene = Scene::silent(bus, root, |_| {});
    assert_eq!(scene.next().await, ["unknown on USR-B", RUNS]);
    let _daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
}

/// `ResetStatus` sends no signal.
#[tokio::test]
async fn an_update_that_is_taken_back_without_a_word_is_noticed() {
    let mut scene = Scene::new(|options| options.recheck = Duration::from_millis(50)).await;
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    scene.is(IDLE, "0.0.0");
    assert_eq!(scene.next().await, [RUNS]);
    // Without an update it is not asked any more.
    let count = daemon.count("GetStatus");
    // Sleeps: that nothing more is asked shows only after a while.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(daemon.count("GetStatus"), count);
    // Nor where the daemon is gone.
    scene.is(NEED_REBOOT, "4300.1.0");
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    std::fs::write(scene.mark(), "").unwrap();
    daemon.leave().await;
    // Sleeps: that nothing is told shows only after a while.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(scene.heard.try_recv().is_err());
}

#[tokio::test]
async fn a_stranger_is_not_believed() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    let stranger = Fake::serve(&scene.bus.bus(), "com.example.Stranger", |_, _| None).await;
    scene.is(NEED_REBOOT, "666.0.0");
    // Few have connected: every name up to here is tried, the watch's own among them.
    for number in 0..20 {
        signal(&stranger, Some(&format!(":1.{number}")), NEED_REBOOT, "666.0.0").await;
        let gone = (NAME, ":1.0", "");
        let to = format!(":1.{number}");
        let dbus = "org.freedesktop.DBus";
        stranger.signal(Some(&to), "/", dbus, "NameOwnerChanged", &gone).await;
    }
    signal(&stranger, None, NEED_REBOOT, "666.0.0").await;
    // Nor is the daemon itself on another object or interface.
    let body = wire(NEED_REBOOT, "666.0.0");
    let other = "com.example.Other";
    for number in 0..20 {
        let to = format!(":1.{number}");
        daemon.signal(Some(&to), "/other", MANAGER.interface, "StatusUpdate", &body).await;
        daemon.signal(Some(&to), MANAGER.path, other, "StatusUpdate", &body).await;
        daemon.signal(Some(&to), MANAGER.path, MANAGER.interface, "Other", &body).await;
    }
    // Sleeps: that nothing is asked shows only after a while.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(daemon.count("GetStatus"), 1);
    scene.is(NEED_REBOOT, "4300.1.0");
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
}

#[tokio::test]
async fn an_owner_that_comes_and_goes_is_followed_to_its_last_word() {
    let mut scene = Scene::new(|_| {}).await;
    for _ in 0..20 {
        scene.daemon(IDLE, "0.0.0").await.leave().await;
    }
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    assert!(daemon.count("GetStatus") <= 2, "{:?}", daemon.calls());
}

#[tokio::test]
async fn one_that_never_answers_is_told_once_and_then_heard_again() {
    let mut scene = Scene::new(|options| {
        options.answer = Duration::from_millis(50);
        options.patience = Duration::ZERO;
    })
    .await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    scene.mute();
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    let why = scene.heard().await.unwrap_err();
    assert_eq!(why, "com.coreos.update1: GetStatus was not answered within 0 s");
    // It goes on by itself, and tells that all is well although nothing has changed.
    scene.is(IDLE, "0.0.0");
    assert_eq!(scene.next().await, [RUNS]);
}

/// A slow start and a lost answer are normal life.
#[tokio::test]
async fn trouble_that_passes_is_kept_quiet() {
    let mut scene = Scene::new(|options| options.answer = Duration::from_millis(50)).await;
    let daemon = scene.daemon(IDLE, "0.0.0").await;
    asked(&daemon, 1).await;
    scene.mute();
    signal(&daemon, None, NEED_REBOOT, "4300.1.0").await;
    asked(&daemon, 3).await;
    scene.is(NEED_REBOOT, "4300.1.0");
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
}

/// Only root and the user `core` may ask.
#[tokio::test]
async fn who_may_not_ask_is_told_so_at_once() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(DENIED, "").await;
    let why = scene.heard().await.unwrap_err();
    assert!(why.contains("GetStatus failed") && why.contains("Rejected send message"), "{why}");
    scene.is(NEED_REBOOT, "4300.1.0");
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    drop(daemon);
}

#[tokio::test]
async fn a_bus_that_restarts_is_found_again() {
    let mut scene = Scene::new(|_| {}).await;
    let daemon = scene.daemon(NEED_REBOOT, "4300.1.0").await;
    assert_eq!(scene.next().await, ["4300.1.0 on USR-B", RUNS]);
    std::fs::write(scene.mark(), "").unwrap();
    scene.bus.restart();
    drop(daemon);
    let _daemon = scene.daemon(NEED_REBOOT, "4400.0.0").await;
    assert_eq!(scene.next().await, ["4400.0.0 on USR-B", RUNS]);
}

#[tokio::test]
async fn a_host_that_does_not_say_what_runs_is_told() {
    let (bus, root) = (PrivateBus::start(), host_files());
    let file = root.path().join("usr/lib/os-release");
    std::fs::rename(&file, root.path().join("away")).unwrap();
    let mut scene = Scene::silent(bus, root, |_| {});
    let why = scene.heard().await.unwrap_err();
    assert!(why.starts_with("/usr/lib/os-release: "), "{why}");
    std::fs::rename(scene.root.path().join("away"), &file).unwrap();
    assert_eq!(scene.next().await, [RUNS]);
}

#[tokio::test]
async fn the_watch_ends_with_its_listener() {
    let (bus, root) = (PrivateBus::start(), host_files());
    let (to, heard) = tokio::sync::mpsc::channel(1);
    let watch = tokio::spawn(watch(Options::new(Host::new(bus.bus(), root.path())), to));
    drop(heard);
    tokio::time::timeout(Duration::from_secs(30), watch).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_look_says_how_things_are_or_why_it_does_not_know() {
    let scene = Scene::new(|_| {}).await;
    let host = Host::new(scene.bus.bus(), scene.root.path());
    let short = Duration::from_millis(500);
    let why = now_within(&host, short).await.unwrap_err();
    assert_eq!(why, "update_engine does not run; see update-engine.service");
    let _daemon = scene.daemon(IDLE, "0.0.0").await;
    for (operation, version, waits, known) in [
        (IDLE, "0.0.0", false, None),
        (NEED_REBOOT, "4300.1.0", true, Some("4300.1.0")),
        (NEED_REBOOT, "0.0.0", true, None),
        (DOWNLOADING, "4300.1.0", false, Some("4300.1.0")),
        ("UPDATE_STATUS_CLEANUP_PREVIOUS_UPDATE", "", false, None),
        ("", "", false, None),
        (" UPDATE_STATUS_UPDATED_NEED_REBOOT", "4300.1.0", false, Some("4300.1.0")),
        ("update_status_updated_need_reboot", "4300.1.0", false, Some("4300.1.0")),
    ] {
        scene.is(operation, version);
        let status = now_within(&host, short).await.unwrap();
        assert_eq!((status.needs_reboot(), status.version.as_deref()), (waits, known));
        assert_eq!(status.operation, operation);
    }
    scene.is(DENIED, "");
    let why = now_within(&host, short).await.unwrap_err();
    assert!(why.contains("Rejected send message"), "{why}");
    scene.mute();
    let why = now_within(&host, short).await.unwrap_err();
    assert_eq!(why, "com.coreos.update1: GetStatus was not answered within 0 s");
    let nowhere = Host::new(crate::signals::bus::Bus::At("unix:path=/nowhere".to_owned()), "/");
    let why = now_within(&nowhere, short).await.unwrap_err();
    assert!(why.starts_with("cannot connect to the message bus"), "{why}");
}

#[test]
fn what_is_known_is_what_was_answered_last() {
    let status = |operation: &str, version: &str| Status::new(wire(operation, version));
    let told = |known| Told { status: known, ..Told::default() };
    for (known, said, expected) in [
        (None, Some(status(IDLE, "")), false),
        (Some(status(IDLE, "")), None, false),
        (Some(status(IDLE, "")), Some(status(DOWNLOADING, "1")), true),
        (Some(status(IDLE, "")), Some(status(NEED_REBOOT, "1")), false),
        (Some(status(NEED_REBOOT, "1")), Some(status(NEED_REBOOT, "1")), true),
        (Some(status(NEED_REBOOT, "1")), Some(status(NEED_REBOOT, "2")), false),
        (Some(status(NEED_REBOOT, "1")), Some(status(IDLE, "1")), false),
    ] {
        let words = format!("{known:?} {said:?}");
        assert_eq!(told(known).knows(said.as_ref()), expected, "{words}");
    }
    let failing = Some(Duration::ZERO);
    let told = Told { status: Some(status(IDLE, "")), failing_since: failing, ..Told::default() };
    assert!(!told.knows(Some(&status(IDLE, ""))), "while questions fail nothing is known");
}
