//! Drains that do not go straight, and cordons of others.

use serde_json::Value;

use crate::host::text;
use crate::lab::{lab, until};
use crate::world::World;

/// A node that could not drain now says which pod and budget, and takes no slot from one that can.
pub fn a_blocked_rehearsal_leaves_the_slot_to_others(world: &World) {
    let (one, two) = (world.host("n1"), world.host("n2"));
    world.cluster.pin("cart", "n1");
    world.cluster.forbid_disruption("cart");
    one.stage(&world.version(), &[]);
    let status = one.waits_for("drain-would-block", 20);
    let told = text(&status["reason"]["text"]);
    assert!(told.contains("shop/cart-") && told.contains("disruption budget cart"), "{told}");
    assert_eq!(status["rehearsal"]["obstacles"][0]["budget"], "cart");
    assert!(world.cluster.holders().is_empty(), "the slot stays free");
    two.stage(&world.version(), &[]);
    two.ends("updated", 90);
    assert_eq!(one.stages(), ["waiting"]);
    world.cluster.allow_disruption("cart");
    one.sh("lockkeeper retry");
    one.comes_to("requesting", 5);
    one.ends("updated", 60);
    world.cluster.sweep();
}

/// A budget that closes after the rehearsal: the deadline passes, the node is as it was, the slot
/// is free, and the next try is put off until a person says otherwise.
pub fn a_drain_past_its_deadline_yields(world: &World) {
    let host = world.host("n1");
    let boot = host.boot_id();
    host.configure(
        "[drain]\ndeadline = \"6s\"\nrehearsal_every = \"10m\"\n\
        [attempts]\nbackoff_first = \"10m\"\n",
    );
    world.cluster.pin("cart", "n1");
    lab(&["stop", "coordinator"]).good();
    host.stage(&world.version(), &[]);
    host.waits_for("slot-failed", 20);
    world.cluster.forbid_disruption("cart");
    lab(&["start", "coordinator"]).good();
    host.comes_to("draining", 40);
    until(10, "the status names the budget", || {
        let status = host.status()?;
        let blocks = |one: &Value| one["kind"] == "budget" && one["budget"] == "cart";
        status["drain"]["obstacles"].as_array()?.iter().any(blocks).then_some(())
    });
    let told = |entry: &crate::journal::Entry| {
        let line = entry.line();
        line.contains("the drain is held up") && line.contains("budget cart")
    };
    assert_eq!(host.entries().iter().filter(|entry| told(entry)).count(), 1, "told once");
    let yielding = host.comes_to("yielding", 20);
    assert_eq!(yielding.told("BECAUSE"), "drain-deadline");
    let last = host.ends("yielded", 10);
    assert!(text(&last["detail"]).contains("cart"), "{last}");
    host.waits_for("backing-off", 10);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.boot_id(), boot, "it was not rebooted");
    world.cluster.allow_disruption("cart");
    host.sh("lockkeeper retry");
    host.comes_to("draining", 10);
    host.ends("updated", 60);
    world.cluster.sweep();
}

/// The policy `delete`: at the deadline the pod that its budget protects is deleted, and the reboot
/// follows.
pub fn a_drain_past_its_deadline_deletes(world: &World) {
    let host = world.host("n2");
    world.cluster.pin("cart", "n2");
    world.cluster.forbid_disruption("cart");
    let pod = pod_of(world, "cart");
    host.configure("[drain]\non_deadline = \"delete\"\ndeadline = \"4s\"\n");
    let version = world.version();
    host.stage(&version, &[]);
    let draining = host.comes_to("draining", 20);
    let rebooting = host.comes_to("rebooting", 40);
    let took = rebooting.at() - draining.at();
    // It began within a second that counts as a whole one.
    assert!(took >= 3_000_000, "not before the deadline: {took} us");
    assert_ne!(pod_of(world, "cart"), pod, "the pod was deleted");
    let asked = asked_by_agent(world, "n2", &pod);
    assert!(asked.contains(&("delete".to_owned(), 200)), "the agent deleted {pod}: {asked:?}");
    host.ends("updated", 60);
    assert_eq!(host.version(), version);
    assert_eq!(host.boots(), 1);
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert!(world.cluster.holders().is_empty());
    world.cluster.sweep();
}

/// The policy `reboot`: at the deadline the host goes down all the same; the agent has neither evicted
/// the pod nor deleted it, and it is the shutdown that stops it.
pub fn a_drain_past_its_deadline_reboots(world: &World) {
    let host = world.host("n1");
    world.cluster.pin("cart", "n1");
    world.cluster.forbid_disruption("cart");
    let pod = pod_of(world, "cart");
    host.configure("[drain]\non_deadline = \"reboot\"\ndeadline = \"4s\"\n");
    let version = world.version();
    host.stage(&version, &[]);
    let draining = host.comes_to("draining", 20);
    let rebooting = host.comes_to("rebooting", 40);
    let took = rebooting.at() - draining.at();
    // It began within a second that counts as a whole one.
    assert!(took >= 3_000_000, "not before the deadline: {took} us");
    host.ends("updated", 60);
    let asked = asked_by_agent(world, "n1", &pod);
    let refused = |(verb, code): &(String, u64)| verb == "create" && *code == 429;
    assert!(!asked.is_empty() && asked.iter().all(refused), "the pod is left alone: {asked:?}");
    assert_eq!(host.version(), version);
    assert_eq!(host.boots(), 1);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    world.cluster.sweep();
}

/// What this host's agent asked the API server to do to this pod, and the answers' codes. Of the two
/// with that name, the kubelet says what it is.
fn asked_by_agent(world: &World, host: &str, pod: &str) -> Vec<(String, u64)> {
    let audit = std::fs::read_to_string(world.folder().join("audit.log")).unwrap();
    let events = audit.lines().filter(|line| line.contains(pod));
    let events = events.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let asked = events.filter(|event| {
        event["user"]["username"] == format!("system:node:{host}").as_str()
            && event["objectRef"]["name"] == pod
            && !text(&event["userAgent"]).starts_with("kubelet")
    });
    let of = |event: Value| {
        let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
        (text(&event["verb"]).to_owned(), code)
    };
    asked.map(of).collect()
}

/// The name of the one pod of this Deployment that is not going.
fn pod_of(world: &World, name: &str) -> String {
    let selector = format!("app={name}");
    until(30, "one pod", || {
        let pods = world.cluster.get(&["--namespace", "shop", "pods", "--selector", &selector]);
        let pods = pods["items"].as_array()?.clone();
        let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pod = pods.iter().find(stays)?;
        Some(text(&pod["metadata"]["name"]).to_owned())
    })
}

/// Cordoned by a person before: drained all the same, and cordoned afterwards, unmarked.
pub fn a_persons_cordon_survives_the_cycle(world: &World) {
    let host = world.host("n2");
    world.cluster.pin("cart", "n2");
    world.cluster.kubectl(&["cordon", "n2"]);
    host.stage(&world.version(), &[]);
    host.ends("updated", 90);
    assert_eq!(world.cluster.cordon("n2"), (true, None), "a person's cordon stays, unmarked");
    let pods = ["--namespace", "shop", "pods", "--selector", "app=cart"];
    let pods = world.cluster.get(&pods);
    assert_eq!(pods["items"][0]["status"]["phase"], "Pending", "it was drained all the same");
    world.cluster.kubectl(&["uncordon", "n2"]);
    world.cluster.sweep();
}

/// Made schedulable in mid-drain: noticed; the mark goes, and the attempt with it.
pub fn somebody_who_uncordons_is_obeyed(world: &World) {
    let host = world.host("n2");
    let boot = host.boot_id();
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    until(10, "the node is cordoned", || world.cluster.cordon("n2").1);
    world.cluster.kubectl(&["uncordon", "n2"]);
    let yielding = host.comes_to("yielding", 10);
    assert_eq!(yielding.told("BECAUSE"), "foreign-uncordon");
    host.ends("yielded", 10);
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.boot_id(), boot);
    host.lab("unstage", &[]);
    world.let_go();
}
