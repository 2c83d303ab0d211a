//! The agent as a process.

use crate::lab::until;
use crate::world::World;

/// Stopped, started and killed in mid-drain: it confirms its slot, goes on, and reboots once.
pub fn an_agent_killed_in_mid_drain_goes_on(world: &World) {
    let host = world.host("n1");
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    let attempt = until(10, "the node is cordoned", || world.cluster.cordon("n1").1);
    host.lab("agent", &["stop"]);
    assert_eq!(world.cluster.cordon("n1"), (true, Some(attempt.clone())), "a stop changes nothing");
    assert_eq!(world.cluster.holders().len(), 1);
    host.lab("agent", &["start"]);
    host.waits_for("draining", 10);
    host.lab("agent", &["kill"]);
    // Without systemd's pause.
    host.sh("systemctl restart lockkeeper");
    let status = host.waits_for("draining", 20);
    assert_eq!(status["attempt"]["id"], attempt.as_str(), "the attempt is the same");
    assert_eq!(world.cluster.cordon("n1"), (true, Some(attempt)));
    world.let_go();
    host.ends("updated", 60);
    assert_eq!(host.boots(), 1, "one reboot only");
    assert_eq!(
        host.stages(),
        [
            "waiting",
            "requesting",
            "draining",
            "rebooting",
            "settling",
            "uncordoning",
            "releasing",
            "idle"
        ]
    );
}

/// Two agents on one host: the second says who runs, and leaves.
pub fn a_second_agent_is_turned_away(world: &World) {
    let host = world.host("n1");
    let pid = host.sh("systemctl show --property=MainPID --value lockkeeper");
    let said = host.exec(&["timeout", "10", "lockkeeper", "agent"]);
    assert!(said.status != 0 && said.status != 124, "it leaves: {}", said.status);
    assert!(said.err.contains(pid.trim()), "it says who runs: {}", said.err);
    assert_eq!(host.reason(), "no-update");
}
