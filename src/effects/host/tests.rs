//! A real bus with a logind, a systemd and a timedated that behave as they are told.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;

use zbus::{Message, OwnedObjectPath, Variant};

use super::{InhibitorRow, inspect};
use crate::config::RebootSettings;
use crate::lifecycle::{HostView, Inhibitor};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, error, reply, value};
use crate::signals::bus::private::PrivateBus;

const UNKNOWN: &str = "org.freedesktop.DBus.Error.UnknownMethod";

fn path(text: &str) -> OwnedObjectPath {
    OwnedObjectPath::try_from(text).unwrap()
}

fn inhibitor(what: &str, who: &str, mode: &str) -> InhibitorRow {
    (what.to_owned(), who.to_owned(), "because".to_owned(), mode.to_owned(), 0, 1)
}

/// Sessions by number: class, state, type, terminal, remote.
const SESSIONS: [(&str, &str, &str, &str, &str, bool); 8] = [
    ("core", "user", "active", "tty", "tty1", false),
    ("root", "user-early", "online", "unspecified", "", true),
    ("ada", "user", "active", "wayland", "", false),
    ("gone", "user", "closing", "tty", "pts/1", true),
    ("core", "manager", "active", "unspecified", "", false),
    ("cron", "background", "active", "unspecified", "", false),
    ("gdm", "greeter", "active", "wayland", "tty2", false),
    ("core", "user", "active", "tty", "pts/2", true),
];

fn logind(called: &str, call: &Message) -> Answer {
    match called {
        "ListInhibitors" => reply(
            call,
            &vec![
                inhibitor("shutdown:sleep", "backup", "block"),
                inhibitor("shutdown", "kubelet", "delay"),
                inhibitor("shutdown", "desktop", "block-weak"),
                inhibitor("sleep:handle-shutdown-key", "player", "block"),
            ],
        ),
        "ListSessions" => {
            let mut rows: Vec<(String, u32, String, String, OwnedObjectPath)> = SESSIONS
                .iter()
                .enumerate()
                .map(|(number, (user, ..))| {
                    let object = path(&format!("/org/freedesktop/login1/session/{number}"));
                    (number.to_string(), 0, (*user).to_owned(), String::new(), object)
                })
                .collect();
            // It ends between the list and the look.
            let object = path("/org/freedesktop/login1/session/ended");
            rows.push(("99".to_owned(), 0, "ended".to_owned(), String::new(), object));
            reply(call, &rows)
        }
        "GetAll" => {
            let header = call.header();
            let number = header.path().unwrap().rsplit('/').next().unwrap().parse::<usize>();
            let Ok(number) = number else {
                return error(call, "org.freedesktop.DBus.Error.UnknownObject", "it ended");
            };
            let (_, class, state, kind, terminal, remote) = SESSIONS[number];
            let properties: HashMap<&str, Variant<'_>> = HashMap::from([
                ("Class", class.into()),
                ("State", state.into()),
                ("Type", kind.into()),
                ("TTY", terminal.into()),
                ("Remote", remote.into()),
            ]);
            reply(call, &properties)
        }
        "Get:PreparingForShutdown" => value(call, false),
        _ => error(call, UNKNOWN, called),
    }
}

/// A systemd whose units are all in one state, with these jobs.
fn systemd(
    active: &'static str,
    job: Option<&'static str>,
) -> impl FnMut(&str, &Message) -> Answer {
    move |called, call| match called {
        "LoadUnit" => reply(call, &path("/org/freedesktop/systemd1/unit/one")),
        "Get:LoadState" => value(call, "loaded"),
        "Get:ActiveState" => value(call, active),
        "Get:SubState" => value(call, "some"),
        "ListJobs" => {
            let row = |unit: &str| {
                let (job, object) = (path("/job"), path("/unit"));
                (1u32, unit.to_owned(), "start".to_owned(), "waiting".to_owned(), job, object)
            };
            reply(call, &job.into_iter().map(row).collect::<Vec<_>>())
        }
        _ => error(call, UNKNOWN, called),
    }
}

async fn look(bus: &PrivateBus, root: &Path) -> HostView {
    let host = Host::new(bus.bus(), root);
    let settings = RebootSettings { boot_dir: root.join("boot") };
    inspect(&host, &settings, None).await
}

#[tokio::test]
async fn a_host_in_use_is_described() {
    let bus = PrivateBus::start();
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("etc/zincati/config.d");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::create_dir_all(root.path().join("boot")).unwrap();
    std::fs::create_dir_all(root.path().join("run/ostree")).unwrap();
    std::fs::write(root.path().join("run/ostree/staged-deployment-locked"), "").unwrap();
    std::fs::write(
        config.join("50.toml"),
        "[updates]\nstrategy = \"fleet_lock\"\nfleet_lock.base_url = \"http://192.0.2.1/\"\n",
    )
    .unwrap();
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", logind).await;
    let job = Some("reboot.target");
    let _systemd =
        Fake::serve(&bus.bus(), "org.freedesktop.systemd1", systemd("active", job)).await;
    let _timedated = Fake::serve(&bus.bus(), "org.freedesktop.timedate1", |called, call| {
        assert_eq!(called, "Get:NTPSynchronized");
        value(call, true)
    })
    .await;
    let view = look(&bus, root.path()).await;
    assert!(view.boot_free.is_some_and(|free| free > 0));
    assert_eq!(
        HostView { boot_free: None, ..view },
        HostView {
            config_wrong: None,
            update_withdrawn: None,
            other_rebooters: Vec::new(),
            inhibitors: vec![Inhibitor { who: "backup".to_owned(), why: "because".to_owned() }],
            users: vec!["ada".to_owned(), "core".to_owned(), "root".to_owned()],
            boot_free: None,
            finalize_unit_active: true,
            legacy_lock: true,
            clock_synchronised: true,
            other_lock_client: Some("http://192.0.2.1/".to_owned()),
            preparing_for_shutdown: true,
            unreadable: Vec::new(),
        }
    );
}

#[tokio::test]
async fn what_is_absent_is_no_trouble() {
    let bus = PrivateBus::start();
    let root = tempfile::tempdir().unwrap();
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", |called, call| match called {
        "ListInhibitors" => reply(call, &Vec::<InhibitorRow>::new()),
        "ListSessions" => {
            reply(call, &Vec::<(String, u32, String, String, OwnedObjectPath)>::new())
        }
        _ => logind(called, call),
    })
    .await;
    let _systemd =
        Fake::serve(&bus.bus(), "org.freedesktop.systemd1", systemd("inactive", None)).await;
    let view = look(&bus, root.path()).await;
    assert_eq!(view, HostView::default());
}

#[tokio::test]
async fn what_cannot_be_read_closes_the_gates() {
    let root = tempfile::tempdir().unwrap();
    let host = Host::new(crate::signals::bus::Bus::At("unix:path=/nowhere/bus".to_owned()), "/");
    let settings = RebootSettings { boot_dir: root.path().to_owned() };
    let view = inspect(&host, &settings, None).await;
    assert_eq!(view.unreadable.len(), 1, "{view:?}");

    // A bus without logind and systemd.
    let bus = PrivateBus::start();
    let view = look(&bus, root.path()).await;
    let about: Vec<&str> =
        view.unreadable.iter().map(|why| why.split(':').next().unwrap()).collect();
    assert_eq!(
        about,
        ["inhibitors", "sessions", "shutdown", "jobs", "ostree-finalize-staged.service", "zincati"]
    );

    // Answers of other types.
    let odd = |_: &str, call: &Message| value(call, 7u32);
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", odd).await;
    let _systemd = Fake::serve(&bus.bus(), "org.freedesktop.systemd1", odd).await;
    let view = look(&bus, root.path()).await;
    assert_eq!(view.unreadable.len(), 6, "{view:?}");
}
