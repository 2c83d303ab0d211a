//! Sequences in which others do the right thing at the wrong time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::host::{Host, text};
use crate::lab::{lab, until};
use crate::world::World;

/// Two hosts cloned from one, with one id: the second is refused by the attempt's name while the
/// first one is down, touches nothing, and goes afterwards.
pub fn one_id_on_two_hosts_goes_down_once(world: &World) {
    let (one, two) = (world.host("n1"), world.host("n2"));
    world.cluster.pin("anchor", "n1");
    world.cluster.forbid_disruption("anchor");
    one.configure("[slot]\nid = \"twin\"\n[drain]\non_deadline = \"delete\"\ndeadline = \"5m\"\n");
    two.configure("[slot]\nid = \"twin\"\n");
    one.stage(&world.version(), &[]);
    let draining = one.comes_to("draining", 20);
    two.stage(&world.version(), &[]);
    let status = two.waits_for("slot-denied", 30);
    let told = text(&status["reason"]["text"]);
    assert!(told.contains(draining.told("ATTEMPT")), "it names whose slot it is: {told}");
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert_eq!(world.cluster.holders(), ["twin"]);
    world.let_go();
    one.ends("updated", 60);
    two.ends("updated", 120);
    assert!(!two.stages().contains(&"yielding".to_owned()));
}

/// A Zincati on this host asks another slot server: nothing is asked for until it does so no more.
pub fn zincati_that_asks_elsewhere_keeps_the_agent_from_asking(world: &World) {
    let host = world.host("n2");
    let fragment = "/etc/zincati/config.d/99-story.toml";
    host.write(
        fragment,
        "[updates]\nenabled = true\nstrategy = \"fleet_lock\"\n\
         [updates.fleet_lock]\nbase_url = \"http://192.0.2.1/\"\n",
    );
    // Ours is installed with Zincati masked.
    host.sh("systemctl unmask zincati
        printf '[Service]\\nExecStart=/bin/sleep 600\\n' >/run/systemd/system/zincati.service
        systemctl daemon-reload; systemctl start zincati");
    host.stage(&world.version(), &[]);
    let status = host.waits_for("other-lock-client", 20);
    assert!(text(&status["reason"]["text"]).contains("http://192.0.2.1/"), "{}", status["reason"]);
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.stages(), ["waiting"]);
    host.sh(&format!(
        "rm {fragment} /run/systemd/system/zincati.service
        systemctl stop zincati; systemctl daemon-reload; systemctl mask zincati"
    ));
    host.ends("updated", 90);
}

/// The coordinator comes back without its memory, and another node is quicker: the drain ends, and
/// nothing is rebooted.
pub fn a_coordinator_without_memory_ends_the_drain(world: &World) {
    let host = world.host("n1");
    let boot = host.boot_id();
    to_mid_drain(world, host, "[slot]\nconfirm_every = \"10s\"\n");
    lab(&["stop", "coordinator"]).good();
    std::fs::remove_file(world.folder().join("coordinator/slots.json")).unwrap();
    lab(&["start", "coordinator"]).good();
    ask(host, "pre-reboot", "quicker");
    let yielding = host.comes_to("yielding", 40);
    assert_eq!(yielding.told("BECAUSE"), "slot-lost");
    host.ends("yielded", 20);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert_eq!(world.cluster.holders(), ["quicker"], "a slot that is not ours is left alone");
    assert_eq!(host.boot_id(), boot);
    host.lab("unstage", &[]);
    host.waits_for("no-update", 20);
    ask(host, "steady-state", "quicker");
    world.let_go();
}

/// The Node is deleted in mid-drain, and its kubelet registers it anew: noticed at once, not at the
/// deadline; the new one is left as it is.
pub fn a_node_deleted_in_mid_drain_is_noticed(world: &World) {
    let host = world.host("n2");
    let boot = host.boot_id();
    to_mid_drain(world, host, "");
    world.cluster.kubectl(&["delete", "node", "n2"]);
    let yielding = host.comes_to("yielding", 10);
    assert_eq!(yielding.told("BECAUSE"), "other-node");
    host.ends("yielded", 20);
    assert!(world.cluster.holders().is_empty());
    host.lab("unstage", &[]);
    host.sh("systemctl restart kubelet");
    lab(&["wait", "n2", "ready", "60"]).good();
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert_eq!(host.boot_id(), boot);
    host.waits_for("no-update", 20);
    world.let_go();
}

/// The Node is deleted while its host goes down: what comes back is another one, which settles.
pub fn a_node_deleted_while_its_host_is_down_settles(world: &World) {
    let host = world.host("n1");
    let before = text(&world.cluster.node("n1")["metadata"]["uid"]).to_owned();
    host.stage(&world.version(), &[]);
    host.comes_to("rebooting", 60);
    world.cluster.kubectl(&["delete", "node", "n1"]);
    host.ends("updated", 120);
    assert_ne!(text(&world.cluster.node("n1")["metadata"]["uid"]), before, "another Node");
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
}

/// A person uncordons a node that settles, and cordons it again: the second one is theirs.
pub fn a_cordon_made_while_the_node_settles_stays(world: &World) {
    let host = world.host("n2");
    host.configure("[settle]\ntime = \"20s\"\n");
    host.stage(&world.version(), &[]);
    host.comes_to("settling", 60);
    until(60, "the node is Ready", || host.reason().contains("settle-time").then_some(()));
    assert!(world.cluster.cordon("n2").1.is_some(), "cordoned by us");
    world.cluster.kubectl(&["uncordon", "n2"]);
    until(10, "the mark is gone", || world.cluster.cordon("n2").1.is_none().then_some(()));
    world.cluster.kubectl(&["cordon", "n2"]);
    host.ends("updated", 60);
    assert_eq!(world.cluster.cordon("n2"), (true, None), "a person's cordon stays, unmarked");
    world.cluster.kubectl(&["uncordon", "n2"]);
}

/// Rebooted by a person in mid-drain, and again while it settles: each boot is judged anew, and the
/// update that was never written is told as that.
pub fn a_person_who_reboots_in_mid_attempt_is_survived(world: &World) {
    let host = world.host("n1");
    to_mid_drain(world, host, "[settle]\ntime = \"15s\"\n");
    host.sh("systemctl reboot");
    host.comes_to("settling", 90);
    until(60, "the node is Ready", || (host.reason() == "settle-time").then_some(()));
    assert_eq!(world.cluster.holders().len(), 1, "the slot is kept until the node is well");
    host.sh("systemctl reboot");
    host.comes_to("settling", 90);
    host.ends("interrupted", 90);
    assert_eq!(host.boots(), 2);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    world.let_go();
}

/// The agent is replaced by another build in mid-drain: it goes on with the same attempt.
pub fn an_agent_replaced_in_mid_drain_goes_on(world: &World) {
    let host = world.host("n2");
    to_mid_drain(world, host, "");
    let (_, attempt) = world.cluster.cordon("n2");
    // The same build as another file: its inode and its process are new.
    host.lab("install-agent", &[env!("CARGO_BIN_EXE_lockkeeper")]);
    let status = host.waits_for("draining", 30);
    assert_eq!(status["attempt"]["id"].as_str(), attempt.as_deref());
    assert_eq!(world.cluster.cordon("n2"), (true, attempt));
    world.let_go();
    host.ends("updated", 60);
    assert_eq!(host.boots(), 1, "one reboot only");
}

/// Into a drain that does not end, configured with this beside what that needs.
fn to_mid_drain(world: &World, host: &Host, more: &str) {
    world.cluster.pin("anchor", &host.name);
    world.cluster.forbid_disruption("anchor");
    host.configure(&format!("[drain]\non_deadline = \"delete\"\ndeadline = \"5m\"\n{more}"));
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    until(10, "the node is cordoned", || world.cluster.cordon(&host.name).1);
}

/// Asks the slot server of this host for somebody else; it must agree.
fn ask(host: &Host, operation: &str, id: &str) {
    let told = host.sh("lockkeeper config show");
    let url = told.lines().find_map(|line| line.split("http://").nth(1)).expect("a slot server");
    let server = url.split(['/', '"']).next().unwrap_or_default();
    let mut stream = TcpStream::connect(server).expect("the slot server");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = format!("{{\"client_params\":{{\"id\":\"{id}\",\"group\":\"default\"}}}}");
    let head = format!(
        "POST /v1/{operation} HTTP/1.1\r\nhost: {server}\r\nfleet-lock-protocol: true\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
