//! Zincati as a program of the host: over a slot server to the reboot.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Host, PATIENCE};

/// Reads one request and says yes; gives its path.
fn grant(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.ends_with(b"}\n}") && !bytes.ends_with(b"}") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "it hung up");
        bytes.extend_from_slice(&buffer[..count]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap().to_owned()
}

struct Zincati {
    child: Child,
    said: Receiver<String>,
    asked: Receiver<String>,
}

impl Zincati {
    /// Starts it on a host, with a slot server that grants everything.
    fn start(host: &Host, arguments: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let folder = host.root("etc/zincati/config.d");
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "identity.node_uuid = \"27e3ac02-af39-46af-995b-9940e18b0cce\"\n\
             [updates]\nstrategy = \"fleet_lock\"\nfleet_lock.base_url = \"http://{address}/\"\n"
        );
        fs::write(folder.join("50-a.toml"), text).unwrap();
        let (asks, asked) = channel();
        thread::spawn(move || {
            listener.incoming().try_for_each(|stream| asks.send(grant(stream.unwrap()))).unwrap();
        });
        let mut command = Command::new(host.path("bin/standin"));
        host.environment(&mut command);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", host.path("bin").display());
        command.args(["zincati", "--speed", "3000"]).args(arguments).env("PATH", path);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (says, said) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| says.send(line)));
        Self { child, said, asked }
    }

    fn says(&self, wanted: &str) {
        loop {
            let line = self.said.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it never said {wanted}"));
            if line.starts_with(wanted) {
                return;
            }
        }
    }
}

impl Drop for Zincati {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_asks_and_finalizes_what_lies_staged() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let mut zincati = Zincati::start(&host, &[]);
    zincati.says("steady-state: granted");
    zincati.says("pre-reboot: granted");
    zincati.says("state: EndState");
    assert_eq!(zincati.asked.recv().unwrap(), "/v1/steady-state");
    assert_eq!(zincati.asked.recv().unwrap(), "/v1/pre-reboot");
    assert!(host.systemctl().iter().any(|line| line.contains("reboot")), "{:?}", host.systemctl());
    let pid = Pid::from_raw(i32::try_from(zincati.child.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(zincati.child.wait().unwrap().code(), Some(0));
    assert!(zincati.asked.try_recv().is_err(), "it gives nothing back when it is stopped");
}

#[test]
fn its_faults_are_played() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let failing = Zincati::start(&host, &["--fault", "finalize-fails"]);
    failing.says("failed to finalize deployment");
    failing.says("pre-reboot: granted");
    drop(failing);
    let mut killed = Zincati::start(&host, &["--fault", "killed-after-grant"]);
    killed.says("pre-reboot: granted");
    assert_eq!(killed.child.wait().unwrap().signal(), Some(9));
    let rebooted = host.systemctl().iter().any(|line| line.contains("reboot"));
    assert!(!rebooted, "{:?}", host.systemctl());
}
