//! Whatever comes in at the agent's sockets: it is answered or dropped, orders nothing that it does
//! not say, and keeps nobody else out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::tests::Agent;
use super::*;
use crate::signals::bus::odd::FORGED;

const PATIENCE: Duration = Duration::from_secs(60);
const TAKEN_BYTES_MAX: usize = 32 << 20;

/// Says this to a socket and that nothing more comes; what came back.
async fn exchange(agent: &Agent, socket: &str, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(agent.dir.path().join(socket)).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("neither answered nor dropped");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    let agent = Agent::start().await;
    let post = "POST /v1/hold HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n";
    for socket in [SOCKET_NAME, METRICS_SOCKET_NAME] {
        for (begin, more) in [
            (format!("{post}content-length: 99999999999\r\n\r\n"), "x"),
            (format!("{post}transfer-encoding: chunked\r\n\r\n"), "4\r\nabcd\r\n"),
            (post.to_owned(), "x-a: b\r\n"),
            ("GET /".to_owned(), "a"),
            (String::new(), "X"),
        ] {
            let mut stream = UnixStream::connect(agent.dir.path().join(socket)).await.unwrap();
            let mut taken = begin.len();
            stream.write_all(begin.as_bytes()).await.unwrap();
            let more = more.repeat(10_000);
            let flood = async {
                while let Ok(count @ 1..) = stream.write(more.as_bytes()).await {
                    taken += count;
                    if taken > TAKEN_BYTES_MAX {
                        break;
                    }
                }
            };
            // Who is not read any more has done no harm.
            let _ = tokio::time::timeout(Duration::from_secs(1), flood).await;
            assert!(taken < TAKEN_BYTES_MAX, "{socket} {begin:?}: {taken} bytes were taken");
        }
    }
    let _: Status = agent.client().get("/v1/status").await.unwrap();
}

#[tokio::test]
async fn scrapers_that_say_nothing_keep_no_person_out() {
    let agent = Agent::start().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(UnixStream::connect(agent.dir.path().join(METRICS_SOCKET_NAME)).await.unwrap());
    }
    let _: Status = agent.client().get("/v1/status").await.unwrap();
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = proptest::sample::select(vec![
        "/v1/hold",
        "/v1/resume",
        "/v1/retry",
        "/v1/reboot",
        "/v1/reboot/cancel",
        "/v1/status",
        "/v1/why",
        "/v1/history",
        "/metrics",
        "/v1/../v1/hold",
        "/",
        "*",
        "/v1/hold?x=1",
        "//v1/hold",
    ]);
    let method = proptest::sample::select(vec!["GET", "POST", "PUT", "HEAD", "hold", "PRI"]);
    let text = prop_oneof![
        Just("x\\u000aLOCKKEEPER_TO=rebooting\\u001b[2J".to_owned()),
        "[ -~]{0,20}".prop_map(|text| text.replace(['\\', '"'], "")),
        Just("x".repeat(600)),
    ];
    let body = prop_oneof![
        2 => text.prop_map(|text| format!("{{\"reason\":\"{text}\"}}")),
        1 => "(\\{|\\}|\\[|\"reason\"|\"by\"|:|,|null|1|\"x\"){0,8}",
        1 => "\\PC{0,40}",
        1 => Just("[".repeat(4000)),
    ];
    let whole = (method, path, "[01]", body).prop_map(|(method, path, version, body)| {
        format!(
            "{method} {path} HTTP/1.{version}\r\nhost: h\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    prop_oneof![4 => whole, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

#[test]
fn any_request_is_answered_or_dropped_and_orders_only_what_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let agent = runtime.block_on(Agent::start());
    let agent = std::cell::RefCell::new(agent);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let ran = TestRunner::new(config).run(&(any::<bool>(), request()), |(metrics, bytes)| {
        let mut agent = agent.borrow_mut();
        let socket = if metrics { METRICS_SOCKET_NAME } else { SOCKET_NAME };
        let mut orders = std::mem::replace(&mut agent.orders, mpsc::channel(1).1);
        let heard = runtime.block_on(async {
            let mut heard = None;
            let asked = exchange(&agent, socket, &bytes);
            tokio::pin!(asked);
            loop {
                tokio::select! {
                    answer = &mut asked => break (answer, heard),
                    Some(order) = orders.recv() => {
                        let _ = order.answer.send(Ok("Done.".to_owned()));
                        heard = Some(order.command);
                    }
                }
            }
        });
        agent.orders = orders;
        let (answer, heard) = heard;
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        prop_assert!(status != "500", "{said:?}: {answer}");
        if let Some(command) = heard {
            prop_assert!(!metrics && said.starts_with("POST "), "{said:?}");
            let (path, plain) = match command {
                Command::Hold { reason, .. } => ("/v1/hold", !reason.chars().any(char::is_control)),
                Command::Resume => ("/v1/resume", true),
                Command::Retry => ("/v1/retry", true),
                Command::Reboot { reason, .. } => {
                    ("/v1/reboot", !reason.chars().any(char::is_control))
                }
                Command::CancelReboot => ("/v1/reboot/cancel", true),
            };
            prop_assert!(plain && said.contains(path), "{said:?}");
        }
        Ok(())
    });
    ran.unwrap();
}

/// Texts of strangers in every place of a snapshot.
#[tokio::test]
async fn no_text_of_a_stranger_forges_a_metric() {
    let metrics = Metrics::new("0.1.0");
    for kind in [FORGED, "a\"} 1\nlockkeeper_state{state=\"rebooting", "\\", "\"", "\n# EOF\n"] {
        let body = serde_json::json!({ "kind": kind, "value": kind }).to_string();
        let now = crate::signals::clock::now().wall;
        metrics.slot_answer(&crate::fleetlock::read_answer(423, None, body.as_bytes(), now));
    }
    let text = metrics.encode().unwrap();
    for line in text.lines() {
        assert!(line.starts_with("lockkeeper_") || line.starts_with("# "), "{line:?}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
    assert!(text.matches("answer=\"denied\"").count() > 1, "{text}");
    assert!(!text.contains("\nlockkeeper_state{state=\"rebooting\"} 1"));
}
