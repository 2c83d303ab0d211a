//! Transactions and FinalizeDeployment: who waits for what, in which order, with which words.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use support::*;

/// A logind that only knows its inhibitors.
struct Logind {
    inhibitors: Vec<(String, String, String, String, u32, u32)>,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    fn list_inhibitors(&self) -> Vec<(String, String, String, String, u32, u32)> {
        self.inhibitors.clone()
    }
}

async fn logind(host: &Host, inhibitors: &[(&str, &str, &str, &str)]) -> zbus::Connection {
    let inhibitors = inhibitors
        .iter()
        .map(|(what, who, why, mode)| {
            (what.to_string(), who.to_string(), why.to_string(), mode.to_string(), 0, 1)
        })
        .collect();
    zbus::connection::Builder::address(host.address().as_str())
        .serve_at("/org/freedesktop/login1", Logind { inhibitors })
        .name("org.freedesktop.login1")
        .build()
        .await
        .unwrap()
}

fn reference(host: &Host) -> String {
    host.status()["deployments"][0]["reference"].as_str().unwrap().to_owned()
}

/// A call as it is made when nothing is in its way.
fn good(host: &Host) -> Options {
    options(Some(&reference(host)), &["allow-unlocked"])
}

#[tokio::test]
async fn the_checks_come_in_their_order_with_their_words() {
    let host = Host::with_bus();
    let client = host.connect().await;
    let wrong = options(Some("sha256:0"), &[]);
    let (done, text) = client.finalized(&wrong).await;
    assert_eq!((done, text.as_str()), (false, "No pending staged deployment found"));

    host.run("standin", &["stage", "40.2", "--unlocked"]);
    let found = reference(&host);
    assert!(found.starts_with("sha256:"));
    let blocker = [
        ("sleep:shutdown", "dnf", "an upgrade", "block"),
        ("shutdown", "other", "too", "block"),
        ("shutdown", "kubelet", "drain", "delay"),
        ("shutdown", "weak", "weak", "block-weak"),
        ("idle", "film", "watching", "block"),
    ];
    let held = logind(&host, &blocker).await;

    let (done, text) = client.finalized(&options(None, &[])).await;
    assert_eq!((done, text.as_str()), (false, "Missing expected checksum"));
    let (done, text) = client.finalized(&wrong).await;
    let expected = format!("Expected staged base checksum sha256:0, but found {found}");
    assert_eq!((done, text), (false, expected));
    let (done, text) = client.finalized(&options(Some(&found), &[])).await;
    assert!(!done);
    assert_eq!(
        text,
        "Reboot blocked by a systemd inhibitor lock in `block` mode\nHeld by: dnf\n\
         Reason: an upgrade\nand 1 other blocking inhibitor lock(s)\n\
         Use `systemd-inhibit --list` to see details"
    );
    held.close().await.unwrap();

    let _free = logind(&host, &blocker[2..]).await;
    let (done, text) = client.finalized(&options(Some(&found), &[])).await;
    assert_eq!((done, text.as_str()), (false, "Staged deployment already unlocked"));
    assert_eq!(host.systemctl(), ["start ostree-finalize-staged.service"]);

    let (done, text) = client.finalized(&good(&host)).await;
    assert_eq!((done, text.as_str()), (true, ""));
}

#[tokio::test]
async fn success_unlocks_reboots_and_refuses_what_comes_after() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    assert_eq!(host.status()["deployments"][0]["locked"], true);
    let client = host.connect().await;
    let (done, text) = client.finalized(&options(Some(&reference(&host)), &[])).await;
    assert_eq!((done, text.as_str()), (true, ""));
    assert_eq!(host.status()["deployments"][0]["locked"], false);
    let deadline = std::time::Instant::now() + PATIENCE;
    while host.systemctl().last().map(String::as_str) != Some("reboot") {
        assert!(std::time::Instant::now() < deadline, "no reboot was queued");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = client.finalize(&good(&host)).await.unwrap_err();
    assert!(error_text(refused).ends_with("Code0: Reboot initiated, cannot start new transaction"));
}

#[tokio::test]
async fn references_are_digest_then_base_then_commit() {
    for (arguments, key) in [
        (["--container", "--layered"].as_slice(), "reference"),
        (["--branch", "--layered"].as_slice(), "base-checksum"),
        (["--branch"].as_slice(), "checksum"),
    ] {
        let host = Host::with_bus();
        let mut all = vec!["stage", "40.2"];
        all.extend(arguments);
        host.run("standin", &all);
        let wanted = host.status()["deployments"][0][key].as_str().unwrap().to_owned();
        let client = host.connect().await;
        let (done, text) = client.finalized(&options(Some(&wanted), &[])).await;
        assert!(done, "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn older_versions_compare_the_base_commit_of_containers() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    host.run("standin", &["fault", "set", "old-reference"]);
    let base = host.status()["deployments"][0]["base-checksum"].as_str().unwrap().to_owned();
    let client = host.connect().await;
    let (done, text) = client.finalized(&good(&host)).await;
    assert!(!done && text.ends_with(&format!("but found {base}")), "{text}");
    assert!(client.finalized(&options(Some(&base), &[])).await.0);
}

#[tokio::test]
async fn a_transaction_waits_for_start_blocks_others_and_is_joined_by_the_same() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let client = host.connect().await;
    let options = good(&host);
    let address = client.finalize(&options).await.unwrap();
    let socket = host.root("run/rpm-ostree-transaction.sock");
    assert_eq!(address, format!("unix:path={}", socket.display()));
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(client.active_method().await, "FinalizeDeployment");
    let mut peer = Peer::connect(&address).await;

    let other = host.connect().await;
    let busy = error_text(other.order("Cleanup", &vec!["pending-deploy"]).await.unwrap_err());
    assert!(busy.contains("Code26: Transaction in progress: finalize-deployment"), "{busy}");
    assert_eq!(other.finalize(&options).await.unwrap(), address);
    let mut joined = Peer::connect(&address).await;

    // Nobody has called Start yet, so nothing has happened.
    assert_eq!(host.status()["deployments"][0]["locked"], true);
    assert!(peer.start().await.unwrap());
    assert!(!joined.start().await.unwrap());
    assert_eq!(peer.finished().await, Some((true, String::new())));
    assert_eq!(joined.finished().await, Some((true, String::new())));
    // A late Start is told again.
    let mut late = Peer::connect(&address).await;
    assert!(!late.start().await.unwrap());
    assert_eq!(late.finished().await, Some((true, String::new())));
}

#[tokio::test]
async fn the_end_is_told_in_order_and_the_transaction_goes_with_its_last_peer() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let client = host.connect().await;
    client.deployments().await;
    let mut signals = client.signals().await;
    let address = client.order("Cleanup", &vec!["pending-deploy"]).await.unwrap();
    let active = |message: &zbus::message::Message| {
        changed(message).filter(|(_, names)| names.contains(&"ActiveTransaction".to_owned()))
    };
    next(&mut signals, active).await.unwrap();
    let mut peer = Peer::connect(&address).await;
    peer.start().await.unwrap();
    assert_eq!(peer.finished().await, Some((true, String::new())));
    // What was told on the bus before Finished is already there.
    let (interface, _) = next(&mut signals, changed).await.unwrap();
    assert_eq!(interface, OS);
    assert_eq!(client.active_method().await, "Cleanup");
    drop(peer);
    next(&mut signals, active).await.unwrap();
    assert_eq!(client.active_method().await, "");
    assert!(!exists(&host.root("run/rpm-ostree-transaction.sock")));
}

#[tokio::test]
async fn a_caller_that_vanishes_before_start_cancels() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let client = host.connect().await;
    let other = host.connect().await;
    let address = other.finalize(&good(&host)).await.unwrap();
    let mut peer = Peer::connect(&address).await;
    let mut signals = client.signals().await;
    assert_eq!(client.active_method().await, "FinalizeDeployment");
    other.bus.close().await.unwrap();
    next(&mut signals, |message| changed(message).filter(|(name, _)| name == SYSROOT)).await;
    assert_eq!(client.active_method().await, "");
    assert_eq!(peer.finished().await, None);
    assert!(client.finalized(&good(&host)).await.0);
}

#[tokio::test]
async fn the_command_line_waits_for_a_transaction() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let client = host.connect().await;
    let address = client.order("Cleanup", &Vec::<&str>::new()).await.unwrap();
    let mut staging = std::process::Command::new(host.path("bin/standin"))
        .args(["stage", "40.3"])
        .env("STANDIN_ROOT", host.path("root"))
        .env("STANDIN_SYSTEMCTL", host.path("systemctl"))
        .spawn()
        .unwrap();
    let mut peer = Peer::connect(&address).await;
    assert!(staging.try_wait().unwrap().is_none());
    assert_eq!(host.versions(), ["+40.2", "*40.1"]);
    peer.start().await.unwrap();
    peer.finished().await.unwrap();
    assert!(staging.wait().unwrap().success());
    assert_eq!(host.versions(), ["+40.3", "*40.1"]);
}

#[tokio::test]
async fn another_holder_of_the_lock_makes_it_busy() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let lock = std::fs::File::open(host.root("ostree/lock")).unwrap();
    lock.lock().unwrap();
    let client = host.connect().await;
    let busy = error_text(client.finalize(&good(&host)).await.unwrap_err());
    assert!(busy.ends_with("Code26: System transaction in progress"), "{busy}");
    assert_eq!(client.active_method().await, "");
    lock.unlock().unwrap();
    assert!(client.finalized(&good(&host)).await.0);
}

#[tokio::test]
async fn a_peer_that_leaves_after_start_does_not_stop_it() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    host.run("standin", &["fault", "set", "slow-transaction=1"]);
    let client = host.connect().await;
    let mut signals = client.signals().await;
    let peer = Peer::connect(&client.finalize(&good(&host)).await.unwrap()).await;
    assert!(peer.start().await.unwrap());
    drop(peer);
    assert_eq!(client.active_method().await, "FinalizeDeployment");
    while !client.active_method().await.is_empty() {
        next(&mut signals, changed).await.expect("the bus is gone");
    }
    assert_eq!(host.status()["deployments"][0]["locked"], false);
}

#[tokio::test]
async fn a_cancelled_transaction_changes_nothing() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let client = host.connect().await;
    let mut peer = Peer::connect(&client.finalize(&good(&host)).await.unwrap()).await;
    let nobody = None::<zbus::names::BusName<'_>>;
    peer.connection.call_method(nobody, "/", Some(TRANSACTION), "Cancel", &()).await.unwrap();
    peer.start().await.unwrap();
    let (done, text) = peer.finished().await.unwrap();
    assert!(!done && text.contains("Operation was cancelled"), "{text}");
    assert_eq!(host.status()["deployments"][0]["locked"], true);
}

#[tokio::test]
async fn a_lost_reply_queues_the_reboot_and_says_nothing() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2", "--fault", "lost-reply"]);
    let client = host.connect().await;
    let mut signals = client.signals().await;
    let mut peer = Peer::connect(&client.finalize(&good(&host)).await.unwrap()).await;
    peer.start().await.unwrap();
    assert_eq!(peer.finished().await, None);
    next(&mut signals, |message| owner_changed(message).filter(String::is_empty)).await.unwrap();
    assert_eq!(host.systemctl().last().unwrap(), "reboot");
    assert_eq!(host.status()["deployments"][0]["locked"], false);
}

#[tokio::test]
async fn reboot_never_says_success_and_queues_nothing() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2", "--fault", "reboot-never"]);
    let client = host.connect().await;
    assert!(client.finalized(&good(&host)).await.0);
    let refused = client.finalize(&good(&host)).await.unwrap_err();
    assert!(error_text(refused).contains("Reboot initiated"));
    assert_eq!(host.systemctl(), ["start ostree-finalize-staged.service"]);
}

#[tokio::test]
async fn the_command_finalizes_over_the_bus() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2"]);
    let error = host.fail("rpm-ostree", &["finalize-deployment", "sha256:0"]);
    assert!(error.contains("Expected staged base checksum sha256:0"), "{error}");
    host.run("rpm-ostree", &["finalize-deployment", &reference(&host)]);
    assert_eq!(host.status()["deployments"][0]["locked"], false);
}
