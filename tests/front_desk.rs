//! The binary as a person meets it on a host where nothing runs.
#![allow(clippy::unwrap_used)]

use std::process::Output;

use assert_cmd::Command;

fn lockkeeper(arguments: &[&str], run_dir: &std::path::Path) -> Output {
    let mut command = Command::cargo_bin("lockkeeper").unwrap();
    command.args(arguments).env("LOCKKEEPER_RUN_DIR", run_dir).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn without_an_agent_every_question_fails_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["status"][..],
        &["status", "--watch"],
        &["why"],
        &["history"],
        &["hold", "x"],
        &["retry"],
    ] {
        let output = lockkeeper(arguments, dir.path());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let told = stderr(&output);
        assert!(told.starts_with("lockkeeper: the agent does not run: there is no "), "{told}");
        assert!(told.contains("systemctl status lockkeeper"), "{told}");
    }
}

#[test]
fn wrong_use_is_exit_code_2_and_shows_the_usage() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["hold"], &["reboot"], &["slots", "release", "workers"]] {
        let output = lockkeeper(arguments, dir.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("Usage: lockkeeper"), "{arguments:?}");
    }
}
