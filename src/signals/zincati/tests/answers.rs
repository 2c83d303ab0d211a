//! What is no call of this host's Zincati is refused, and the heart does not hear of it.

use std::fs;
use std::time::Duration;

use tokio::net::TcpListener;

use super::super::Bounds;
use super::rig::{ID, Rig, bounds, free_address, request};
use crate::lifecycle::Event;

#[tokio::test]
async fn what_is_no_call_is_refused() {
    let mut rig = Rig::start().await;
    let good = request("pre-reboot", ID, "default");
    let long = "x".repeat(5000);
    let other = "27e3ac02af3946af995b9940e18b0cce";
    let cases = [
        (good.replace("POST", "GET"), "405 method_not_allowed"),
        (good.replace("POST", "PUT"), "405 method_not_allowed"),
        (good.replace("fleet-lock-protocol: true\r\n", ""), "400 missing_header"),
        (good.replace("protocol: true", "protocol: false"), "400 missing_header"),
        (good.replace("protocol: true", "protocol: True"), "400 missing_header"),
        (good.replace("client_params", "client_param5"), "400 invalid_body"),
        (good.replace("\"group\"", "\"gruppe\""), "400 invalid_body"),
        (request("pre-reboot", "", "default"), "400 invalid_id"),
        (request("pre-reboot", ID, ""), "400 invalid_group"),
        (request("pre-reboot", ID, "a_b"), "400 invalid_group"),
        (request("pre-reboot", &long, "default"), "413 body_too_large"),
        (request("pre-reboot", other, "default"), "403 other_id"),
        (request("pre-reboot", &ID.to_uppercase(), "default"), "403 other_id"),
        (request("steady-state", other, "default"), "403 other_id"),
        (request("pre-reboot", ID, "Default"), "403 other_group"),
        (good.replace("/v1/", "/fl/v1/"), "404 not_found"),
        (good.replace("/v1/", "//v1/"), "404 not_found"),
        (request("pre-reboot/", ID, "default"), "404 not_found"),
        (good.replace("/v1/pre-reboot", "/"), "404 not_found"),
    ];
    for (request, expected) in cases {
        let answer = rig.ask(&request).await;
        let shown: String = request.chars().take(200).collect();
        assert_eq!(answer.word(), expected, "{shown}");
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
    }
    assert!(!rig.desk.grant().await && rig.heard_all());
    rig.stop().await;
}

#[tokio::test]
async fn another_ones_call_is_told_both_names_and_what_to_do() {
    let rig = Rig::start().await;
    let fragment = rig.host("etc/zincati/config.d/50-a.toml");
    let own = "27e3ac02af3946af995b9940e18b0cce";
    fs::write(&fragment, format!("[identity]\nnode_uuid = \"{own}\"\ngroup = \"Workers\"\n"))
        .unwrap();
    let answer = rig.ask(&request("pre-reboot", ID, "Workers")).await;
    assert_eq!(answer.word(), "403 other_id");
    for part in [ID, own, "identity.node_uuid", "restart zincati.service"] {
        assert!(answer.value().contains(part), "{part}: {}", answer.value());
    }
    let answer = rig.ask(&request("pre-reboot", own, "default")).await;
    assert_eq!(answer.word(), "403 other_group");
    for part in ["default", "Workers", "identity.group", "restart zincati.service"] {
        assert!(answer.value().contains(part), "{part}: {}", answer.value());
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_host_that_does_not_know_who_it_is_grants_nothing() {
    let mut rig = Rig::start().await;
    fs::write(rig.host("etc/zincati/config.d/50-a.toml"), "[identity").unwrap();
    let answer = rig.ask(&request("pre-reboot", ID, "default")).await;
    assert_eq!(answer.word(), "503 identity_unknown");
    assert!(answer.value().contains("50-a.toml"), "{}", answer.value());
    fs::remove_file(rig.host("etc/zincati/config.d/50-a.toml")).unwrap();
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, Event::ZincatiWaits(true), "it is looked at anew each time");
    drop(call);
    rig.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let body_within = Duration::from_millis(50);
    let rig = Rig::start_within(Bounds { body_within, ..bounds() }).await;
    let whole = request("pre-reboot", ID, "default");
    let answer = rig.ask(&whole[..whole.len() - 1]).await;
    assert_eq!(answer.word(), "408 request_timeout");
    rig.stop().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_tried_again() {
    let address = free_address().await;
    let taken = TcpListener::bind(address).await.unwrap();
    let mut rig = Rig::start_unheard(address, bounds(), |callers| callers);
    // Its first try has failed when this one, behind it, is through.
    let call = rig.call("pre-reboot").await;
    let (foreign, _) = taken.accept().await.unwrap();
    drop((call, foreign, taken));
    rig.until_it_listens().await;
    let call = rig.call("pre-reboot").await;
    assert_eq!(rig.event().await, Event::ZincatiWaits(true));
    drop(call);
    rig.stop().await;
}
