//! Servers that go away.

use crate::lab::{lab, until};
use crate::world::World;

/// The API server goes away in mid-drain: waited for.
pub fn an_api_server_that_goes_away_is_waited_for(world: &World) {
    let host = world.host("n1");
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    until(10, "the node is cordoned", || world.cluster.cordon("n1").1);
    lab(&["stop", "apiserver"]).good();
    until(30, "the agent sees that", || {
        let of_agent = host.entries();
        of_agent.iter().any(|entry| entry.field("PRIORITY") == "4").then_some(())
    });
    let status = host.status().expect("it still answers");
    assert_eq!(status["state"], "draining");
    assert_eq!(world.cluster.holders().len(), 1);
    lab(&["start", "apiserver"]).good();
    world.let_go();
    host.ends("updated", 90);
    assert_eq!(host.boots(), 1);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
}

/// The coordinator is away while it is asked, and again when the slot is to be given back.
pub fn a_coordinator_that_goes_away_is_waited_for(world: &World) {
    let host = world.host("n2");
    lab(&["stop", "coordinator"]).good();
    host.stage(&world.version(), &[]);
    host.waits_for("slot-failed", 20);
    assert_eq!(world.cluster.cordon("n2"), (false, None), "nothing is touched without a slot");
    lab(&["start", "coordinator"]).good();
    host.comes_to("rebooting", 60);
    lab(&["stop", "coordinator"]).good();
    host.comes_to("releasing", 60);
    host.waits_for("slot-failed", 20);
    assert_eq!(world.cluster.cordon("n2"), (false, None), "it serves already");
    lab(&["start", "coordinator"]).good();
    host.ends("updated", 40);
    assert!(world.cluster.holders().is_empty());
}
