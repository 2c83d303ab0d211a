//! Units, tmpfiles, Ignition and the shipped defaults name the same places, and the units keep the
//! promises that their comments make.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;

const AGENT: &str = include_str!("../systemd/lockkeeper.service");
const COORDINATOR: &str = include_str!("../systemd/lockkeeper-coordinator.service");
const TMPFILES: &str = include_str!("../systemd/lockkeeper.tmpfiles.conf");
const BUTANE: &str = include_str!("../ignition/lockkeeper.bu");

/// Folders that journalctl builds its catalog from (systemd 252 to 257), and no others.
const CATALOG_FOLDERS: [&str; 2] = ["/usr/lib/systemd/catalog", "/usr/local/lib/systemd/catalog"];

/// A unit file: the values of each `Section.Key`, in order.
struct Unit(BTreeMap<String, Vec<String>>);

/// One file of the Butane: what stands below its `path:`.
#[derive(Debug, Default)]
struct ButaneFile {
    mode: Option<u32>,
    local: Option<String>,
    text: String,
}

#[test]
fn a_bad_boot_does_not_keep_the_agent_away() {
    let unit = Unit::parse(AGENT);
    for key in ["Requires", "Requisite", "BindsTo"] {
        let values = unit.words("Unit", key);
        assert!(!values.contains(&"boot-complete.target".to_owned()), "{key}: {values:?}");
    }
    assert!(unit.words("Unit", "After").contains(&"boot-complete.target".to_owned()));
}

/// multi-user.target must not come after us, since boot-complete.target may come after it.
#[test]
fn the_agent_closes_no_circle_with_boot_checks() {
    let unit = Unit::parse(AGENT);
    assert_eq!(unit.one("Unit", "DefaultDependencies"), "no");
    assert_eq!(unit.words("Unit", "Requires"), ["sysinit.target"]);
    for after in ["sysinit.target", "basic.target"] {
        assert!(unit.words("Unit", "After").contains(&after.to_owned()), "After={after}");
    }
    assert_eq!(unit.words("Unit", "Conflicts"), ["shutdown.target"]);
    assert_eq!(unit.words("Unit", "Before"), ["shutdown.target"]);
}

#[test]
fn the_agent_is_never_given_up_and_a_hanging_one_is_found() {
    let unit = Unit::parse(AGENT);
    assert_eq!(unit.one("Service", "Type"), "notify");
    assert_eq!(unit.one("Service", "Restart"), "always");
    assert_eq!(unit.one("Unit", "StartLimitIntervalSec"), "0");
    let watchdog = unit.one("Service", "WatchdogSec");
    let seconds: u64 = watchdog.strip_suffix('s').unwrap().parse().unwrap();
    // Answered at half of it: at most two wake-ups a minute, and found within two minutes.
    let allowed = Duration::from_secs(60)..=Duration::from_secs(120);
    assert!(allowed.contains(&Duration::from_secs(seconds)), "{watchdog}");
}

#[test]
fn units_start_commands_that_there_are() {
    for unit in [AGENT, COORDINATOR] {
        let start = Unit::parse(unit).one("Service", "ExecStart");
        let (program, arguments) = start.split_once(' ').unwrap();
        // Without a path: systemd looks in /usr/local/bin (Ignition) and /usr/bin (packages).
        assert_eq!(program, "lockkeeper");
        let mut command = Command::cargo_bin("lockkeeper").unwrap();
        command.args(arguments.split(' ')).arg("--help").assert().success();
    }
}

#[test]
fn units_and_tmpfiles_name_the_default_folders() {
    let defaults = defaults();
    let place = |table: &str, key: &str| {
        let value = defaults.get(table).and_then(|table| table.get(key));
        value
            .and_then(|value| value.as_str())
            .unwrap_or_else(|| panic!("[{table}] {key}"))
            .to_owned()
    };
    for (unit, table) in [(AGENT, "agent"), (COORDINATOR, "coordinator")] {
        let unit = Unit::parse(unit);
        let state = format!("/var/lib/{}", unit.one("Service", "StateDirectory"));
        let run = format!("/run/{}", unit.one("Service", "RuntimeDirectory"));
        assert_eq!((state, run), (place(table, "state_dir"), place(table, "run_dir")));
        assert_eq!(unit.one("Service", "RuntimeDirectoryPreserve"), "yes");
    }
    let hold_file = place("agent", "hold_file");
    let hold_folder = Path::new(&hold_file).parent().unwrap().to_str().unwrap().to_owned();
    let made = tmpfiles();
    for folder in [
        place("agent", "state_dir"),
        place("agent", "run_dir"),
        place("settle", "checks_dir"),
        hold_folder,
    ] {
        assert!(made.contains_key(&folder), "tmpfiles make no {folder}");
    }
}

#[test]
fn tmpfiles_units_and_butane_agree_on_modes() {
    let made = tmpfiles();
    let unit = Unit::parse(AGENT);
    let octal = |text: &str| u32::from_str_radix(text, 8).unwrap();
    assert_eq!(made["/run/lockkeeper"], octal(&unit.one("Service", "RuntimeDirectoryMode")));
    assert_eq!(made["/var/lib/lockkeeper"], octal(&unit.one("Service", "StateDirectoryMode")));
    for (folder, entry) in butane().iter().filter(|(path, _)| made.contains_key(*path)) {
        assert_eq!(entry.mode, Some(made[folder]), "{folder}");
    }
}

#[test]
fn the_butane_installs_what_lies_in_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = butane();
    for (path, file) in &files {
        let Some(local) = &file.local else { continue };
        assert!(local == "lockkeeper" || root.join(local).is_file(), "{path}: no {local}");
    }
    assert_eq!(files["/usr/local/bin/lockkeeper"].mode, Some(0o755));
    let catalog = files.keys().find(|path| path.ends_with(".catalog")).unwrap();
    let folder = Path::new(catalog).parent().unwrap().to_str().unwrap();
    assert!(CATALOG_FOLDERS.contains(&folder), "journalctl does not read {folder}");
    assert!(BUTANE.contains("contents_local: systemd/lockkeeper.service"));
}

#[test]
fn the_butane_leaves_one_master() {
    let zincati = &butane()["/etc/zincati/config.d/90-lockkeeper.toml"].text;
    assert!(zincati.contains("enabled = false"), "{zincati}");
    assert!(BUTANE.contains("- name: zincati.service\n      mask: true"));
}

#[test]
fn the_fragment_of_the_butane_is_good() {
    let fragment = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("ignition/50-local.toml");
    let mut command = Command::cargo_bin("lockkeeper").unwrap();
    command.args(["config", "check"]).arg(fragment).assert().success();
}

/// The shipped defaults, as the program prints them.
fn defaults() -> toml::Table {
    let output =
        Command::cargo_bin("lockkeeper").unwrap().args(["config", "default"]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

/// Folders that tmpfiles make, and their modes.
fn tmpfiles() -> BTreeMap<String, u32> {
    let lines = TMPFILES.lines().filter(|line| line.starts_with("d "));
    let one = |line: &str| {
        let mut words = line.split_whitespace().skip(1).map(str::to_owned);
        let path = words.next().unwrap();
        (path, u32::from_str_radix(&words.next().unwrap(), 8).unwrap())
    };
    lines.map(one).collect()
}

/// Files and folders of the Butane by path; as much YAML as that file uses.
fn butane() -> BTreeMap<String, ButaneFile> {
    let mut files = BTreeMap::new();
    let mut path = None;
    for line in BUTANE.lines() {
        let text = line.trim();
        if line.starts_with("systemd:") {
            break;
        }
        if let Some(found) = text.strip_prefix("- path: ") {
            path = Some(found.to_owned());
        }
        let Some(path) = &path else { continue };
        let file: &mut ButaneFile = files.entry(path.clone()).or_default();
        if let Some(mode) = text.strip_prefix("mode: ") {
            file.mode = Some(u32::from_str_radix(mode, 8).unwrap());
        } else if let Some(local) = text.strip_prefix("local: ") {
            file.local = Some(local.to_owned());
        } else if !text.starts_with('#') {
            file.text.push_str(&format!("{text}\n"));
        }
    }
    assert!(files.len() > 4, "the Butane was not understood: {files:?}");
    files
}

// === impl Unit ===

impl Unit {
    fn parse(text: &str) -> Self {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name.to_owned();
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no key: {line}"));
            values.entry(format!("{section}.{key}")).or_default().push(value.to_owned());
        }
        Self(values)
    }

    /// The value of a key that is there once.
    fn one(&self, section: &str, key: &str) -> String {
        let values = self.0.get(&format!("{section}.{key}")).cloned().unwrap_or_default();
        assert_eq!(values.len(), 1, "[{section}] {key}: {values:?}");
        values[0].clone()
    }

    /// The words of a list, over all lines of its key.
    fn words(&self, section: &str, key: &str) -> Vec<String> {
        let lines = self.0.get(&format!("{section}.{key}")).cloned().unwrap_or_default();
        lines.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
    }
}
