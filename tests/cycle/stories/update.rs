//! The update changes while it waits.

use crate::lab::until;
use crate::world::World;

/// Withdrawn while it waits, and in mid-drain: the node is as before, its slot free.
pub fn a_withdrawn_update_is_let_go(world: &World) {
    let host = world.host("n1");
    host.sh("lockkeeper hold wait");
    host.stage(&world.version(), &[]);
    host.waits_for("held", 10);
    host.lab("unstage", &[]);
    host.waits_for("no-update", 10);
    host.sh("lockkeeper resume");
    let boot = host.boot_id();
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    until(10, "the node is cordoned", || world.cluster.cordon("n1").1);
    host.lab("unstage", &[]);
    host.ends("withdrawn", 20);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.boot_id(), boot);
    host.waits_for("no-update", 10);
    world.let_go();
}

/// Replaced by a newer one while it waits: the newer one is booted.
pub fn the_newer_update_is_booted(world: &World) {
    let host = world.host("n2");
    let (older, newer) = (world.version(), world.version());
    host.sh("lockkeeper hold wait");
    host.stage(&older, &[]);
    host.waits_for("held", 10);
    host.stage(&newer, &[]);
    until(10, "the agent sees the newer one", || {
        (host.status()?["target"]["version"] == newer.as_str()).then_some(())
    });
    host.sh("lockkeeper resume");
    let last = host.ends("updated", 60);
    assert_eq!(last["target"]["version"], newer.as_str());
    assert_eq!(host.version(), newer);
}

/// rpm-ostreed that takes long to come up is normal life.
pub fn a_slow_daemon_is_waited_for(world: &World) {
    let host = world.host("n1");
    host.sh("/usr/lib/standin/standin fault set slow-activation=8");
    // Whoever asks it meanwhile has it started again, and systemd then gives the stop up.
    host.exec(&["systemctl", "stop", "rpm-ostreed"]);
    let version = world.version();
    host.stage(&version, &[]);
    host.ends("updated", 90);
    assert_eq!(host.version(), version);
    host.lab("fault", &["clear"]);
}
