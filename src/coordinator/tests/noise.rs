//! Whatever a client says: it is answered or dropped, takes no slot that it did not ask for, and
//! the next one is served.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::slots::{Ask, Claim};
use super::rig::{Rig, folder};
use crate::fleetlock::{Operation, parse_request};

/// What the sockets of both sides hold, the server's bounds and room to spare.
const TAKEN_BYTES_MAX: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends, says that nothing more comes, and reads what comes back.
async fn exchange(rig: &Rig, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    // The server may have hung up before the end.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("neither answered nor dropped");
    answer
}

/// Sends `begin`, then `more` until the server hangs up; how many bytes it took.
async fn flood(rig: &Rig, begin: &[u8], more: &[u8]) -> usize {
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let more = more.repeat(1 + 60_000 / more.len());
    let told = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = reading.read_to_end(&mut answer).await;
    });
    let mut taken = 0;
    let mut next = begin;
    let sending = async {
        while let Ok(count @ 1..) = writing.write(next).await {
            taken += count;
            next = if count < next.len() { &next[count..] } else { &more };
        }
    };
    tokio::time::timeout(PATIENCE, sending).await.expect("it reads for ever");
    told.await.unwrap();
    taken
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    let (_kept, folder) = folder();
    let lifetime = Duration::from_secs(1);
    let rig = Rig::start_bounded(&folder, &[("default", 1)], 100, lifetime, lifetime).await;
    let head = "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n";
    let long = format!("{head}content-length: 9999999999999\r\n\r\n");
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let chunk_size = format!("{chunked}1;");
    let no_post = long.replace("POST", "GET");
    let elsewhere = long.replace("pre-reboot", "other");
    for (name, begin, more) in [
        ("body", long.as_str(), "x"),
        ("body to another method", &no_post, "x"),
        ("body to another path", &elsewhere, "x"),
        ("chunks", &chunked, "4\r\nabcd\r\n"),
        ("chunk size", &chunk_size, "extension=x;"),
        ("headers", head, "x-a: b\r\n"),
        ("one header", &format!("{head}x-a: "), "b"),
        ("path", "POST /", "a"),
        ("method", "", "P"),
        ("empty lines", "", "\r\n"),
        ("requests", "", "GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"),
    ] {
        let taken = flood(&rig, begin.as_bytes(), more.as_bytes()).await;
        assert!(taken < TAKEN_BYTES_MAX, "{name}: {taken} bytes were taken");
    }
    assert!(rig.desk.view().slots.groups.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn of_requests_that_wait_for_no_answer_none_counts_behind_a_refusal() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 9)]).await;
    let request = |(id, group): (usize, &str)| {
        let body = format!(r#"{{"client_params":{{"id":"n{id}","group":"{group}"}}}}"#);
        format!(
            "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let groups = ["default", "default", "typo", "default", "default"];
    let all: String = (0..).zip(groups).map(request).collect();
    let answer = String::from_utf8(exchange(&rig, all.as_bytes()).await).unwrap();
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|text| &text[..3]).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
    let view = rig.desk.view();
    let ids: Vec<&str> =
        view.slots.groups["default"].holders.iter().map(|holder| holder.id.as_str()).collect();
    assert_eq!(ids, ["n0", "n1"]);
    rig.stop().await;
}

#[tokio::test]
async fn hundreds_that_say_nothing_keep_nobody_out() {
    let (_kept, folder) = folder();
    let (lifetime, head_within) = (Duration::from_secs(3600), Duration::from_millis(200));
    let rig = Rig::start_bounded(&folder, &[("default", 1)], 64, lifetime, head_within).await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"POST /v1/pre-reboot HTTP/1.1\r\nx:").await;
        }
        silent.push(stream);
    }
    let served = tokio::time::timeout(PATIENCE, rig.post("pre-reboot", "", "default", "n1")).await;
    assert_eq!(served.expect("it was kept out").word(), "200 granted");
    rig.stop().await;
}

/// Bodies from right to hopeless.
fn body() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        4 => Just("\"default\"".to_owned()),
        4 => "\"n[0-9]\"",
        1 => "\"\\PC{0,12}\"",
        1 => (0..6000_usize).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
        1 => Just("\"a\\u0000\\u001b[2J\\n\"".to_owned()),
        1 => Just("\"\\ud800\"".to_owned()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
        1 => Just("null".to_owned()),
        1 => Just("[".repeat(3000)),
        1 => Just("{\"id\":\"n1\",\"group\":\"default\"}".to_owned()),
    ];
    prop_oneof![
        6 => (value.clone(), value).prop_map(|(id, group)| {
            format!("{{\"client_params\":{{\"id\":{id},\"group\":{group}}}}}")
        }),
        1 => "\\PC{0,60}",
        1 => "(\\{|\\}|\\[|\\]|\"id\"|:|,|\"client_params\"|1|null| ){0,20}",
    ]
}

fn request() -> impl Strategy<Value = (String, String)> {
    let line = prop_oneof![
        4 => Just("POST /v1/pre-reboot HTTP/1.1".to_owned()),
        1 => Just("POST /v1/steady-state HTTP/1.0".to_owned()),
        1 => "(GET|PUT|POST|PRI|\\PC{0,4}) [/*]?(v1/pre-reboot|\\PC{0,10}) HTTP/[0-9.]{0,4}",
    ];
    let header = prop_oneof![
        6 => Just("fleet-lock-protocol: true".to_owned()),
        1 => "fleet-lock-protocol: ?\\PC{0,8}",
        1 => "lockkeeper-(attempt|boot-id|node): ?\\PC{0,70}",
        1 => "lockkeeper-attempt: [0-9a-f]{8}-[0-9]{1,12}",
        1 => "content-length: [0-9-]{1,20}",
        1 => "transfer-encoding: \\PC{0,12}",
        1 => "expect: 100-continue|upgrade: h2c|connection: keep-alive",
        1 => "\\PC{0,20}:\\PC{0,20}",
    ];
    (line, proptest::collection::vec(header, 0..5), body()).prop_map(|(line, headers, body)| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        (format!("{line}\r\nhost: h\r\n{headers}content-length: {length}\r\n\r\n{body}"), body)
    })
}

fn unlock() -> Ask {
    let (group, id, claim) = (String::new(), String::new(), Claim::default());
    Ask { group, id, operation: Operation::SteadyState, claim }
}

#[test]
fn any_request_is_answered_and_only_one_that_asks_gets_a_slot() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_kept, folder) = folder();
    let rig = runtime.block_on(Rig::start(&folder, &[("default", 3)]));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let granted = std::cell::Cell::new(0);
    let asked = TestRunner::new(config).run(&request(), |(request, body)| {
        let before = rig.desk.view().slots.clone();
        let answer = runtime.block_on(exchange(&rig, request.as_bytes()));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        // Behind all that was asked: a connection may be dropped while its slot is written.
        let last = Ask { group: "none".into(), id: "last".into(), ..unlock() };
        runtime.block_on(rig.desk.ask(last)).unwrap();
        let after = rig.desk.view().slots.clone();
        if before != after {
            prop_assert!(request.starts_with("POST "));
            prop_assert!(request.contains("fleet-lock-protocol: true\r\n"));
            let group = parse_request(body.as_bytes()).map(|params| params.group);
            prop_assert_eq!(group, Ok("default".to_owned()));
            granted.set(granted.get() + 1);
        }
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        let printable = |c: char| c == '\r' || c == '\n' || !c.is_control();
        prop_assert!(answer.chars().all(printable) && !head.contains("500"), "{answer:?}");
        Ok(())
    });
    asked.unwrap();
    assert!(granted.get() > 0, "the requests are all hopeless");
    runtime.block_on(async {
        assert_eq!(rig.raw("GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await.status, 200);
        rig.stop().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_of_a_body_can_be_shown(body in body()) {
        if let Ok(params) = parse_request(body.as_bytes()) {
            let shown = format!("{}{}", params.id, params.group);
            prop_assert!(!shown.chars().any(char::is_control), "{shown:?}");
            prop_assert!(shown.len() <= 512);
        }
    }
}

#[tokio::test]
async fn no_id_forges_a_metric() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 9)]).await;
    for id in [r#"a\"} 1"#, r"\\", r#"\\\""#, "n{}=,#", "é\u{202e}x"] {
        assert_eq!(rig.post("pre-reboot", "", "default", id).await.word(), "200 granted", "{id}");
    }
    let answer = rig.raw("GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let held = "lockkeeper_coordinator_held_since_seconds{group=\"default\",id=\"";
    let lines: Vec<&str> = answer.body.lines().filter(|line| line.starts_with(held)).collect();
    assert_eq!(lines.len(), 5, "{}", answer.body);
    for line in lines {
        let (id, rest) = line[held.len()..].rsplit_once("\"} ").unwrap();
        assert!(rest.parse::<u64>().is_ok(), "{line}");
        // Every quote within the label is escaped, and so is every backslash.
        let bare = id.replace("\\\\", "").replace("\\\"", "");
        assert!(!bare.contains(['"', '\\']), "{line}");
    }
    rig.stop().await;
}
