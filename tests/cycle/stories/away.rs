//! Servers and daemons that go away.

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

/// The message bus is restarted in mid-drain, with logind, which does not survive that everywhere:
/// found again, and the cycle goes on.
pub fn a_bus_that_is_restarted_is_found_again(world: &World) {
    for host in [world.host("n1"), world.host("n2")] {
        world.hold_up_drains(host);
        let version = world.version();
        host.stage(&version, &[]);
        host.comes_to("draining", 20);
        let mark = until(10, "the node is cordoned", || world.cluster.cordon(&host.name).1);
        host.sh("systemctl restart dbus systemd-logind");
        until(30, "the agent finds logind again", || {
            let entries = host.entries();
            entries.iter().any(|e| e.field("MESSAGE") == "logind answers again").then_some(())
        });
        assert_eq!(host.status().expect("it answers")["state"], "draining");
        assert_eq!(world.cluster.cordon(&host.name), (true, Some(mark)));
        world.let_go();
        host.ends("updated", 90);
        assert_eq!(host.boots(), 1);
        assert_eq!(host.version(), version);
    }
}

/// rpm-ostreed is killed in the transaction that finalizes, so that nobody knows what it did: undone
/// in order, told, and tried again when a person says so.
pub fn rpm_ostreed_killed_in_mid_transaction_is_undone(world: &World) {
    let host = world.host("n2");
    host.configure("[reboot]\nshutdown_wait = \"4s\"\n");
    host.sh("/usr/lib/standin/standin fault set slow-transaction=600");
    let (boot, version) = (host.boot_id(), world.version());
    host.stage(&version, &[]);
    host.comes_to("rebooting", 60);
    until(20, "the transaction has begun", || {
        let begun = "MESSAGE_ID=d5bea37a8fc84ff59dbcfd79177b7df8";
        (!host.journal(&[begun]).is_empty()).then_some(())
    });
    host.sh("systemctl kill --signal=KILL rpm-ostreed");
    host.ends("reboot-never-came", 60);
    assert_eq!(host.boot_id(), boot);
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(crate::host::standin(host)["deployments"][0]["locked"], true, "locked again");
    host.waits_for("backing-off", 10);
    host.lab("fault", &["clear"]);
    host.sh("lockkeeper retry");
    host.ends("updated", 60);
    assert_eq!(host.version(), version);
    assert_eq!(host.boots(), 1);
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
