//! Whatever a slot server says: only a whole 200 is a grant, and no server fills the memory or
//! keeps the client for ever.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::tests::{Manner, client, read_request, server, settings, word};
use super::*;

/// What the sockets of both sides hold, the client's bounds and room to spare.
const TAKEN_BYTES_MAX: usize = 32 << 20;

/// A server that says `begin`, then `more` for ever; ends with how many bytes it got rid of.
async fn flood(begin: &'static [u8], more: &[u8]) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    // In pieces of some size, or the test takes long.
    let more = more.repeat(1 + 60_000 / more.len());
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let mut taken = 0;
        let mut next: &[u8] = begin;
        while let Ok(count @ 1..) = stream.write(next).await {
            taken += count;
            next = if count < next.len() { &next[count..] } else { &more };
        }
        taken
    });
    (base, task)
}

#[tokio::test]
async fn a_flood_is_cut_off() {
    let cases: [(&str, &'static [u8], &[u8]); 7] = [
        ("body", b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        ("long body", b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999999\r\n\r\n", b"x"),
        ("chunks", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"),
        ("headers", b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
        ("one header", b"HTTP/1.1 200 OK\r\nx-a: ", b"b"),
        ("status line", b"HTTP/1.1 200 ", b"O"),
        ("chunk size", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"extension=x;"),
    ];
    for (name, begin, more) in cases {
        let (base, task) = flood(begin, more).await;
        let answer_timeout = Duration::from_secs(60);
        let client = client(&SlotServer { answer_timeout, ..settings(base) });
        let answer = word(&client.request().await);
        assert!(["lost too-large", "lost not-an-answer"].contains(&&*answer), "{name}: {answer}");
        let taken = task.await.unwrap();
        assert!(taken < TAKEN_BYTES_MAX, "{name}: {taken} bytes were taken");
    }
}

/// Preliminary answers and trailers say nothing, so they may come until the time is over.
#[tokio::test]
async fn an_answer_that_never_begins_or_ends_is_given_up_in_time() {
    let cases: [(&str, &'static [u8], &[u8]); 3] = [
        ("continue", b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        ("hints", b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
        (
            "trailers",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n0\r\n",
            b"x: y\r\n",
        ),
    ];
    for (name, begin, more) in cases {
        let (base, task) = flood(begin, more).await;
        let answer_timeout = Duration::from_secs(1);
        let client = client(&SlotServer { answer_timeout, ..settings(base) });
        let asked = tokio::time::timeout(Duration::from_secs(60), client.request()).await;
        let answer = word(&asked.expect("it is waited for without end"));
        assert!(["lost timeout", "lost not-an-answer"].contains(&&*answer), "{name}: {answer}");
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_body_byte_by_byte_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            // Sleeps: it is slow on purpose.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let answer_timeout = Duration::from_millis(500);
    let client = client(&SlotServer { answer_timeout, ..settings(base) });
    assert_eq!(word(&client.request().await), "lost timeout");
    task.await.unwrap();
}

#[tokio::test]
async fn what_speaks_no_tls_where_tls_is_spoken_grants_nothing() {
    let hello = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
    let record = [&[0x16, 3, 3, 0x40, 0][..], &[0xff; 0x4000]].concat();
    for says in [hello, record, vec![0x15, 3, 3, 0, 2, 2, 40], Vec::new()] {
        let (base, _task) = server(Manner::Says(says)).await;
        let base = base.replace("http://", "https://");
        let answer = client(&settings(base)).request().await;
        assert!(matches!(answer, SlotAnswer::Failed { .. }), "{answer:?}");
    }
}

/// Statuses, most of them near those that mean something.
fn status() -> impl Strategy<Value = u16> {
    prop_oneof![2 => 199..210_u16, 2 => 299..600_u16, 1 => any::<u16>()]
}

/// Bytes of an answer, from right to hopeless.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just("HTTP/1.1 200 OK".to_owned()),
        2 => status().prop_map(|status| format!("HTTP/1.1 {status} Word")),
        1 => "HTTP/[0-9].[0-9] [0-9]{0,4} \\PC{0,8}",
        1 => "(ICY|http/1.1|HTTP/1.1  |HTTP/1.1\t|\\PC{0,6}) ?200( OK)?",
    ];
    let header = prop_oneof![
        "content-length: ?-?[0-9]{0,25}",
        (0..40_usize).prop_map(|length| format!("content-length: {length}")),
        Just("transfer-encoding: chunked".to_owned()),
        Just("transfer-encoding: gzip, chunked".to_owned()),
        Just("connection: upgrade\r\nupgrade: h2c".to_owned()),
        "location: http://127\\.0\\.0\\.1:1/[a-z]{0,4}",
        "retry-after: \\PC{0,30}",
        "[a-z-]{0,8}[: ]{0,2}\\PC{0,20}",
    ];
    let body = prop_oneof![
        2 => Just(Vec::new()),
        2 => "(\\PC|\r\n|0\r\n\r\n|[0-9a-f]\r\n){0,12}".prop_map(String::into_bytes),
        1 => "\\{\"kind\":\"?\\PC{0,8}\"?,\"value\":\"?\\PC{0,8}\"?\\}?".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..64),
    ];
    let end = prop_oneof![5 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("")];
    let headers = proptest::collection::vec(header, 0..4);
    let cut = proptest::option::weighted(0.2, any::<proptest::sample::Index>());
    (line, headers, end, body, cut).prop_map(|(line, headers, end, body, cut)| {
        let mut bytes = line.into_bytes();
        for header in headers {
            bytes.extend(end.as_bytes());
            bytes.extend(header.as_bytes());
        }
        bytes.extend(end.repeat(2).as_bytes());
        bytes.extend(body);
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len().max(1)));
        }
        bytes
    })
}

/// Whether a sentence may go into a status line, a label or a journal entry.
fn is_plain(text: &str) -> bool {
    text.chars().count() <= 600 && !text.chars().any(char::is_control)
}

fn check(answer: &SlotAnswer, bytes: &[u8]) -> Result<(), TestCaseError> {
    let (kind, text) = match answer {
        SlotAnswer::Granted => {
            let whole = bytes.starts_with(b"HTTP/1.1 200") || bytes.starts_with(b"HTTP/1.0 200");
            prop_assert!(whole, "granted by {:?}", String::from_utf8_lossy(bytes));
            return Ok(());
        }
        SlotAnswer::Pending { value, .. } => ("pending", value),
        SlotAnswer::Denied { kind, value, .. } => (kind.as_str(), value),
        SlotAnswer::Failed { kind, error, .. } => (kind.as_str(), error),
    };
    prop_assert!(kind.len() <= 64 && !kind.is_empty());
    prop_assert!(is_plain(text), "{text:?}");
    Ok(())
}

#[test]
fn only_a_whole_200_of_many_answers_is_a_grant() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let granted = std::cell::Cell::new(0);
    let asked = TestRunner::new(config).run(&answer(), |bytes| {
        let answer = runtime.block_on(async {
            let (base, task) = server(Manner::Says(bytes.clone())).await;
            let answer = client(&settings(base)).request().await;
            task.await.unwrap();
            answer
        });
        granted.set(granted.get() + usize::from(answer == SlotAnswer::Granted));
        check(&answer, &bytes)
    });
    asked.unwrap();
    assert!(granted.get() > 0, "the answers are all hopeless");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_is_understood_or_said_to_be_none(
        status in status(),
        retry_after in proptest::option::of("\\PC{0,40}"),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let now = clock::now().wall;
        for status in [status, 200] {
            let answer = read_answer(status, retry_after.as_deref(), &body, now);
            let granted = answer == SlotAnswer::Granted;
            prop_assert!(!granted || status == 200);
            check(&answer, b"HTTP/1.1 200")?;
            let released = read_release(status, retry_after.as_deref(), &body, now);
            prop_assert!(released != ReleaseAnswer::Released || status == 200);
        }
    }
}
