#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::super::slots;
use super::*;
use crate::config::GroupSettings;

fn settings(folder: &Path, slots: u32) -> CoordinatorSettings {
    // Free a moment ago; the coordinator's settings know no "any port".
    let free = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let group = |name: &str, slots| GroupSettings { name: name.to_owned(), slots };
    CoordinatorSettings {
        listen: free,
        state_dir: folder.join("state"),
        run_dir: folder.join("run"),
        groups: vec![group("default", slots), group("workers", 3)],
    }
}

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

async fn start(settings: &CoordinatorSettings) -> Running {
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(settings.clone(), stop.clone()));
    // The admin socket is bound last, and before anything can be asked.
    let socket = admin::socket(&settings.run_dir);
    let reached = async {
        while UnixStream::connect(&socket).await.is_err() && !task.is_finished() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), reached).await.unwrap();
    Running { address: settings.listen, stop, task }
}

impl Running {
    async fn lock(&self, id: &str) -> String {
        let body = format!(r#"{{"client_params":{{"id":"{id}","group":"default"}}}}"#);
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
             lockkeeper-attempt: aaaaaaaa-1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap()
    }
}

fn yes(_: &str) -> anyhow::Result<bool> {
    Ok(true)
}

#[tokio::test]
async fn it_serves_lists_releases_stops_and_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1);
    let running = start(&settings).await;
    assert_eq!(running.lock("n1").await, "200");
    assert_eq!(running.lock("n2").await, "409");
    running.stop().await.unwrap();
    assert!(!admin::socket(&settings.run_dir).exists());

    let running = start(&settings).await;
    assert_eq!(running.lock("n2").await, "409");
    let table = slots::list(&settings.run_dir, false).await.unwrap();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["GROUP", "HELD", "NODE", "ID", "SINCE", "AGE", "ATTEMPT"]);
    assert_eq!(
        (lines[1][..4].to_vec(), lines[1][6]),
        (vec!["default", "1/1", "-", "n1"], "aaaaaaaa-1")
    );
    assert_eq!(lines[2], ["workers", "0/3", "-", "-", "-", "-", "-"]);

    let mut shown = String::new();
    let said_no = slots::release(&settings.run_dir, "default", "n1", |text| {
        text.clone_into(&mut shown);
        Ok(false)
    });
    assert_eq!(said_no.await.unwrap_err().to_string(), "not released");
    assert!(shown.contains("more nodes than allowed may then be down at once"), "{shown}");
    assert_eq!(running.lock("n2").await, "409");
    let released = slots::release(&settings.run_dir, "default", "n1", yes).await.unwrap();
    assert_eq!(released, "released the slot of n1 in default");
    assert_eq!(running.lock("n2").await, "200");
    let again = slots::release(&settings.run_dir, "default", "n1", yes).await.unwrap_err();
    assert!(again.to_string().contains("holds no slot of default"), "{again}");
    let typo = slots::release(&settings.run_dir, "defualt", "n1", yes).await.unwrap_err();
    assert!(typo.to_string().contains("there are: default, workers"), "{typo}");

    let json = slots::list(&settings.run_dir, true).await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["groups"][0]["holders"][0]["id"], "n2");
    assert_eq!(json["groups"][1]["slots"], 3);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_one_a_taken_address_and_a_damaged_store_are_errors_that_name_what() {
    let folder = tempfile::tempdir().unwrap();
    let first = settings(folder.path(), 1);
    let running = start(&first).await;
    let error = run(first.clone(), CancellationToken::new()).await.unwrap_err();
    assert!(format!("{error:#}").contains("state/lock: another coordinator"), "{error:#}");
    let elsewhere = tempfile::tempdir().unwrap();
    let same_address =
        CoordinatorSettings { listen: first.listen, ..settings(elsewhere.path(), 1) };
    let error = run(same_address, CancellationToken::new()).await.unwrap_err();
    assert!(format!("{error:#}").contains(&first.listen.to_string()), "{error:#}");
    let same_door =
        CoordinatorSettings { run_dir: first.run_dir.clone(), ..settings(elsewhere.path(), 1) };
    let error = run(same_door, CancellationToken::new()).await.unwrap_err();
    assert!(format!("{error:#}").contains("another coordinator answers"), "{error:#}");
    running.stop().await.unwrap();
    std::fs::write(first.state_dir.join("slots.json"), "").unwrap();
    let error = run(first, CancellationToken::new()).await.unwrap_err();
    assert!(format!("{error:#}").contains("slots.json: it ends in its head"), "{error:#}");
}

#[tokio::test]
async fn a_socket_left_over_by_a_kill_is_replaced_and_guarded() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1);
    std::fs::create_dir_all(&settings.run_dir).unwrap();
    let socket = admin::socket(&settings.run_dir);
    drop(UnixListener::bind(&socket).unwrap());
    let running = start(&settings).await;
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).await.unwrap();
    stream.write_all(b"{\"sing\":{}}\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with(r#"{"failed":"no question of ours"#), "{answer}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_request_does_not_keep_it_from_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&settings(folder.path(), 1)).await;
    let mut half = TcpStream::connect(running.address).await.unwrap();
    half.write_all(b"POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\n").await.unwrap();
    assert_eq!(running.lock("n1").await, "200");
    running.stop().await.unwrap();
    // The folder is free for the next one.
    FileStore::open(&folder.path().join("state")).unwrap();
}
