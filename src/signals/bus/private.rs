//! A real message bus of a test's own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::Bus;

/// A `dbus-daemon` that ends with the test.
#[derive(Debug)]
pub(crate) struct PrivateBus {
    daemon: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl PrivateBus {
    /// Starts one at a fresh address.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("unix:path={}", folder.path().join("bus").display());
        let (daemon, address) = spawn(&address);
        Self { daemon, address, _folder: folder }
    }

    pub(crate) fn bus(&self) -> Bus {
        Bus::At(self.address.clone())
    }

    /// Ends the daemon and starts another one at the same address.
    pub(crate) fn restart(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        let path = self.address.split(['=', ',']).nth(1).unwrap();
        let _ = std::fs::remove_file(path);
        let (daemon, address) = spawn(&format!("unix:path={path}"));
        self.daemon = daemon;
        self.address = address;
    }
}

fn spawn(address: &str) -> (Child, String) {
    let mut daemon = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
        .arg(format!("--address={address}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need dbus-daemon (package dbus)");
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.trim().is_empty(), "dbus-daemon did not start");
    // Without the guid that it appends: a restarted daemon has another one.
    (daemon, line.trim().split(",guid=").next().unwrap().to_owned())
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
