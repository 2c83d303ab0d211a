//! Reboots that go wrong.

use crate::host::text;
use crate::lab::until;
use crate::world::World;

/// The shutdown does not write the update: told with its reason, uncordoned, released, counted; at
/// the limit it is not tried again.
pub fn a_failed_finalization_counts(world: &World) {
    let host = world.host("n1");
    host.configure("[attempts]\nlimit = 2\nbackoff_first = \"1s\"\n");
    let version = world.version();
    for tried in 1..=2 {
        host.stage(&version, &["--fault", "finalize-fails"]);
        let last = host.ends("finalize-failed", 60);
        assert!(!text(&last["detail"]).is_empty(), "the reason is told: {last}");
        assert_eq!(world.cluster.cordon("n1"), (false, None));
        assert!(world.cluster.holders().is_empty());
        let status = host.status().unwrap();
        assert_eq!(status["tries"][0]["count"], tried, "{}", status["tries"]);
    }
    assert_ne!(host.version(), version);
    host.stage(&version, &[]);
    host.waits_for("attempt-limit", 15);
    assert!(world.cluster.holders().is_empty());
    host.lab("fault", &["clear"]);
    host.sh("lockkeeper retry");
    host.ends("updated", 60);
    assert_eq!(host.version(), version);
}

/// The update boots badly and the host falls back: denied, back in service, and the slot kept until
/// a person has looked.
pub fn a_fallback_is_denied_and_keeps_the_slot(world: &World) {
    let host = world.host("n2");
    let version = world.version();
    host.stage(&version, &["--fault", "boot-fails"]);
    host.comes_to("halted", 90);
    assert_eq!(world.cluster.cordon("n2"), (false, None), "the node serves");
    assert_eq!(world.cluster.holders().len(), 1, "the slot is kept");
    let status = host.waits_for("halted", 5);
    assert_eq!(status["denied"][0]["version"], version.as_str());
    assert!(host.sh("lockkeeper why").contains("lockkeeper resume"));
    host.lab("agent", &["restart"]);
    host.waits_for("halted", 10);
    host.sh("lockkeeper resume");
    host.ends("fell-back", 10);
    assert!(world.cluster.holders().is_empty());
    host.lab("fault", &["clear"]);
    host.sh("ostree admin undeploy 0");
    host.stage(&version, &[]);
    host.waits_for("target-denied", 15);
    host.sh("lockkeeper retry");
    host.ends("updated", 60);
    assert_eq!(host.version(), version);
}

/// Booted, and not well: slot and cordon stay, so that a bad update stops here. It goes on by itself.
pub fn an_unhealthy_node_keeps_slot_and_cordon(world: &World) {
    let host = world.host("n1");
    host.configure("[settle]\ndeadline = \"5s\"\ncheck_every = \"1s\"\n");
    host.stage(&world.version(), &["--fault", "unhealthy"]);
    host.comes_to("stuck", 60);
    let status = host.waits_for("not-well", 10);
    assert!(text(&status["reason"]["text"]).contains("standin"), "{}", status["reason"]);
    assert_eq!(world.cluster.holders().len(), 1, "the slot is kept");
    let (cordoned, mark) = world.cluster.cordon("n1");
    assert!(cordoned && mark.is_some(), "the cordon stays, and is ours");
    host.lab("fault", &["clear"]);
    host.ends("updated", 30);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
}

/// Accepted, but no shutdown begins: undone in order, and given up.
pub fn a_reboot_that_never_comes_is_undone(world: &World) {
    let host = world.host("n2");
    host.configure("[reboot]\nshutdown_wait = \"4s\"\n");
    let boot = host.boot_id();
    host.lab("fault", &["reboot-never"]);
    host.stage(&world.version(), &[]);
    host.comes_to("rebooting", 30);
    let daemon = || host.sh("systemctl show --property=InvocationID --value rpm-ostreed");
    let before = daemon();
    host.ends("reboot-never-came", 60);
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.boot_id(), boot);
    let standin = host.sh("/usr/lib/standin/standin status --json");
    let standin: serde_json::Value = serde_json::from_str(&standin).unwrap();
    assert_eq!(standin["deployments"][0]["locked"], true, "locked again: {standin}");
    assert_ne!(daemon(), before, "rpm-ostreed was restarted");
    host.waits_for("backing-off", 10);
    host.lab("fault", &["clear"]);
    host.sh("lockkeeper retry");
    host.ends("updated", 60);
    until(5, "another boot", || (host.boot_id() != boot).then_some(()));
}
