//! Only root and Zincati's user are listened to.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::super::Bounds;
use super::rig::{Answer, Call, ID, PATIENCE, Rig, bounds, request};
use crate::lifecycle::Event;

/// The kernel's table, as far as it is looked at, with one connection.
fn table(from: SocketAddr, to: SocketAddr, uid: u32) -> String {
    let port = |address: SocketAddr| format!("0100007F:{:04X}", address.port());
    format!(
        "  sl  local_address rem_address st\n   0: {} {} 01 00000000:00000000 00:00000000 00000000 \
         {uid} 0 77 1 0\n",
        port(from),
        port(to)
    )
}

/// A rig that looks into a table of ours.
async fn rig_with_table(bounds: Bounds) -> (tempfile::TempDir, PathBuf, Rig) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tcp");
    fs::write(&file, "").unwrap();
    let tables = [file.clone(), folder.path().join("tcp6")];
    let rig = Rig::start_with(bounds, |callers| callers.with_tables(tables)).await;
    (folder, file, rig)
}

/// Calls from a socket that the table shows as this user's.
async fn call_as(rig: &Rig, file: &PathBuf, uid: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    fs::write(file, table(socket.local_addr().unwrap(), rig.address, uid)).unwrap();
    let mut stream = socket.connect(rig.address).await.unwrap();
    // A stranger too many is hung up on.
    let _ = stream.write_all(request("pre-reboot", ID, "default").as_bytes()).await;
    stream
}

async fn answer_to(rig: &Rig, file: &PathBuf, uid: u32) -> Answer {
    Call(call_as(rig, file, uid).await).answer().await
}

#[tokio::test]
async fn other_users_are_refused_by_name() {
    let (_kept, file, mut rig) = rig_with_table(bounds()).await;
    fs::write(rig.host("etc/passwd"), "zincati:x:991:991::/:/sbin/nologin\n").unwrap();
    let answer = answer_to(&rig, &file, 1000).await;
    assert_eq!(answer.word(), "403 not_allowed");
    assert_eq!(answer.value(), "expected root or the user zincati (uid 991), found uid 1000");
    for uid in [0, 991] {
        let call = call_as(&rig, &file, uid).await;
        assert_eq!(rig.event().await, Event::ZincatiWaits(true), "uid {uid}");
        drop(call);
        assert_eq!(rig.event().await, Event::ZincatiWaits(false), "uid {uid}");
    }
    fs::write(rig.host("etc/passwd"), "").unwrap();
    let answer = answer_to(&rig, &file, 991).await;
    assert!(answer.value().contains("zincati (there is none)"), "{}", answer.value());
    assert!(rig.heard_all());
    rig.stop().await;
}

#[tokio::test]
async fn who_cannot_be_found_is_refused() {
    let (_kept, file, mut rig) = rig_with_table(bounds()).await;
    let answer = rig.ask(&request("pre-reboot", ID, "default")).await;
    assert_eq!(answer.word(), "403 not_allowed");
    assert!(answer.value().starts_with("who calls cannot be found out: "), "{}", answer.value());
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let answer = rig.ask(&request("pre-reboot", ID, "default")).await;
    assert!(answer.value().contains("Is a directory"), "{}", answer.value());
    assert!(rig.heard_all());
    rig.stop().await;
}

#[tokio::test]
async fn strangers_keep_nobody_out() {
    let head_within = Duration::from_secs(3600);
    let (_kept, file, mut rig) = rig_with_table(Bounds { head_within, ..bounds() }).await;
    fs::write(rig.host("etc/passwd"), "").unwrap();
    fs::write(&file, "").unwrap();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(rig.address).await.unwrap());
    }
    let call = call_as(&rig, &file, 0).await;
    let heard = tokio::time::timeout(PATIENCE, rig.event()).await.expect("it was kept out");
    assert_eq!(heard, Event::ZincatiWaits(true));
    drop((call, silent));
    rig.stop().await;
}
