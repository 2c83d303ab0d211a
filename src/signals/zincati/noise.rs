//! Whatever comes over a connection: it is answered or dropped, never with a 2xx, and the heart hears
//! of nothing but calls.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Bounds;
use super::tests::rig::{ID, PATIENCE, Rig, bounds, request};
use crate::fleetlock::parse_request;
use crate::lifecycle::Event;

/// What the sockets of both sides hold, the server's bounds and room to spare.
const TAKEN_BYTES_MAX: usize = 32 << 20;

/// Sends `begin`, then `more` until the server hangs up; how many bytes it took.
async fn flood(rig: &Rig, begin: &[u8], more: &[u8]) -> usize {
    let (mut reading, mut writing) = TcpStream::connect(rig.address).await.unwrap().into_split();
    let more = more.repeat(1 + 60_000 / more.len());
    let told = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = reading.read_to_end(&mut answer).await;
    });
    let (mut taken, mut next) = (0, begin);
    let sending = async {
        while let Ok(count @ 1..) = writing.write(next).await {
            taken += count;
            next = if count < next.len() { &next[count..] } else { &more };
        }
    };
    timeout(PATIENCE, sending).await.expect("it reads for ever");
    told.await.unwrap();
    taken
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    let short = Duration::from_millis(300);
    let rig = Rig::start_within(Bounds {
        head_within: short,
        body_within: short,
        hold: short,
        ..bounds()
    })
    .await;
    let head = "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n";
    let long = format!("{head}content-length: 9999999999999\r\n\r\n");
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    for (name, begin, more) in [
        ("body", long.as_str(), "x"),
        ("body to another method", &long.replace("POST", "GET"), "x"),
        ("chunks", &chunked, "4\r\nabcd\r\n"),
        ("headers", head, "x-a: b\r\n"),
        ("one header", &format!("{head}x-a: "), "b"),
        ("path", "POST /", "a"),
        ("empty lines", "", "\r\n"),
        ("calls", "", &request("pre-reboot", ID, "default")),
    ] {
        let taken = flood(&rig, begin.as_bytes(), more.as_bytes()).await;
        assert!(taken < TAKEN_BYTES_MAX, "{name}: {taken} bytes were taken");
    }
    rig.stop().await;
}

#[tokio::test]
async fn those_that_say_nothing_keep_nobody_out() {
    let head_within = Duration::from_millis(100);
    let mut rig = Rig::start_within(Bounds { head_within, ..bounds() }).await;
    let mut silent = Vec::new();
    for number in 0..150 {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"POST /v1/pre-reboot HTTP/1.1\r\nx:").await;
        }
        silent.push(stream);
    }
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, Event::ZincatiWaits(true));
    drop((call, silent));
    rig.stop().await;
}

#[tokio::test]
async fn who_comes_without_a_pause_is_taken_in_at_a_pace() {
    let pace = Duration::from_millis(20);
    let rig = Rig::start_within(Bounds { pace, ..bounds() }).await;
    let begun = tokio::time::Instant::now();
    let calls = (0..10).map(|_| rig.ask("GET / HTTP/1.1\r\nhost: h\r\n\r\n"));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.word(), "404 not_found");
    }
    assert!(begun.elapsed() >= 9 * pace, "{:?}", begun.elapsed());
    rig.stop().await;
}

fn body() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        6 => Just(format!("\"{ID}\"")),
        6 => Just("\"default\"".to_owned()),
        1 => "\"\\PC{0,12}\"",
        1 => (0..6000_usize).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
        1 => Just("\"a\\u0000\\u001b[2J\\n\"".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("[".repeat(3000)),
    ];
    prop_oneof![
        2 => Just(format!("{{\"client_params\":{{\"id\":\"{ID}\",\"group\":\"default\"}}}}")),
        6 => (value.clone(), value).prop_map(|(id, group)| {
            format!("{{\"client_params\":{{\"id\":{id},\"group\":{group}}}}}")
        }),
        1 => "\\PC{0,60}",
        1 => "(\\{|\\}|\\[|\\]|\"id\"|:|,|\"client_params\"|1|null| ){0,20}",
    ]
}

fn any_request() -> impl Strategy<Value = (String, String)> {
    let line = prop_oneof![
        6 => Just("POST /v1/pre-reboot HTTP/1.1".to_owned()),
        1 => Just("POST /v1/pre-reboot HTTP/1.0".to_owned()),
        1 => "(GET|PUT|POST|PRI|\\PC{0,4}) [/*]?(v1/pre-reboot|\\PC{0,10}) HTTP/[0-9.]{0,4}",
    ];
    let header = prop_oneof![
        8 => Just("fleet-lock-protocol: true".to_owned()),
        1 => "fleet-lock-protocol: ?\\PC{0,8}",
        1 => "content-length: [0-9-]{1,20}",
        1 => "transfer-encoding: \\PC{0,12}",
        1 => "expect: 100-continue|upgrade: h2c|connection: keep-alive",
        1 => "\\PC{0,20}:\\PC{0,20}",
    ];
    (line, proptest::collection::vec(header, 0..4), body()).prop_map(|(line, headers, body)| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        (format!("{line}\r\nhost: h\r\n{headers}content-length: {length}\r\n\r\n{body}"), body)
    })
}

#[test]
fn any_request_is_refused_or_waits_for_its_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let short = Duration::from_millis(20);
    let bounds = Bounds { hold: short, body_within: short, head_within: short, ..bounds() };
    let mut rig = runtime.block_on(Rig::start_within(bounds));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let mut called = 0;
    let rig = std::cell::RefCell::new(&mut rig);
    let called_in = std::cell::RefCell::new(&mut called);
    let asked = TestRunner::new(config).run(&any_request(), |(request, body)| {
        let mut rig = rig.borrow_mut();
        let answer = runtime.block_on(async {
            rig.desk.say("held", "for the test");
            rig.ask(&request).await
        });
        let answer = format!("{}\r\n\r\n{}", answer.head, answer.body);
        let waited = answer.contains("\"kind\":\"held\"");
        let is_call = request.starts_with("POST /v1/pre-reboot ")
            && request.contains("fleet-lock-protocol: true\r\n")
            && parse_request(body.as_bytes())
                .is_ok_and(|params| params.id == ID && params.group == "default");
        prop_assert!(is_call || !waited, "{answer:?}");
        let status = |class: &str| {
            answer.contains(&format!("HTTP/1.1 {class}"))
                || answer.contains(&format!("HTTP/1.0 {class}"))
        };
        prop_assert!(!status("2") && !status("3") && !status("500"), "{answer:?}");
        let printable = |c: char| c == '\r' || c == '\n' || !c.is_control();
        prop_assert!(answer.chars().all(printable), "{answer:?}");
        while let Ok(event) = rig.events.try_recv() {
            prop_assert!(matches!(event, Event::ZincatiWaits(_)), "{event:?}");
        }
        **called_in.borrow_mut() += usize::from(waited);
        Ok(())
    });
    asked.unwrap();
    assert!(called > 0, "the requests are all hopeless");
    runtime.block_on(async {
        let mut rig = rig;
        let rig = rig.get_mut();
        rig.events.close();
    });
}
