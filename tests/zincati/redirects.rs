//! What Zincati takes for a grant, which is why the bridge must never answer like this.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{PATIENCE, lock_server};
use crate::zincati::client::{Client, LockError};
use crate::zincati::config;

/// Answers each connection with the next of these; gives what was asked.
async fn server(listener: TcpListener, answers: Vec<String>) -> Vec<String> {
    let mut asked = Vec::new();
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let is_whole = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
            let wanted = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            body.is_some_and(|length| length >= wanted.map_or(0, |wanted| wanted.parse().unwrap()))
        };
        while !is_whole(&bytes) {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "it hung up");
        }
        asked.push(String::from_utf8(bytes).unwrap());
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    asked
}

/// What the client makes of these answers, and what it asked.
async fn asked(path: &str, answers: &[&str]) -> (Result<(), LockError>, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("etc")).unwrap();
    std::fs::write(root.path().join("etc/machine-id"), "1c09ca98649c4c7abc779cd04c96812e\n")
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    lock_server(root.path(), &format!("http://{address}{path}"));
    let config = config::load(root.path()).unwrap();
    let client = Client::new(&config, PATIENCE).unwrap().unwrap();
    let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let server = tokio::spawn(server(listener, answers));
    let answer = tokio::time::timeout(PATIENCE, client.pre_reboot()).await.unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    (answer, asked)
}

#[tokio::test]
async fn its_request_is_the_one_that_was_seen_on_the_wire() {
    let (answer, asked) = asked("/", &["200 OK"]).await;
    assert_eq!(answer, Ok(()));
    let (head, body) = asked[0].split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body,
        "{\n  \"client_params\": {\n    \"id\": \"978a225b3d7b40e9acd7ce9b62f68444\",\n    \
         \"group\": \"default\"\n  }\n}"
    );
    assert_eq!(body.len(), 97);
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("host: ")).collect();
    lines[1..].sort_unstable();
    let length = format!("content-length: {}", body.len());
    assert_eq!(
        lines,
        ["POST /v1/pre-reboot HTTP/1.1", "accept: */*", &length, "fleet-lock-protocol: true"]
    );
}

#[tokio::test]
async fn any_2xx_and_what_lies_behind_a_redirect_is_a_grant() {
    let (answer, _) = asked("/", &["202 Accepted"]).await;
    assert_eq!(answer, Ok(()));
    let (answer, requests) = asked("/", &["302 Found\r\nlocation: /login", "200 OK"]).await;
    assert_eq!(answer, Ok(()));
    assert!(requests[1].starts_with("GET /login HTTP/1.1\r\n"), "{}", requests[1]);
    let (answer, requests) = asked("/", &["307 Temporary\r\nlocation: /other", "200 OK"]).await;
    assert_eq!(answer, Ok(()));
    assert!(requests[1].starts_with("POST /other HTTP/1.1\r\n"), "{}", requests[1]);
    assert!(requests[1].contains("client_params"), "{}", requests[1]);
    let (answer, _) = asked("/", &["423 Locked"]).await;
    assert_eq!(answer.unwrap_err().kind(), "generic_http_423");
}

#[tokio::test]
async fn a_base_without_a_slash_at_its_end_loses_its_last_part() {
    for (base, path) in [
        ("/fl/", "/fl/v1/pre-reboot"),
        ("/fl", "/v1/pre-reboot"),
        ("/a/b", "/a/v1/pre-reboot"),
        ("", "/v1/pre-reboot"),
    ] {
        let (_, requests) = asked(base, &["200 OK"]).await;
        assert!(requests[0].starts_with(&format!("POST {path} ")), "{base}: {}", requests[0]);
    }
}
