//! `lockkeeper` called by the wrong user, with odd arguments, and where nobody listens.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const COMMANDS: [&[&str]; 12] = [
    &["status"],
    &["status", "--json"],
    &["status", "--watch"],
    &["why"],
    &["history"],
    &["hold", "disk swap"],
    &["resume"],
    &["retry"],
    &["slots", "list"],
    &["slots", "release", "default", "n1", "--yes"],
    &["agent"],
    &["coordinator"],
];

/// A place of root's: sockets that only root may use, a state that only root may read.
struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
    _sockets: Vec<std::os::unix::net::UnixListener>,
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        mode(folder.path(), 0o755);
        // Where it was built, others may not look.
        let program = folder.path().join("lockkeeper");
        std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &program).unwrap();
        let run = folder.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let sockets = ["agent.sock", "coordinator.sock"].map(|name| {
            let socket = std::os::unix::net::UnixListener::bind(run.join(name)).unwrap();
            mode(&run.join(name), 0o600);
            socket
        });
        let config = folder.path().join("etc/lockkeeper/config.d");
        std::fs::create_dir_all(&config).unwrap();
        let state = folder.path().join("state");
        std::fs::create_dir(&state).unwrap();
        mode(&state, 0o700);
        let text = format!(
            "[agent]\nstate_dir = \"{0}/state\"\nrun_dir = \"{0}/run\"\n[coordinator]\n\
             listen = \"127.0.0.1:0\"\nstate_dir = \"{0}/state\"\nrun_dir = \"{0}/run\"\n\
             [[coordinator.groups]]\nname = \"default\"\nslots = 1\n",
            folder.path().display()
        );
        std::fs::write(config.join("a.toml"), text).unwrap();
        Self { folder, program, _sockets: sockets.into() }
    }

    /// As nobody, who has neither a home nor a locale that exists.
    fn nobody(&self, arguments: &[&str]) -> Output {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&self.program)
            .arg("--root")
            .arg(self.folder.path())
            .args(arguments)
            .env_clear()
            .env("LC_ALL", "xx_YY.no-such")
            .env("TZ", "../../dev/zero")
            .env("SUDO_USER", "x\nforged")
            .stdin(Stdio::null())
            .output()
            .expect("setpriv")
    }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn without_panic(output: &Output, about: &str) -> String {
    let told = words(&output.stderr);
    assert!(!told.contains("panicked"), "{about}: {told}");
    assert!(output.status.code().is_some_and(|code| code < 3), "{about}: {output:?}");
    told
}

#[test]
fn nobody_is_told_who_may_and_changes_nothing() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test changes its user, for which it needs root"
    );
    let place = Place::new();
    for arguments in COMMANDS {
        let output = place.nobody(arguments);
        let told = without_panic(&output, &arguments.join(" "));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let says_why = ["root", "ermission denied"].iter().any(|why| told.contains(why));
        assert!(says_why && told.starts_with("lockkeeper: "), "{arguments:?}: {told}");
    }
    assert!(place.folder.path().join("state").read_dir().unwrap().next().is_none());
    // What anybody may read, anybody may check.
    let checked = place.nobody(&["config", "check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", words(&checked.stderr));
    mode(&place.folder.path().join("etc/lockkeeper/config.d/a.toml"), 0o600);
    let checked = place.nobody(&["config", "check"]);
    let told = without_panic(&checked, "config check");
    assert_eq!(checked.status.code(), Some(1));
    assert!(told.contains("a.toml") && told.contains("permission denied; try as root"), "{told}");
}

#[test]
fn odd_arguments_are_wrong_use_and_nothing_else() {
    let empty = tempfile::tempdir().unwrap();
    let odd: Vec<OsString> = vec![
        OsString::new(),
        OsString::from_vec(b"\xff\xfe".to_vec()),
        OsString::from("\u{1b}[2J\nx"),
        OsString::from("x".repeat(100_000)),
        OsString::from("--"),
        OsString::from("-"),
        OsString::from("--json=maybe"),
        OsString::from("@/etc/passwd"),
        OsString::from("../../../dev/zero"),
    ];
    for before in [&[][..], &["status"], &["slots", "release"], &["config", "check"], &["hold"]] {
        for argument in &odd {
            let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
                .args(before)
                .arg(argument)
                .env("LOCKKEEPER_RUN_DIR", empty.path())
                .env("LOCKKEEPER_ROOT", empty.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let about = format!("{before:?} {:?}", argument.to_string_lossy().get(..20));
            let told = without_panic(&output, &about);
            if before == ["config", "check"] && argument == "--" {
                continue;
            }
            assert_ne!(output.status.code(), Some(0), "{about}: {told}");
            assert!(!told.contains('\u{1b}') && !told.is_empty(), "{about}: {told:?}");
        }
    }
}

#[test]
fn one_that_nobody_reads_ends_in_peace() {
    // The reader has enough after one line.
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["config", "default"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 1]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(without_panic(&output, "a closed pipe"), "");
    for (script, code) in [
        ("\"$0\" config default >&-", None),
        ("\"$0\" config default >/dev/full", Some(1)),
        ("\"$0\" config default 2>&- >/dev/full", Some(1)),
        ("\"$0\" --help >&- 2>&-", None),
        ("\"$0\" --help >/dev/full", None),
    ] {
        let output = Command::new("/bin/sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_lockkeeper")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        without_panic(&output, script);
        assert!(code.is_none() || output.status.code() == code, "{script}: {output:?}");
    }
}
