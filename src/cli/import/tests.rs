//! What comes out for what people have, and what is said where nothing can.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The folder of examples.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import")
}

fn translated(root: &Path, command: &ImportCommand, stdin: &str) -> Result<String, String> {
    import(root, command, &mut stdin.as_bytes()).map_err(|error| error.to_string())
}

/// Each file and folder in tests/import with the translation beside it. `UPDATE_EXPECT=1` writes it
/// anew.
#[test]
fn examples_become_what_lies_beside_them() {
    let mut seen = 0;
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".toml") {
            assert!(
                ["yaml", "json", ""].iter().any(|of| path.with_extension(of).exists()),
                "{name} lies beside nothing"
            );
            continue;
        }
        // From the standard input, so that the place of this checkout is not told.
        let file = PathBuf::from("-");
        let (tool, _) = name.split_once('-').unwrap();
        let command = match tool {
            "zincati" => ImportCommand::Zincati,
            "locksmith" => ImportCommand::Locksmith { files: Vec::new() },
            "kured" => ImportCommand::Kured { file },
            "fluo" | "cluo" => ImportCommand::Fluo { file },
            other => panic!("{other}"),
        };
        let stdin = if path.is_dir() { String::new() } else { fs::read_to_string(&path).unwrap() };
        let text = translated(&path, &command, &stdin).unwrap();
        assert!(!text.contains("secret"), "{name}:\n{text}");
        expect_test::expect_file![path.with_extension("toml")].assert_eq(&text);
        let host = crate::config::tests::host(&[("etc/lockkeeper/config.d/50-local.toml", &text)]);
        let loaded = crate::config::load(host.path());
        assert!(loaded.is_ok(), "{name}: {}", loaded.unwrap_err());
        seen += 1;
    }
    assert!(seen > 8, "only {seen} examples");
}

/// A DaemonSet of kured with these flags, in YAML's own list.
fn kured(flags: &str) -> String {
    format!(
        "kind: DaemonSet\nmetadata: {{name: kured}}\nspec:\n  template:\n    spec:\n      containers:\n      \
         - name: kured\n        command: [kured]\n        args: [{flags}]\n"
    )
}

/// The same of FLUO's operator.
fn fluo(flags: &str) -> String {
    kured(flags).replace("[kured]", "[/bin/update-operator]")
}

const KURED: &str = "standard input: DaemonSet kured, container kured";

#[test]
fn what_kured_would_refuse_is_refused() {
    for (flags, expected) in [
        ("--period=often", "--period: expected a duration such as 90s or 1h30m, found \"often\""),
        ("--concurrency=0", "--concurrency: expected a whole number from 1 to 10000, found \"0\""),
        (
            "--reboot-days=mon,funday",
            "--reboot-days: expected days such as mon,tue or numbers from 0 (sun) to 6, found \
             \"mon,funday\"",
        ),
        (
            "--start-time=25:00",
            "--start-time: expected a time such as 9:00, 21:30 or 09:30pm, found \"25:00\"",
        ),
        (
            "--reboot-days=mon, --time-zone=Mars/Olympus",
            "--time-zone: expected the IANA name of a time zone that this host knows (tzdata), such as \
             \"UTC\" or \"Europe/Berlin\", found \"Mars/Olympus\"",
        ),
        ("--force-reboot=perhaps", "--force-reboot: expected true or false, found \"perhaps\""),
        (
            "--drain-grace-period=1m",
            "--drain-grace-period: expected a whole number of seconds, found \"1m\"",
        ),
        ("--notify-url", "--notify-url: expected a value behind it, found the end of the command"),
    ] {
        // A bare comma is one of YAML's.
        let flags =
            flags.split(", ").map(|flag| format!("{flag:?}")).collect::<Vec<_>>().join(", ");
        let found = translated(Path::new("/"), &kured_command(), &kured(&flags)).unwrap_err();
        assert_eq!(found, format!("{KURED}: {expected}"), "{flags}");
    }
}

#[test]
fn several_faults_are_told_in_one_go() {
    let flags = "--concurrency=x, --lock-release-delay=x";
    let found = translated(Path::new("/"), &kured_command(), &kured(flags)).unwrap_err();
    assert_eq!(found.lines().count(), 2, "{found}");
}

fn kured_command() -> ImportCommand {
    ImportCommand::Kured { file: PathBuf::from("-") }
}

fn fluo_command() -> ImportCommand {
    ImportCommand::Fluo { file: PathBuf::from("-") }
}

#[test]
fn a_manifest_of_something_else_is_no_manifest() {
    let twice = format!("{}---\n{}", kured(""), kured(""));
    let shell = kured("")
        .replace("[kured]", "[sh, -c]")
        .replace("name: kured\n        c", "name: kured\n        image: kured:1\n        c");
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
    let deep = "[".repeat(5000);
    let secret = "kind: x\nvalue: \"secret\nkind: y";
    for (text, expected) in [
        ("", "expected a DaemonSet with a container that runs kured, found none"),
        ("kind: Service", "expected a DaemonSet with a container that runs kured, found none"),
        (twice.as_str(), "kind: expected one workload that runs kured, found kured and kured"),
        (
            shell.as_str(),
            "command: expected kured itself with its flags, not a shell around it, found \"sh\"",
        ),
        ("a: b: c", "standard input: expected YAML or JSON: "),
        (bomb, "standard input: expected YAML or JSON: "),
        (deep.as_str(), "standard input: expected YAML or JSON: "),
        (secret, "standard input: expected YAML or JSON: "),
    ] {
        let found = translated(Path::new("/"), &kured_command(), text).unwrap_err();
        assert!(found.contains(expected), "{found}");
        assert!(found.len() < 400 && found.lines().count() == 1, "{found}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[test]
fn what_is_too_long_or_no_text_is_not_read() {
    let long = "#".repeat(usize::try_from(MANIFEST_MAX).unwrap() + 1);
    let found = translated(Path::new("/"), &kured_command(), &long).unwrap_err();
    assert_eq!(found, "standard input: expected a file of text, found more than 4194304 bytes");
    let bytes = import(Path::new("/"), &kured_command(), &mut &b"\xff"[..]).unwrap_err();
    assert!(bytes.to_string().starts_with("standard input: expected a file of text, "), "{bytes}");
    let folder = tempfile::tempdir().unwrap();
    for file in ["nothing.yaml", ""] {
        let file = folder.path().join(file);
        let found = translated(Path::new("/"), &ImportCommand::Kured { file: file.clone() }, "");
        let name = file.display();
        assert!(found.unwrap_err().starts_with(&format!("{name}: expected a file of text, ")));
    }
}

#[test]
fn what_fluo_would_refuse_is_refused() {
    let place = "standard input: DaemonSet kured, container kured";
    for (flags, expected) in [
        (
            "-reboot-window-start=noon, -reboot-window-length=1h",
            "--reboot-window-start: expected a time such as \"14:00\" or \"Thu 04:00\", found \"noon\"",
        ),
        (
            "\"-reboot-window-start=Mon 1:00\", -reboot-window-length=168h",
            "--reboot-window-length: expected a duration such as 1h30m, shorter than a day, or than a \
             week if the start has a day, found \"168h\"",
        ),
        (
            "\"-reboot-window-start=1:00\", -reboot-window-length=1s",
            "--reboot-window-length: expected a duration between \"1m\" and \"7d\", found \"1s\"",
        ),
    ] {
        let found = translated(Path::new("/"), &fluo_command(), &fluo(flags)).unwrap_err();
        assert_eq!(found, format!("{place}: {expected}"), "{flags}");
    }
    let found = translated(Path::new("/"), &fluo_command(), &kured("")).unwrap_err();
    assert!(found.contains("expected a Deployment that runs update-operator, or"), "{found}");
}

#[test]
fn what_zincati_would_refuse_is_refused() {
    for (text, expected) in [
        (
            "updates.strategy = \"never\"",
            "updates.strategy: expected \"immediate\", \"periodic\" or \"fleet_lock\", found \"never\"",
        ),
        ("updates.enabled = 1", "updates.enabled: expected true or false, found \"1\""),
        (
            "identity.group = \"a b\"",
            "identity.group: expected letters, digits, dots and dashes, found \"a b\"",
        ),
        (
            "identity.node_uuid = \"node-1\"",
            "identity.node_uuid: expected an id of 32 hexadecimal digits, found \"node-1\"",
        ),
        (
            "updates.strategy = \"fleet_lock\"\nupdates.fleet_lock.base_url = \"fleet:lock\"",
            "updates.fleet_lock.base_url: expected a URL with http:// or https://, found \"fleet:lock\"",
        ),
        (
            "updates.strategy = \"periodic\"\n[[updates.periodic.window]]\ndays = [\"Moonday\"]",
            "updates.periodic.window.days: expected a list of days such as [\"Sat\", \"Sun\"], found \
             \"a list\"",
        ),
        (
            "updates.strategy = \"periodic\"\n[[updates.periodic.window]]\ndays = [\"Mon\"]\n\
             start_time = \"1:00\"\nlength_minutes = 0",
            "updates.periodic.window.length_minutes: expected a whole number from 1 to 10080, found \"0\"",
        ),
    ] {
        let root = crate::config::tests::host(&[("etc/zincati/config.d/a.toml", text)]);
        let found = translated(root.path(), &ImportCommand::Zincati, "").unwrap_err();
        assert_eq!(found, format!("/etc/zincati/config.d/a.toml: {expected}"), "{text}");
    }
    for (text, expected) in [
        (
            "updates.strategy = \"fleet_lock\"",
            "updates.strategy: updates.fleet_lock.base_url: expected the URL of a server, found none",
        ),
        (
            "updates.strategy = \"periodic\"",
            "updates.strategy: updates.periodic.window: expected a window, or Zincati never reboots, \
             found none",
        ),
        ("\nsecret = = 1", "/etc/zincati/config.d/a.toml:2: expected TOML: "),
    ] {
        let root = crate::config::tests::host(&[("etc/zincati/config.d/a.toml", text)]);
        let found = translated(root.path(), &ImportCommand::Zincati, "").unwrap_err();
        assert!(found.starts_with(expected) && !found.contains("secret"), "{found}");
    }
    let empty = tempfile::tempdir().unwrap();
    let found = translated(empty.path(), &ImportCommand::Zincati, "").unwrap_err();
    assert!(found.starts_with("/etc/zincati/config.d: *.toml: expected fragments"), "{found}");
}

#[test]
fn what_locksmith_would_refuse_is_refused() {
    for (text, expected) in [
        (
            "REBOOT_STRATEGY=sometimes",
            "REBOOT_STRATEGY: expected reboot, etcd-lock or off, found \"sometimes\"",
        ),
        (
            "REBOOT_WINDOW_START=1:00",
            "REBOOT_WINDOW_START: expected LOCKSMITHD_REBOOT_WINDOW_START and _LENGTH both, or neither, \
             found \"1:00\"",
        ),
        (
            "REBOOT_WINDOW_START=1:00\nLOCKSMITHD_REBOOT_WINDOW_LENGTH=24h",
            "LOCKSMITHD_REBOOT_WINDOW_LENGTH: expected a duration such as 1h30m, shorter than a day, or \
             than a week if the start has a day, found \"24h\"",
        ),
    ] {
        let root = crate::config::tests::host(&[("etc/flatcar/update.conf", text)]);
        let command = ImportCommand::Locksmith { files: Vec::new() };
        let found = translated(root.path(), &command, "").unwrap_err();
        assert_eq!(found, format!("/etc/flatcar/update.conf: {expected}"), "{text}");
        // The same file, named.
        let file = root.path().join("etc/flatcar/update.conf");
        let command = ImportCommand::Locksmith { files: vec![file.clone()] };
        let found = translated(Path::new("/"), &command, "").unwrap_err();
        assert_eq!(found, format!("{}: {expected}", file.display()), "{text}");
    }
    let empty = tempfile::tempdir().unwrap();
    let command = ImportCommand::Locksmith { files: Vec::new() };
    let found = translated(empty.path(), &command, "").unwrap_err();
    assert!(found.starts_with("/etc/flatcar/update.conf: the file: expected one"), "{found}");
}

/// Where a drain does not fit, it is given less time; where a window fits it, nothing changes.
#[test]
fn a_drain_fits_into_the_windows() {
    for (end, deadline, estimate) in [
        ("--end-time=02:00", None, None),
        ("--end-time=01:20", None, None),
        ("--end-time=01:10", Some("3m 45s"), None),
        ("--end-time=01:01", Some("28s"), Some("18s")),
    ] {
        let flags = format!("--start-time=1:00, {end}");
        let text = translated(Path::new("/"), &kured_command(), &kured(&flags)).unwrap();
        let has = |key: &str, value: Option<&str>| match value {
            Some(value) => text.contains(&format!("\n{key} = \"{value}\"\n")),
            None => !text.contains(&format!("\n{key} = ")),
        };
        assert!(has("deadline", deadline) && has("estimate", estimate), "{text}");
    }
}

/// Every flag that is known changes what comes out.
#[test]
fn no_flag_is_lost() {
    let plain = translated(Path::new("/"), &kured_command(), &kured("")).unwrap();
    for flag in kured::VALUED.iter().chain(&kured::SWITCHES) {
        let value = match *flag {
            "reboot-days" => "mon",
            "start-time" | "end-time" => "7:00",
            "time-zone" => "UTC --start-time=7:00",
            "concurrency" | "drain-grace-period" | "metrics-port" => "7",
            "period" | "drain-timeout" | "drain-delay" | "lock-release-delay" => "7m",
            "metrics-host" => "127.0.0.1",
            _ if kured::SWITCHES.contains(flag) => "true",
            _ => "http://seven.example",
        };
        let words = format!("--{flag}={value}");
        let flags: Vec<String> = words.split(' ').map(|word| format!("{word:?}")).collect();
        let text = translated(Path::new("/"), &kured_command(), &kured(&flags.join(", "))).unwrap();
        assert_ne!(text, plain, "{flag}");
    }
}
