//! What `install` puts into a root is whole: every unit finds its program, every link its unit.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn install(root: &Path, version: &str) -> bool {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/install"))
        .arg(root)
        .arg(env!("CARGO_BIN_EXE_standin"))
        .arg(version)
        .status()
        .unwrap()
        .success()
}

/// The path that a link in the root means, seen from outside.
fn target(root: &Path, link: &Path) -> PathBuf {
    let target = fs::read_link(link).unwrap();
    match target.strip_prefix("/") {
        Ok(absolute) => root.join(absolute),
        Err(_) => link.parent().unwrap().join(target),
    }
}

#[test]
fn a_root_gets_all_and_keeps_its_deployments() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    assert!(!install(root, "40.1"), "a root without /usr was taken");
    fs::create_dir(root.join("usr")).unwrap();
    assert!(install(root, "40.1"));
    let deployments = root.join("ostree/deploy/fedora-coreos/deployments.json");
    let first = fs::read_to_string(&deployments).unwrap();
    assert!(first.contains("\"version\": \"40.1\""), "{first}");
    assert!(install(root, "50.1"));
    assert_eq!(fs::read_to_string(&deployments).unwrap(), first);

    let mut programs = 0;
    for unit in fs::read_dir(root.join("usr/lib/systemd/system")).unwrap() {
        let text = fs::read_to_string(unit.unwrap().path()).unwrap();
        for line in text.lines() {
            let Some((key, command)) = line.split_once('=') else {
                continue;
            };
            if matches!(key, "ExecStart" | "ExecStop") {
                let program = command.split(' ').next().unwrap().trim_start_matches('/');
                assert!(fs::metadata(root.join(program)).is_ok(), "{line}");
                programs += 1;
            }
        }
    }
    assert_eq!(programs, 7);
    for folder in
        ["sysinit.target.wants", "multi-user.target.wants", "boot-complete.target.requires"]
    {
        for link in fs::read_dir(root.join("etc/systemd/system").join(folder)).unwrap() {
            let link = link.unwrap().path();
            assert!(target(root, &link).exists(), "{}", link.display());
        }
    }
}
