//! What is told is on disk: the order of system calls, as strace sees them.
//!
//! A container that is killed keeps the machine's page cache, so that no power cut of the lab can show
//! that a flush is missing. Here the coordinator writes under strace; the agent does so in the lab
//! (tests/cycle/stories/durability.rs).
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub, reason = "a story of the lab reads traces, too")]
mod trace;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use trace::{Told, Watched, told};

/// How long anything may take that should take a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// `lockkeeper coordinator` under strace.
struct Coordinator {
    strace: Child,
    address: String,
}

// === impl Coordinator ===

impl Coordinator {
    fn start(folder: &Path) -> Self {
        let (config, place) = (folder.join("config.toml"), folder.display());
        let text = format!(
            "[coordinator]\nlisten = \"127.0.0.1:0\"\nstate_dir = \"{place}/state\"\n\
            run_dir = \"{place}/run\"\n[[coordinator.groups]]\nname = \"default\"\nslots = 1\n"
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let strace = Command::new("strace")
            .args(trace::OPTIONS)
            .arg("--output")
            .arg(folder.join("trace"))
            .arg(env!("CARGO_BIN_EXE_lockkeeper"))
            .args(["coordinator", "--log-level", "info", "--config"])
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stderr(Stdio::from(log))
            .spawn()
            .expect("strace is there");
        let address = until(|| {
            let log = std::fs::read_to_string(folder.join("log")).unwrap();
            let (_, rest) = log.split_once("coordinator ready address=")?;
            rest.split_once(' ').map(|(address, _)| address.to_owned())
        });
        Self { strace, address }
    }

    /// The status of the answer.
    fn ask(&self, path: &str, id: &str) -> String {
        let body = format!(r#"{{"client_params":{{"id":"{id}","group":"default"}}}}"#);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /v1/{path} HTTP/1.1\r\nHost: here\r\nfleet-lock-protocol: true\r\n\
            Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    /// Tells it to stop, and waits for the trace to be whole.
    fn end(mut self) {
        let pid = self.strace.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let child = children.split(' ').next().unwrap().parse().unwrap();
        let child = nix::unistd::Pid::from_raw(child);
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGTERM).unwrap();
        until(|| self.strace.try_wait().unwrap());
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // What it traces ends with it.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(seen) = look() {
            return seen;
        }
        // Sleeps: another process's log and end tell nobody.
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited a minute in vain");
}

/// Each answer that grants or releases goes out behind the flushed file, its rename and the flushed
/// folder; one that changes nothing writes nothing.
#[test]
fn the_coordinator_answers_behind_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(folder.path());
    assert_eq!(coordinator.ask("pre-reboot", "one"), "200");
    assert_eq!(coordinator.ask("pre-reboot", "one"), "200", "the holder asks again");
    assert_ne!(coordinator.ask("pre-reboot", "two"), "200", "it is taken");
    assert_eq!(coordinator.ask("steady-state", "one"), "200");
    assert_eq!(coordinator.ask("pre-reboot", "two"), "200");
    coordinator.end();
    let text = std::fs::read_to_string(folder.path().join("trace")).unwrap();
    let watched = Watched {
        new: "/state/slots.json.new",
        file: "/state/slots.json",
        folder: "/state",
        said: &|call| call.sends(&["HTTP/1.1 200"]),
    };
    let told = told(&text, &watched).unwrap_or_else(|wrong| panic!("{wrong}"));
    let short: Vec<&str> = told
        .iter()
        .map(|one| match one {
            Told::Kept { content, .. } if content.contains(r#"\"one\""#) => "kept for one",
            Told::Kept { content, .. } if content.contains(r#"\"two\""#) => "kept for two",
            Told::Kept { .. } => "kept for nobody",
            Told::Said(_) => "granted",
        })
        .collect();
    let expected = [
        "kept for one",
        "granted",
        "granted",
        "kept for nobody",
        "granted",
        "kept for two",
        "granted",
    ];
    assert_eq!(short, expected);
}
