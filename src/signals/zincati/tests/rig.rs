//! A bridge on loopback over a host of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::callers::Callers;
use super::super::{Bounds, BridgeSettings, Desk, serve_within};
use crate::lifecycle::Event;

/// Long enough for a busy machine.
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(30);

pub(in super::super) const ID: &str = "978a225b3d7b40e9acd7ce9b62f68444";

pub(in super::super) struct Rig {
    pub(in super::super) address: SocketAddr,
    pub(in super::super) desk: Desk,
    pub(in super::super) events: mpsc::Receiver<Event>,
    host: tempfile::TempDir,
    task: JoinHandle<()>,
}

/// A call whose answer has not been read.
pub(in super::super) struct Call(pub(in super::super) TcpStream);

pub(in super::super) struct Answer {
    pub(in super::super) status: u16,
    pub(in super::super) head: String,
    pub(in super::super) body: String,
}

/// Fast, but with the bounds that are not about time as they are.
pub(in super::super) fn bounds() -> Bounds {
    Bounds {
        pace: Duration::from_millis(1),
        event_pace: Duration::from_millis(1),
        bind_retry: Duration::from_millis(20),
        ..Bounds::new(PATIENCE)
    }
}

/// A free port. Somebody else could take it before we do, which a test would notice.
pub(in super::super) async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

impl Rig {
    pub(in super::super) async fn start() -> Self {
        Self::start_within(bounds()).await
    }

    pub(in super::super) async fn start_within(bounds: Bounds) -> Self {
        Self::start_with(bounds, |callers| callers).await
    }

    pub(in super::super) async fn start_with(
        bounds: Bounds,
        change: impl FnOnce(Callers) -> Callers,
    ) -> Self {
        let mut rig = Self::start_unheard(free_address().await, bounds, change);
        rig.until_it_listens().await;
        rig
    }

    /// Does not wait until it listens.
    pub(in super::super) fn start_unheard(
        address: SocketAddr,
        bounds: Bounds,
        change: impl FnOnce(Callers) -> Callers,
    ) -> Self {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("etc/zincati/config.d")).unwrap();
        fs::write(host.path().join("etc/machine-id"), "1c09ca98649c4c7abc779cd04c96812e\n")
            .unwrap();
        // So that the tests' own user may call, whoever that is.
        let user = format!("zincati:x:{}:1::/:/sbin/nologin\n", nix::unistd::geteuid());
        fs::write(host.path().join("etc/passwd"), user).unwrap();
        let settings =
            BridgeSettings { listen: address, hold: bounds.hold, root: host.path().to_owned() };
        let callers = change(Callers::new(settings.root.clone()));
        let desk = Desk::default();
        let (to, events) = mpsc::channel(4);
        let task = tokio::spawn(serve_within(settings, callers, bounds, desk.clone(), to));
        Self { address, desk, events, host, task }
    }

    pub(in super::super) async fn until_it_listens(&mut self) {
        let heard = async {
            while TcpStream::connect(self.address).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, heard).await.expect("it does not listen");
    }

    pub(in super::super) fn host(&self, file: &str) -> PathBuf {
        self.host.path().join(file)
    }

    /// Sends bytes; the answer is still to be read.
    pub(in super::super) async fn send(&self, request: &[u8]) -> Call {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // It may have hung up before the end.
        let _ = stream.write_all(request).await;
        Call(stream)
    }

    /// A call as Zincati makes it.
    pub(in super::super) async fn call(&self, api: &str) -> Call {
        self.send(request(api, ID, "default").as_bytes()).await
    }

    /// Sends bytes and reads the answer.
    pub(in super::super) async fn ask(&self, request: &str) -> Answer {
        self.send(request.as_bytes()).await.answer().await
    }

    pub(in super::super) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("no event").unwrap()
    }

    /// Nothing has been told that was not heard.
    pub(in super::super) fn heard_all(&mut self) -> bool {
        self.events.try_recv().is_err()
    }

    pub(in super::super) async fn stop(mut self) {
        self.events.close();
        timeout(PATIENCE, &mut self.task).await.expect("it does not end").unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Call {
    pub(in super::super) async fn answer(mut self) -> Answer {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await;
        // Whether the end was a clean one does not matter.
        let _ = read.expect("neither answered nor dropped");
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }
}

impl Answer {
    /// Status and kind, as in `423 held`.
    pub(in super::super) fn word(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        assert!(!body["value"].as_str().unwrap_or_default().is_empty(), "{}", self.body);
        format!("{} {}", self.status, body["kind"].as_str().unwrap_or("without a kind"))
    }

    pub(in super::super) fn value(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["value"].as_str().unwrap_or_default().to_owned()
    }
}

/// Zincati's request, byte by byte: facts are its pretty body and the headers that it does not send.
pub(in super::super) fn request(api: &str, id: &str, group: &str) -> String {
    let body = format!(
        "{{\n  \"client_params\": {{\n    \"id\": \"{id}\",\n    \"group\": \"{group}\"\n  }}\n}}"
    );
    format!(
        "POST /v1/{api} HTTP/1.1\r\nfleet-lock-protocol: true\r\naccept: */*\r\nhost: h\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
