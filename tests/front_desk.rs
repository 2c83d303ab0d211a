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

#[test]
fn an_import_prints_what_config_check_takes() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/import/kured-everything.yaml");
    let output = lockkeeper(&["import", "kured", manifest], dir.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let file = dir.path().join("50-local.toml");
    std::fs::write(&file, &output.stdout).unwrap();
    let output = lockkeeper(&["config", "check", file.to_str().unwrap()], dir.path());
    assert!(output.status.success(), "{}", stderr(&output));
    let output = lockkeeper(&["import", "kured", "/nowhere.yaml"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("lockkeeper: /nowhere.yaml: expected a file of text, "));
}
