#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::*;
use crate::admin::{Client, ClientError, sample};
use crate::lifecycle::Waiting;

/// An agent's sockets in a folder of their own, with the loop's ends of the wires.
pub(super) struct Agent {
    pub(super) dir: tempfile::TempDir,
    snapshots: watch::Sender<Snapshot>,
    pub(super) orders: mpsc::Receiver<Order>,
    served: JoinHandle<Result<(), ListenError>>,
}

impl Agent {
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (snapshots, receiver) = watch::channel(sample::draining());
        let (sender, orders) = mpsc::channel(1);
        let settings = AdminSettings { run_dir: dir.path().to_owned(), metrics_listen: None };
        let metrics = Metrics::new("0.1.0");
        metrics.observe(&sample::draining(), &[]);
        let served = tokio::spawn(serve(receiver, sender, metrics, settings));
        // The sockets are bound before the task first waits.
        tokio::task::yield_now().await;
        Self { dir, snapshots, orders, served }
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.dir.path())
    }

    /// Answers one order the way the loop does.
    async fn answer(&mut self, result: Result<String, String>) -> Command {
        let Order { command, answer, .. } = self.orders.recv().await.unwrap();
        answer.send(result).unwrap();
        command
    }
}

#[tokio::test]
async fn status_why_and_history_are_told() {
    let agent = Agent::start().await;
    let status: Status = agent.client().get("/v1/status").await.unwrap();
    assert_eq!(status, Status::of(&sample::draining()));
    let why: Why = agent.client().get("/v1/why").await.unwrap();
    assert_eq!((why.code.as_str(), why.state.as_str()), ("draining", "draining"));
    let history: History = agent.client().get("/v1/history").await.unwrap();
    let running: Vec<bool> = history.attempts.iter().map(|attempt| attempt.running).collect();
    assert_eq!(running, [false, true]);
}

#[tokio::test]
async fn commands_reach_the_loop_and_its_answer_comes_back() {
    let mut agent = Agent::start().await;
    let client = agent.client();
    let hold = HoldRequest { reason: " disk swap ".to_owned(), by: Some("alice".to_owned()) };
    let (said, command) =
        tokio::join!(client.post("/v1/hold", &hold), agent.answer(Ok("Done.".to_owned())));
    said.unwrap();
    let expected = Command::Hold { reason: "disk swap".to_owned(), by: "alice".to_owned() };
    assert_eq!(command, expected);

    let refused = Err("there is no hold".to_owned());
    let (said, command) = tokio::join!(client.post("/v1/resume", &()), agent.answer(refused));
    assert_eq!(command, Command::Resume);
    assert_eq!(said.unwrap_err().to_string(), "there is no hold");
}

#[tokio::test]
async fn bad_reasons_never_reach_the_loop() {
    let mut agent = Agent::start().await;
    let long = "x".repeat(REASON_CHARACTERS_MAX + 1);
    for (reason, expected) in [
        ("  ", "reason: expected a text that says why, found none"),
        ("a\nb", "reason: expected one line without control characters"),
        (long.as_str(), "reason: expected at most 500 characters, found 501"),
    ] {
        let hold = HoldRequest { reason: reason.to_owned(), by: None };
        let error = agent.client().post("/v1/hold", &hold).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let huge = HoldRequest { reason: "x".repeat(BODY_BYTES_MAX), by: None };
    let error = agent.client().post("/v1/hold", &huge).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    assert!(agent.orders.try_recv().is_err());
}

#[tokio::test]
async fn a_loop_that_hangs_does_not_hang_the_person() {
    let (commands, _kept) = mpsc::channel(1);
    let snapshots = watch::channel(sample::idle()).1;
    let desk = Desk { snapshots, commands, answer_timeout: Duration::from_millis(1) };
    let response = order(&desk, Command::Retry, "root".to_owned()).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn watch_tells_each_change_once_and_ends_with_the_loop() {
    let agent = Agent::start().await;
    let mut lines = agent.client().follow("/v1/status/watch").await.unwrap();
    let first: Status = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(first.reason.code, "draining");
    // Time alone is no change.
    agent.snapshots.send_modify(|snapshot| snapshot.wake = None);
    tokio::task::yield_now().await;
    agent.snapshots.send_modify(|snapshot| snapshot.waiting = Waiting::Verifying);
    let next: Status = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(next.reason.code, "verifying");
    drop(agent.snapshots);
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn modes_are_root_only_and_for_all() {
    let agent = Agent::start().await;
    let mode = |name: &str| {
        let metadata = std::fs::metadata(agent.dir.path().join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode(SOCKET_NAME), mode(METRICS_SOCKET_NAME)), (0o600, 0o666));
}

#[test]
fn only_root_and_the_agent_itself_are_allowed() {
    let allowed = |uid| is_allowed(Caller { uid }, 990);
    assert!(allowed(Some(0)) && allowed(Some(990)));
    assert!(!allowed(Some(1000)) && !allowed(None));
}

#[tokio::test]
async fn the_wrong_user_is_told_so() {
    let (snapshots, commands) = (watch::channel(sample::idle()).1, mpsc::channel(1).0);
    let desk = Desk { snapshots, commands, answer_timeout: COMMAND_ANSWER_TIMEOUT };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tcp");
    // The same routes for a caller whom the kernel gives another uid.
    let listener = listen::bind(&path, 0o600).unwrap();
    let routes = admin_routes(desk).layer(axum::Extension(ConnectInfo(Caller { uid: Some(1000) })));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let answer = raw(&path, "GET /v1/status HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 403 ") || answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("only root may speak to the agent, you are uid 1000"), "{answer}");
}

/// For scrapers that reach no socket of the host; nothing but the metrics is there.
#[tokio::test]
async fn metrics_are_served_over_tcp_where_that_is_wished() {
    // Nobody else is given this port so soon.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let metrics = Metrics::new("0.1.0");
    metrics.observe(&sample::draining(), &[]);
    let served = tokio::spawn(serve_tcp(Some(address), metrics));
    let ask = async |request: &str| loop {
        let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else {
            tokio::task::yield_now().await;
            continue;
        };
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        return answer;
    };
    for (request, expected) in [
        ("GET /metrics HTTP/1.0\r\n\r\n", "lockkeeper_state{state=\"draining\"} 1\n"),
        ("POST /metrics HTTP/1.0\r\ncontent-length: 0\r\n\r\n", " 405 "),
        ("POST /v1/resume HTTP/1.0\r\ncontent-length: 0\r\n\r\n", " 404 "),
        ("GET /v1/status HTTP/1.0\r\n\r\n", " 404 "),
    ] {
        let asked = tokio::time::timeout(std::time::Duration::from_secs(60), ask(request)).await;
        assert!(asked.as_ref().is_ok_and(|said| said.contains(expected)), "{request}: {asked:?}");
    }
    served.abort();
}

#[tokio::test]
async fn metrics_are_read_only() {
    let agent = Agent::start().await;
    let path = agent.dir.path().join(METRICS_SOCKET_NAME);
    let answer = raw(&path, "GET /metrics HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains("application/openmetrics-text"), "{answer}");
    assert!(answer.contains("lockkeeper_state{state=\"draining\"} 1\n"), "{answer}");
    let answer = raw(&path, "POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n").await;
    assert!(answer.contains(" 405 "), "{answer}");
    let answer = raw(&path, "GET /v1/status HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains(" 404 "), "{answer}");
}

#[tokio::test]
async fn a_scraper_that_hangs_gives_its_place_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one-place");
    let listener = listen::bind(&path, 0o600).unwrap();
    let listener = Bounded::new(listener, 1, Some(Duration::from_millis(50)));
    let routes = metrics_routes(Metrics::new("0.1.0"));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut hangs = UnixStream::connect(&path).await.unwrap();
    let answer = raw(&path, "GET /metrics HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains(" 200 "), "{answer}");
    // It was ended by the server, not by us.
    assert_eq!(hangs.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_missing_agent_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(dir.path());
    let error = client.get::<Status>("/v1/status").await.unwrap_err().to_string();
    assert!(error.starts_with("the agent does not run: there is no "), "{error}");
    drop(std::os::unix::net::UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap());
    let error = client.get::<Status>("/v1/status").await.unwrap_err().to_string();
    assert!(error.starts_with("the agent does not run: nobody listens on "), "{error}");
}

#[tokio::test]
async fn a_left_over_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET_NAME);
    drop(listen::bind(&path, 0o600).unwrap());
    let _listener = listen::bind(&path, 0o600).unwrap();
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn serving_ends_with_the_loop() {
    let agent = Agent::start().await;
    drop(agent.orders);
    agent.served.await.unwrap().unwrap();
}

async fn raw(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A server that never ends its answer fails the test instead of hanging it.
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap().unwrap();
    answer
}
