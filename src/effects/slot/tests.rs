#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

/// What a raw server does once it has read the request.
#[derive(Clone)]
pub(super) enum Manner {
    /// Says this and closes.
    Says(Vec<u8>),
    /// Says this and keeps the connection open.
    SaysAndHangs(Vec<u8>),
    /// Says this for ever.
    Repeats(&'static [u8]),
    /// Resets the connection.
    Resets,
}

pub(super) fn settings(base_url: String) -> SlotServer {
    SlotServer {
        base_url,
        group: "default".to_owned(),
        id: Some("n1".to_owned()),
        ca_file: None,
        client_certificate: None,
        headers: BTreeMap::new(),
        proxy: None,
        connect_timeout: Duration::from_secs(5),
        answer_timeout: Duration::from_secs(5),
    }
}

pub(super) fn client(settings: &SlotServer) -> SlotClient {
    SlotClient::direct(settings).unwrap()
}

/// Reads one request: its head and as much body as it announces.
pub(super) async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        seen.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        let length = text
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            })
            .unwrap_or(0);
        let whole = text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= length);
        if whole || count == 0 {
            return text;
        }
    }
}

async fn behave(mut stream: TcpStream, manner: Manner) -> String {
    let request = read_request(&mut stream).await;
    match manner {
        Manner::Says(text) => {
            let _ = stream.write_all(&text).await;
            let _ = stream.shutdown().await;
        }
        Manner::SaysAndHangs(text) => {
            let _ = stream.write_all(&text).await;
            // Until the client has given up.
            let _ = stream.read(&mut [0; 1]).await;
        }
        Manner::Repeats(text) => while stream.write_all(text).await.is_ok() {},
        Manner::Resets => {
            stream.set_zero_linger().unwrap();
        }
    }
    request
}

/// A server for one request; its task ends with what it was asked.
pub(super) async fn server(manner: Manner) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        behave(stream, manner).await
    });
    (base, task)
}

pub(super) fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into()
}

/// `granted`, `pending`, `denied KIND`, `failed KIND` or `lost KIND`.
pub(super) fn word(answer: &SlotAnswer) -> String {
    match answer {
        SlotAnswer::Granted => "granted".to_owned(),
        SlotAnswer::Pending { .. } => "pending".to_owned(),
        SlotAnswer::Denied { kind, .. } => format!("denied {kind}"),
        SlotAnswer::Failed { kind, answer_lost: false, .. } => format!("failed {kind}"),
        SlotAnswer::Failed { kind, answer_lost: true, .. } => format!("lost {kind}"),
    }
}

#[tokio::test]
async fn the_request_is_exactly_the_protocols() {
    let (base, task) = server(Manner::Says(http("200 OK", "", ""))).await;
    let headers = BTreeMap::from([("x-token".to_owned(), "abc".to_owned())]);
    let boot = BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap();
    let attempt = AttemptId::new(&boot, 7);
    let client = client(&SlotServer { headers, ..settings(format!("{base}/fl")) });
    let asker = Asker { attempt: Some(&attempt), boot: Some(&boot), node: Some("worker-2") };
    assert_eq!(client.request_as(asker).await, SlotAnswer::Granted);
    let request = task.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, r#"{"client_params":{"id":"n1","group":"default"}}"#);
    assert_eq!(head.lines().next(), Some("POST /fl/v1/pre-reboot HTTP/1.1"));
    let mut names: Vec<&str> = head.lines().skip(1).collect();
    names.sort_unstable();
    let host = base.trim_start_matches("http://");
    let expected = [
        "accept: */*".to_owned(),
        "content-length: 47".to_owned(),
        "fleet-lock-protocol: true".to_owned(),
        format!("host: {host}"),
        "lockkeeper-attempt: 3f2a9c1e-7".to_owned(),
        "lockkeeper-boot-id: 3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6".to_owned(),
        "lockkeeper-node: worker-2".to_owned(),
        format!("user-agent: lockkeeper/{}", env!("CARGO_PKG_VERSION")),
        "x-token: abc".to_owned(),
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_release_goes_to_steady_state_without_our_headers_if_there_is_nothing_to_tell() {
    let (base, task) = server(Manner::Says(http("200 OK", "", ""))).await;
    assert_eq!(client(&settings(base)).release().await, ReleaseAnswer::Released);
    let request = task.await.unwrap();
    assert!(request.starts_with("POST /v1/steady-state HTTP/1.1\r\n"), "{request}");
    assert!(!request.contains("\r\nlockkeeper-") && !request.contains("content-type"));
}

#[tokio::test]
async fn a_node_name_that_is_none_is_not_told_and_keeps_no_slot_away() {
    for name in ["", "two words", "knöten", &"n".repeat(254)] {
        let (base, task) = server(Manner::Says(http("200 OK", "", ""))).await;
        let asker = Asker { node: Some(name), ..Asker::default() };
        assert_eq!(client(&settings(base)).request_as(asker).await, SlotAnswer::Granted);
        assert!(!task.await.unwrap().contains("\r\nlockkeeper-"), "{name}");
    }
}

#[test]
fn the_place_tells_the_id_once_it_can_be_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = SlotServer { id: None, ..settings("http://u:secret@slots.example/fl".into()) };
    let server =
        Server { machine_id_file: file.path().to_owned(), ..Server::new(&settings).unwrap() };
    let client = SlotClient { backend: Arc::new(Backend::FleetLock(Box::new(server))) };
    let place = |id: Option<&str>| {
        let (server, group) = ("http://slots.example/fl".to_owned(), "default".to_owned());
        Some(SlotPlace { server, group, id: id.map(str::to_owned) })
    };
    for (text, id) in [
        ("uninitialized\n", None),
        ("1c09ca98649c4c7abc779cd04c96812e\n", Some("978a225b3d7b40e9acd7ce9b62f68444")),
    ] {
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(client.place(), place(id), "{text}");
    }
    assert_eq!(SlotClient::new(Some(&SlotBackend::None)).unwrap().place(), None);
}

#[tokio::test]
async fn servers_that_misbehave_grant_nothing() {
    let chunked = "transfer-encoding: chunked\r\n";
    let head = |headers: &str| format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    let huge = "x".repeat(70_000);
    let page = "<!DOCTYPE html><html></html>";
    let cases: Vec<(&str, Manner, &str)> = vec![
        ("empty reply", Manner::Says(Vec::new()), "lost not-an-answer"),
        ("reset", Manner::Resets, "lost io"),
        ("no http", Manner::Says(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "lost not-an-answer"),
        ("half a head", Manner::Says(b"HTTP/1.1 200 OK\r\ncont".to_vec()), "lost not-an-answer"),
        (
            "half a body",
            Manner::Says(format!("{}{{\"ki", head("content-length: 50\r\n")).into()),
            "lost not-an-answer",
        ),
        (
            "half a chunk",
            Manner::Says(format!("{}8\r\nab", head(chunked)).into()),
            "lost not-an-answer",
        ),
        ("huge", Manner::Says(http("200 OK", "", &huge)), "lost too-large"),
        ("silent", Manner::SaysAndHangs(Vec::new()), "lost timeout"),
        (
            "body never ends",
            Manner::SaysAndHangs(format!("{}1\r\na\r\n", head(chunked)).into()),
            "lost timeout",
        ),
        ("head never ends", Manner::Repeats(b"x-a: b\r\n"), "lost not-an-answer"),
        (
            "no content",
            Manner::Says(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
            "lost not-an-answer",
        ),
        ("html 500", Manner::Says(http("500 Oops", "", page)), "lost http_500"),
        ("html 200", Manner::Says(http("200 OK", "", page)), "lost not-an-answer"),
        ("pending", Manner::Says(http("202 Accepted", "", "")), "pending"),
        ("full", Manner::Says(http("423 Locked", "", "")), "denied http_423"),
    ];
    for (name, manner, expected) in cases {
        let (base, task) = server(manner).await;
        // Only those that never answer are given up; the others have as long as they need.
        let millis = if expected == "lost timeout" { 400 } else { 60_000 };
        let answer_timeout = Duration::from_millis(millis);
        let client = client(&SlotServer { answer_timeout, ..settings(base) });
        let answer = client.request().await;
        assert_eq!(word(&answer), expected, "{name}: {answer:?}");
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_redirect_to_a_page_that_says_yes_is_not_followed() {
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let yes = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let location = format!("location: http://{}/\r\n", yes.local_addr().unwrap());
        let (base, task) = server(Manner::Says(http(status, &location, ""))).await;
        let client = client(&settings(base));
        assert_eq!(word(&client.request().await), "failed redirect", "{status}");
        task.await.unwrap();
        let asked = tokio::time::timeout(Duration::from_millis(20), yes.accept()).await;
        assert!(asked.is_err(), "{status}: the other page was asked");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_has_seen_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = client(&settings(base));
    assert_eq!(word(&client.request().await), "failed connect");
    let ReleaseAnswer::Failed { kind, error, .. } = client.release().await else {
        panic!("a release without a server was taken for one");
    };
    assert_eq!(kind, "connect");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_says_so() {
    // A label of 64 characters: refused by the resolver itself, without asking anybody.
    let client = client(&settings(format!("http://{}.example", "a".repeat(64))));
    assert_eq!(word(&client.request().await), "failed dns");
}

#[tokio::test]
async fn a_denial_carries_its_sentence_and_wait() {
    let body = r#"{"kind":"lock_held","value":"held by n2"}"#;
    let (base, _task) = server(Manner::Says(http("423 Locked", "retry-after: 12\r\n", body))).await;
    let expected = SlotAnswer::Denied {
        kind: "lock_held".to_owned(),
        value: "held by n2".to_owned(),
        retry_after: Some(Duration::from_secs(12)),
    };
    assert_eq!(client(&settings(base)).request().await, expected);
}

#[tokio::test]
async fn an_explicit_proxy_is_used() {
    let (proxy, task) = server(Manner::Says(http("200 OK", "", ""))).await;
    let settings =
        SlotServer { proxy: Some(proxy), ..settings("http://slots.example/x/".to_owned()) };
    assert_eq!(client(&settings).request().await, SlotAnswer::Granted);
    let request = task.await.unwrap();
    assert!(request.starts_with("POST http://slots.example/x/v1/pre-reboot HTTP/1.1"), "{request}");
}

#[tokio::test]
async fn a_user_in_the_url_becomes_a_header_and_is_told_nowhere() {
    let (base, task) = server(Manner::Says(http("200 OK", "", ""))).await;
    let base = base.replace("http://", "http://node:secret@");
    let client = client(&settings(base));
    assert_eq!(client.request().await, SlotAnswer::Granted);
    assert!(task.await.unwrap().contains("authorization: Basic bm9kZTpzZWNyZXQ="));
    let told = format!("{client:?} {:?} {:?}", client.server(), client.request().await);
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test]
async fn the_machine_id_is_read_when_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine-id");
    let (base, task) = server(Manner::Says(http("200 OK", "", ""))).await;
    let server = Server {
        machine_id_file: file.clone(),
        environment_proxy: false,
        ..Server::new(&SlotServer { id: None, ..settings(base) }).unwrap()
    };
    let client = SlotClient { backend: Arc::new(Backend::FleetLock(Box::new(server))) };
    let answer = client.request().await;
    assert_eq!(word(&answer), "failed io");
    assert!(format!("{answer:?}").contains("machine-id"), "{answer:?}");
    std::fs::write(&file, "uninitialized\n").unwrap();
    assert_eq!(word(&client.request().await), "failed config");
    std::fs::File::create(&file).unwrap().write_all(b"1c09ca98649c4c7abc779cd04c96812e\n").unwrap();
    assert_eq!(client.request().await, SlotAnswer::Granted);
    assert!(task.await.unwrap().contains("978a225b3d7b40e9acd7ce9b62f68444"));
}

#[tokio::test]
async fn without_a_server_the_backend_answers_itself() {
    let missing = SlotClient::new(None).unwrap();
    assert_eq!(word(&missing.request().await), "failed no-backend");
    assert_eq!(missing.release().await, ReleaseAnswer::Released);
    let nobody = SlotClient::new(Some(&SlotBackend::None)).unwrap();
    assert_eq!(nobody.request().await, SlotAnswer::Granted);
    assert_eq!(nobody.release().await, ReleaseAnswer::Released);
}

#[test]
fn settings_that_can_never_work_are_refused() {
    let good = settings("http://h".to_owned());
    let header = |name: &str, value: &str| SlotServer {
        headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..good.clone()
    };
    let cases = [
        (settings("h:80".to_owned()), "base_url"),
        (settings("http://h:notaport".to_owned()), "base_url"),
        (SlotServer { group: "a_b".to_owned(), ..good.clone() }, "group"),
        (SlotServer { proxy: Some("http://:::".to_owned()), ..good.clone() }, "proxy"),
        (header("a b", "c"), "header \"a b\""),
        (header("x-token", "secret\n"), "header \"x-token\""),
        (header("Fleet-Lock-Protocol", "false"), "the protocol sets it itself"),
    ];
    for (settings, expected) in cases {
        let error = SlotClient::new(Some(&SlotBackend::FleetLock(settings))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains("secret"), "{text}");
    }
}
