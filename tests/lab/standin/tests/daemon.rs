//! The daemon on a private bus: what it shows, when it tells, when it leaves.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod support;

use std::collections::HashMap;

use support::*;
use zbus::wire::{OwnedObjectPath, OwnedVariant, Variant};

#[tokio::test]
async fn the_daemon_is_activated_and_shows_what_is_booted() {
    let host = Host::with_bus();
    let client = host.connect().await;
    assert_eq!(client.owner().await, None);
    let deployments = client.deployments().await;
    assert_eq!(deployments.len(), 1);
    let first = &deployments[0];
    assert_eq!(text(first, "version").as_deref(), Some("40.1"));
    assert_eq!(flag(first, "booted"), Some(true));
    assert_eq!(flag(first, "staged"), Some(false));
    assert!(text(first, "container-image-reference-digest").unwrap().starts_with("sha256:"));
    assert!(!first.contains_key("base-checksum"));
    let meta =
        HashMap::<String, OwnedVariant>::try_from(first["base-commit-meta"].try_clone().unwrap())
            .unwrap();
    let size: usize = ["ostree.manifest", "ostree.container.image-config"]
        .iter()
        .map(|key| text(&meta, key).unwrap().len())
        .sum();
    assert!(size > 20_000, "metadata of {size} bytes");
    let booted = client.get(SYSROOT_PATH, SYSROOT, "Booted").await.unwrap();
    assert_eq!(OwnedObjectPath::try_from(booted).unwrap().as_str(), OS_PATH);
    assert!(client.owner().await.is_some());
}

#[tokio::test]
async fn staging_is_told_with_full_values_and_the_os_first() {
    let host = Host::with_bus();
    let client = host.connect().await;
    client.deployments().await;
    let mut signals = client.signals().await;
    host.run("standin", &["stage", "40.2"]);
    let (interface, names) = next(&mut signals, changed).await.unwrap();
    assert_eq!(interface, OS);
    assert_eq!(names, ["CachedUpdate", "DefaultDeployment"]);
    let (interface, names) = next(&mut signals, changed).await.unwrap();
    assert_eq!((interface.as_str(), names), (SYSROOT, vec!["Deployments".to_owned()]));
    let staged = &client.deployments().await[0];
    assert_eq!(text(staged, "version").as_deref(), Some("40.2"));
    assert_eq!(flag(staged, "staged"), Some(true));
    // Locked, but the key is computed from the old file only.
    assert!(!staged.contains_key("finalization-locked"));
    assert_eq!(host.systemctl(), ["start ostree-finalize-staged.service"]);
}

#[tokio::test]
async fn locking_tells_nobody() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2", "--unlocked"]);
    let client = host.connect().await;
    client.deployments().await;
    let mut signals = client.signals().await;
    host.run("ostree", &["admin", "lock-finalization"]);
    // Nor does reading everything again when nothing differs.
    client.bus.call_method(Some(NAME), SYSROOT_PATH, Some(SYSROOT), "Reload", &()).await.unwrap();
    host.run("standin", &["unstage"]);
    // The first thing heard is the unstaging.
    let (interface, names) = next(&mut signals, changed).await.unwrap();
    assert_eq!((interface.as_str(), names.len()), (OS, 2));
    assert_eq!(client.deployments().await.len(), 1);
}

#[tokio::test]
async fn a_layered_deployment_of_a_branch_shows_its_base() {
    let host = Host::with_bus();
    host.run("standin", &["stage", "40.2", "--branch", "--layered", "--legacy-lock"]);
    let client = host.connect().await;
    let staged = &client.deployments().await[0];
    assert!(text(staged, "base-checksum").is_some());
    assert_ne!(text(staged, "base-checksum"), text(staged, "checksum"));
    assert!(text(staged, "origin").is_some());
    assert!(!staged.contains_key("container-image-reference-digest"));
    assert_eq!(flag(staged, "finalization-locked"), Some(true));
}

#[tokio::test]
async fn an_idle_daemon_leaves_although_it_is_called_and_comes_back() {
    let host = Host::with_bus();
    host.run("standin", &["fault", "set", "idle-exit=1"]);
    let client = host.connect().await;
    let mut signals = client.signals().await;
    client.deployments().await;
    let first = next(&mut signals, owner_changed).await.unwrap();
    assert!(!first.is_empty());
    let calls = async {
        loop {
            // The call that hits the window may fail; that is what is played.
            let _ = client.get(SYSROOT_PATH, SYSROOT, "Path").await;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    let gone = next(&mut signals, owner_changed);
    tokio::select! {
        gone = gone => assert_eq!(gone.as_deref(), Some("")),
        () = calls => {}
    }
    let second = next(&mut signals, owner_changed);
    let (second, _) = tokio::join!(second, client.deployments());
    assert_ne!(second.unwrap(), first);
}

#[tokio::test]
async fn a_registered_client_keeps_the_daemon() {
    let host = Host::with_bus();
    host.run("standin", &["fault", "set", "idle-exit=1"]);
    let client = host.connect().await;
    let other = host.connect().await;
    let options = HashMap::from([("id", Variant::from("test"))]);
    let call = |member| {
        let (bus, options) = (other.bus.clone(), &options);
        async move {
            bus.call_method(Some(NAME), SYSROOT_PATH, Some(SYSROOT), member, options).await.unwrap()
        }
    };
    call("RegisterClient").await;
    let owner = client.owner().await.unwrap();
    let mut signals = client.signals().await;
    // Three times the idle time without a change of owner: nothing else can show that it stays.
    let three = std::time::Duration::from_secs(3);
    let left = tokio::time::timeout(three, next(&mut signals, owner_changed)).await;
    assert!(left.is_err(), "the owner changed: {left:?}");
    assert_eq!(client.owner().await.as_deref(), Some(owner.as_str()));
    // A client that vanishes holds nothing.
    let _ = other.bus.close().await;
    assert_eq!(next(&mut signals, owner_changed).await.as_deref(), Some(""));
}

#[tokio::test]
async fn slow_activation_delays_the_first_answer() {
    let host = Host::with_bus();
    host.run("standin", &["fault", "set", "slow-activation=2"]);
    let client = host.connect().await;
    let before = std::time::Instant::now();
    client.deployments().await;
    assert!(before.elapsed() >= std::time::Duration::from_secs(2));
}

#[tokio::test]
async fn a_hanging_daemon_owns_its_name_and_never_answers() {
    let host = Host::with_bus();
    let client = host.connect().await;
    client.deployments().await;
    host.run("standin", &["fault", "set", "hang"]);
    let call = client.get(SYSROOT_PATH, SYSROOT, "Path");
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), call).await.is_err());
    assert!(client.owner().await.is_some());
    host.run("standin", &["fault", "clear", "hang"]);
    client.get(SYSROOT_PATH, SYSROOT, "Path").await.unwrap();
}

#[tokio::test]
async fn wrong_types_and_shapes_are_shown_and_cleared() {
    let host = Host::with_bus();
    let client = host.connect().await;
    client.deployments().await;
    let mut signals = client.signals().await;
    host.run("standin", &["fault", "set", "wrong-types"]);
    next(&mut signals, |message| changed(message).filter(|(name, _)| name == SYSROOT)).await;
    let first = &client.deployments().await[0];
    assert_eq!(flag(first, "staged"), None);
    assert_eq!(text(first, "staged").as_deref(), Some("yes"));
    host.run("standin", &["fault", "set", "wrong-shape"]);
    next(&mut signals, |message| changed(message).filter(|(name, _)| name == SYSROOT)).await;
    let value = client.get(SYSROOT_PATH, SYSROOT, "Deployments").await.unwrap();
    assert!(String::try_from(value).is_ok());
    host.run("standin", &["fault", "clear"]);
    next(&mut signals, |message| changed(message).filter(|(name, _)| name == SYSROOT)).await;
    assert_eq!(flag(&client.deployments().await[0], "booted"), Some(true));
}

#[tokio::test]
async fn unknown_things_are_errors() {
    let host = Host::with_bus();
    let client = host.connect().await;
    let call = client.order("NoSuchThing", &()).await.unwrap_err();
    assert!(error_text(call).starts_with("org.freedesktop.DBus.Error.UnknownMethod"));
    let call = client.order("FinalizeDeployment", &42_u32).await.unwrap_err();
    assert!(error_text(call).starts_with("org.freedesktop.DBus.Error.InvalidArgs"));
    let call = client.get(SYSROOT_PATH, SYSROOT, "Nothing").await.unwrap_err();
    assert!(error_text(call).starts_with("org.freedesktop.DBus.Error.InvalidArgs"));
}
