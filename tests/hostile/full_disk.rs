//! A full disk at every single step of a write. `strace` makes the system call fail.

use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use lockkeeper::coordinator::slots::{Ask, Claim, Decision, GroupPolicy, Policies};
use lockkeeper::coordinator::store::file::FileStore;
use lockkeeper::coordinator::{Desk, DeskError};
use lockkeeper::effects::store::{Loaded, Store};
use lockkeeper::fleetlock::Operation;
use lockkeeper::lifecycle::Record;

/// Where the child works, and the sign that it is one.
const FOLDER: &str = "LOCKKEEPER_HOSTILE_FOLDER";
/// What a write is made of.
const CALLS: [&str; 4] = ["openat", "write", "fsync", "rename"];
/// A write has fewer steps of each kind.
const STEPS_MAX: usize = 40;

/// Runs a test of this file as a child whose `step`-th `call` on these paths fails; what it told.
fn child(test: &str, folder: &Path, paths: &[&Path], call: &str, step: usize) -> String {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null"]);
    for path in paths {
        strace.arg("-P").arg(path);
    }
    let output = strace
        .arg(format!("-einject={call}:error=ENOSPC:when={step}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("full_disk::{test}"), "--test-threads=1", "--nocapture"])
        .env(FOLDER, folder)
        .output()
        .expect("these tests need strace");
    assert!(output.status.success(), "{test} {call} {step}: {output:?}");
    std::fs::read_to_string(folder.join("told")).unwrap()
}

fn record(attempts: u32) -> Record {
    Record { attempts, ..Record::default() }
}

/// The child: two writes, each told.
#[test]
fn child_that_writes_a_record() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let store = Store::new(folder.join("state"));
    let told = [1, 2].map(|attempts| match store.write(&record(attempts)) {
        Ok(()) => "written".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    });
    std::fs::write(folder.join("told"), told.join(" ")).unwrap();
}

#[test]
fn a_record_is_whole_at_whatever_step_the_disk_is_full() {
    let mut failures = 0;
    for call in CALLS {
        for step in 1..=STEPS_MAX {
            let place = tempfile::tempdir().unwrap();
            let state = place.path().join("state");
            std::fs::create_dir(&state).unwrap();
            let paths = [&state, &state.join("record.new"), &state.join("record")];
            let paths = paths.map(|path| path.as_path());
            let told = child("child_that_writes_a_record", place.path(), &paths, call, step);
            let found = match Store::new(&state).load() {
                Loaded::Fresh => 0,
                Loaded::Read(record) => record.attempts,
                Loaded::SetAside { error, .. } => panic!("{call} {step}: {error}"),
            };
            // One that failed at its last step is there all the same; never half of it.
            let allowed: &[u32] = match told.as_str() {
                "StorageFull written" | "written written" => &[2],
                "written StorageFull" => &[1, 2],
                _ => panic!("{call} {step}: {told}"),
            };
            assert!(allowed.contains(&found), "{call} {step}: {told}, found {found}");
            if told == "written written" {
                break;
            }
            failures += 1;
            assert!(step < STEPS_MAX, "{call}: no end");
        }
    }
    // Two files opened, three pieces written, two synced and one renamed, each in both writes.
    assert!(failures >= 2 * (2 + 2 + 2 + 1), "only {failures} steps were made to fail");
}

fn ask(id: &str) -> Ask {
    let (group, operation) = ("g".to_owned(), Operation::PreReboot);
    Ask { group, id: id.to_owned(), operation, claim: Claim::default() }
}

/// The child: a coordinator's desk that is asked for two slots, and for both again.
#[test]
fn child_that_hands_out_slots() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    // strace counts for each thread, so that all writes must come from one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_keep_alive(std::time::Duration::from_secs(3600))
        .build()
        .unwrap();
    let told = runtime.block_on(async {
        let (store, slots) = FileStore::open(&folder.join("state")).unwrap();
        let policies: Policies = [("g".to_owned(), GroupPolicy { slots: 2 })].into();
        let (desk, clerk) = Desk::open(store, slots, policies, || Timestamp::UNIX_EPOCH);
        let mut told = Vec::new();
        for id in ["n1", "n2", "n1", "n2"] {
            told.push(match desk.ask(ask(id)).await {
                Ok(Decision::Granted { .. }) => "granted",
                Err(DeskError::NotWritten(why)) if why.contains("No space left") => "full",
                other => panic!("{other:?}"),
            });
        }
        let view = serde_json::to_string(&desk.view().slots).unwrap();
        desk.close();
        clerk.await.unwrap();
        format!("{}\n{view}", told.join(" "))
    });
    std::fs::write(folder.join("told"), told).unwrap();
}

#[test]
fn a_slot_is_refused_while_it_cannot_be_written_and_disk_and_memory_agree_after_it() {
    let mut failures = 0;
    for call in CALLS {
        for step in 1..=STEPS_MAX {
            let place = tempfile::tempdir().unwrap();
            let state = place.path().join("state");
            std::fs::create_dir(&state).unwrap();
            let paths = [state.as_path(), &state.join("slots.json.new")];
            let told = child("child_that_hands_out_slots", place.path(), &paths, call, step);
            let (answers, view) = told.split_once('\n').unwrap();
            let (_store, kept) = FileStore::open(&state).unwrap();
            assert_eq!(serde_json::to_string(&kept).unwrap(), view, "{call} {step}: {answers}");
            assert_eq!(kept.groups["g"].holders.len(), 2, "{call} {step}: {answers}");
            if answers == "granted granted granted granted" {
                break;
            }
            let refused = answers.split(' ').filter(|answer| *answer == "full").count();
            assert_eq!(refused, 1, "{call} {step}: {answers}");
            failures += 1;
            assert!(step < STEPS_MAX, "{call}: no end");
        }
    }
    assert!(failures >= 2 * (2 + 1 + 2 + 1), "only {failures} steps were made to fail");
}
