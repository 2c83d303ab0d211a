//! The order of the rooms, and what the pure ones do not know of.

use crate::code::{bare, paths, without_tests};
use crate::tree::{File, files, test_files};

/// Which rooms a room may use, beside itself. The order is a straight line: model, schedule, drain
/// and fleetlock, lifecycle, config, cluster, signals, effects, agent, cli; beside it, towards
/// people, admin and telemetry; and the coordinator, which knows nothing of a node.
const MAY_USE: [(&str, &[&str]); 16] = [
    ("model", &[]),
    ("schedule", &["model"]),
    ("drain", &["model", "schedule"]),
    ("fleetlock", &["model", "schedule"]),
    ("lifecycle", &["model", "schedule", "drain", "fleetlock"]),
    ("config", &["model", "schedule", "drain", "fleetlock", "lifecycle"]),
    ("listen", &[]),
    ("telemetry", &["model", "schedule", "drain", "fleetlock", "lifecycle", "config"]),
    ("admin", &["model", "schedule", "drain", "fleetlock", "lifecycle", "config", "telemetry"]),
    ("cluster", &["model", "schedule", "drain", "fleetlock", "lifecycle", "config", "telemetry"]),
    (
        "signals",
        &[
            "model",
            "schedule",
            "drain",
            "fleetlock",
            "lifecycle",
            "config",
            "listen",
            "telemetry",
            "cluster",
        ],
    ),
    (
        "effects",
        &[
            "model",
            "schedule",
            "drain",
            "fleetlock",
            "lifecycle",
            "config",
            "telemetry",
            "cluster",
            "signals",
        ],
    ),
    (
        "agent",
        &[
            "model",
            "schedule",
            "drain",
            "fleetlock",
            "lifecycle",
            "config",
            "telemetry",
            "admin",
            "cluster",
            "signals",
            "effects",
        ],
    ),
    ("coordinator", &["model", "schedule", "fleetlock", "config", "listen", "telemetry"]),
    (
        "cli",
        &[
            "model",
            "schedule",
            "drain",
            "fleetlock",
            "lifecycle",
            "config",
            "telemetry",
            "admin",
            "cluster",
            "signals",
            "effects",
            "agent",
            "coordinator",
        ],
    ),
    // lib.rs declares the rooms and uses none; main.rs is the door to the front desk.
    ("", &["cli"]),
];

/// Uses against the order that are right, each with its reason: (file, room, reason).
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

/// Rooms, and one file, that decide only: no runtime, bus, cluster, socket, file, clock or chance.
const PURE: [&str; 6] = [
    "src/model/",
    "src/schedule/",
    "src/drain/",
    "src/fleetlock/",
    "src/lifecycle/",
    "src/coordinator/slots.rs",
];

/// What pure code does not name.
const IMPURE: [&[&str]; 14] = [
    &["tokio"],
    &["zbus"],
    &["kube"],
    &["reqwest"],
    &["tracing"],
    &["std", "fs"],
    &["std", "env"],
    &["std", "net"],
    &["SystemTime", "now"],
    &["Instant", "now"],
    &["Timestamp", "now"],
    &["Zoned", "now"],
    &["HashMap"],
    &["HashSet"],
];

fn room(path: &str) -> Option<&str> {
    let below = path.strip_prefix("src/")?;
    Some(below.split_once('/').map_or("", |(room, _)| room))
}

/// What a file uses that its room must not.
pub(crate) fn order(file: &File) -> Vec<String> {
    let Some(room) = room(&file.path) else { return Vec::new() };
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}: the room {room} has no place in the order", file.path)];
    };
    let mut broken = Vec::new();
    let (code, _) = without_tests(&bare(&file.text));
    for path in paths(&code) {
        let first = path.first().map(String::as_str);
        if first == Some("super") && ups(&path) > depth(&file.path) {
            let path = path.join("::");
            broken.push(format!("{}: {path} leaves its room by the back door", file.path));
        }
        let (Some("crate" | "lockkeeper"), Some(used)) = (first, path.get(1)) else { continue };
        let known = MAY_USE.iter().any(|(name, _)| name == used);
        let excepted = EXCEPTIONS.iter().any(|(at, to, _)| *at == file.path && to == used);
        if known && used != room && !allowed.contains(&used.as_str()) && !excepted {
            broken.push(format!("{}: {room} must not use {used}", file.path));
        }
    }
    broken.sort();
    broken.dedup();
    broken
}

fn ups(path: &[String]) -> usize {
    path.iter().take_while(|part| *part == "super").count()
}

/// How many times `super` stays within the room.
fn depth(path: &str) -> usize {
    let folders = path.matches('/').count().saturating_sub(2);
    if path.ends_with("/mod.rs") { folders } else { folders + 1 }
}

/// What a pure file names that has effects.
pub(crate) fn purity(file: &File) -> Vec<String> {
    if !PURE.iter().any(|pure| file.path.starts_with(pure)) {
        return Vec::new();
    }
    let (code, _) = without_tests(&bare(&file.text));
    let mut broken = Vec::new();
    for path in paths(&code) {
        for impure in IMPURE {
            let named = match impure {
                // A crate or a part of std stands at the beginning, a type anywhere.
                [name] if name.starts_with(char::is_lowercase) => {
                    path.len() > 1 && path[0] == *name
                }
                ["std", _] => path.iter().take(2).eq(impure),
                _ => path.windows(impure.len()).any(|part| part.iter().eq(impure)),
            };
            if named {
                let what = impure.join("::");
                broken.push(format!("{}: pure code names {what} ({})", file.path, path.join("::")));
            }
        }
    }
    broken
}

#[test]
fn the_rooms_keep_their_order_and_the_pure_ones_are_pure() {
    let files = files();
    let tests = test_files(&files);
    let code = files.iter().filter(|file| file.is_rust() && file.path.starts_with("src/"));
    let code = code.filter(|file| !tests.contains(&file.path));
    let broken: Vec<String> =
        code.flat_map(|file| order(file).into_iter().chain(purity(file))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_room_is_a_folder_and_every_exception_is_needed() {
    for (room, _) in MAY_USE.iter().filter(|(room, _)| !room.is_empty()) {
        let folder = crate::tree::top().join("src").join(room);
        assert!(folder.is_dir(), "there is no room {room}");
    }
    for (path, to, _) in EXCEPTIONS {
        let text = std::fs::read_to_string(crate::tree::top().join(path)).expect("an exception");
        let named = paths(&bare(&text)).iter().any(|path| path.get(1).is_some_and(|p| p == to));
        assert!(named, "{path} does not use {to}: the exception is no longer needed");
    }
}

#[test]
fn a_use_against_the_order_is_noticed() {
    let table = [
        ("src/lifecycle/x.rs", "use crate::effects::slot;", "lifecycle must not use effects"),
        ("src/lifecycle/x.rs", "fn f() { crate::effects::go() }", "must not use effects"),
        ("src/model/x.rs", "use crate::{\n schedule::backoff,\n};", "model must not use schedule"),
        ("src/coordinator/x.rs", "use crate::lifecycle::Event;", "must not use lifecycle"),
        ("src/signals/x.rs", "use crate::effects::reboot;", "signals must not use effects"),
        ("src/admin/x.rs", "use crate::agent::run;", "admin must not use agent"),
        ("src/main.rs", "use lockkeeper::agent;", "must not use agent"),
        ("src/drain/mod.rs", "use super::fleetlock::wire;", "by the back door"),
        ("src/drain/queue/mod.rs", "use super::super::fleetlock::wire;", "by the back door"),
        ("src/attic/mod.rs", "", "has no place in the order"),
    ];
    for (path, text, expected) in table {
        let broken = order(&File::new(path, text)).join("\n");
        assert!(broken.contains(expected), "{text}: expected {expected:?}, found {broken:?}");
    }
    let fine = [
        (
            "src/lifecycle/x.rs",
            "// use crate::effects;\nuse crate::model::Now; let s = \"crate::cli\";",
        ),
        ("src/lifecycle/x.rs", "#[cfg(test)]\nmod tests { use crate::effects; }"),
        ("src/drain/queue/mod.rs", "use super::pace;"),
        ("src/drain/queue/x.rs", "use super::super::pace;"),
        ("src/effects/x.rs", "use crate::signals::bus;"),
    ];
    for (path, text) in fine {
        assert_eq!(order(&File::new(path, text)), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn impure_code_is_noticed() {
    let table = [
        ("use tokio::sync;", "names tokio"),
        ("fn f() { tracing::info!(x) }", "names tracing"),
        ("use std::{fmt, fs};", "names std::fs"),
        ("let a = std::env::var(b);", "names std::env"),
        ("use std::net::IpAddr;", "names std::net"),
        ("let now = SystemTime::now();", "names SystemTime::now"),
        ("let now = std::time::Instant::now();", "names Instant::now"),
        ("let now = jiff::Timestamp::now();", "names Timestamp::now"),
        ("use std::collections::{BTreeMap, HashMap};", "names HashMap"),
        ("use kube::Client;", "names kube"),
        ("use reqwest::Url;", "names reqwest"),
        ("use zbus::Connection;", "names zbus"),
    ];
    for (text, expected) in table {
        let broken = purity(&File::new("src/drain/x.rs", text)).join("\n");
        assert!(broken.contains(expected), "{text}: expected {expected:?}, found {broken:?}");
    }
    let fine =
        "use k8s_openapi::api::core; use jiff::Timestamp; let kube = self.fs.tracing; // tokio";
    assert_eq!(purity(&File::new("src/drain/x.rs", fine)), Vec::<String>::new());
    assert_eq!(purity(&File::new("src/effects/x.rs", "use tokio::fs;")), Vec::<String>::new());
    let slots = File::new("src/coordinator/slots.rs", "use std::fs;");
    assert_eq!(purity(&slots).len(), 1, "the slots are pure too");
}
