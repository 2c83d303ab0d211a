//! A coordinator on loopback over a folder of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::slots::{GroupPolicy, Policies};
use super::super::store::file::FileStore;
use super::super::{BoundedListener, Desk, Metrics, serve};

pub(super) struct Rig {
    pub(super) address: SocketAddr,
    pub(super) desk: Desk,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

pub(super) fn policies(groups: &[(&str, u32)]) -> Policies {
    groups.iter().map(|(name, slots)| ((*name).to_owned(), GroupPolicy { slots: *slots })).collect()
}

impl Rig {
    pub(super) async fn start(folder: &Path, groups: &[(&str, u32)]) -> Self {
        let long = Duration::from_secs(20);
        Self::start_bounded(folder, groups, 100, long, long).await
    }

    pub(super) async fn start_bounded(
        folder: &Path,
        groups: &[(&str, u32)],
        connections: usize,
        lifetime: Duration,
        head_within: Duration,
    ) -> Self {
        let (store, slots) = FileStore::open(folder).unwrap();
        let (desk, clerk) = Desk::open(store, slots, policies(groups), Timestamp::now);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = BoundedListener::new(listener, connections, lifetime);
        let listener = listener.with_head_within(head_within);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let served = serve(listener, desk.clone(), policies(groups), Metrics::new(), stopped);
        let server = tokio::spawn(async { served.await.unwrap() });
        Self { address, desk, stop, tasks: [server, clerk] }
    }

    /// Stops and waits until everything has ended, so that the folder is free again.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        drop(self.desk);
        for task in self.tasks {
            tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap();
        }
    }

    /// Sends these bytes and reads until the server closes.
    pub(super) async fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// A request as the protocol has it, with more header lines.
    pub(super) async fn post(&self, path: &str, headers: &str, group: &str, id: &str) -> Answer {
        let body = format!(r#"{{"client_params":{{"id":"{id}","group":"{group}"}}}}"#);
        self.raw(&format!(
            "POST /v1/{path} HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
             connection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        ))
        .await
    }
}

impl Answer {
    /// Status and kind, as in `409 failed_lock_semaphore_full`.
    pub(super) fn word(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        assert!(!body["value"].as_str().unwrap_or_default().is_empty(), "{}", self.body);
        format!("{} {}", self.status, body["kind"].as_str().unwrap_or("without a kind"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(super) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    (folder, path)
}
