//! Power cuts, and what is kept on disk.

use crate::host::{Host, text};
use crate::lab::{lab, until};
use crate::world::World;

/// In mid-drain: afterwards in service, the slot free, and explained.
pub fn a_power_cut_in_mid_drain_is_survived(world: &World) {
    let host = world.host("n1");
    to_mid_drain(world, host);
    host.lab("cut", &[]);
    assert_eq!(world.cluster.holders().len(), 1, "nobody takes its slot");
    assert!(world.cluster.cordon("n1").1.is_some());
    lab(&["boot", "n1"]).good();
    let last = host.ends("interrupted", 60);
    assert!(last["stages"].as_array().unwrap().len() > 3, "{last}");
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    world.let_go();
}

/// Between the order to reboot and the update's being written.
pub fn a_power_cut_at_the_reboot_is_survived(world: &World) {
    let host = world.host("n2");
    host.lab("fault", &["clear"]);
    host.sh("/usr/lib/standin/standin fault set slow-transaction=20");
    let version = world.version();
    host.stage(&version, &[]);
    host.comes_to("rebooting", 60);
    host.lab("cut", &[]);
    lab(&["boot", "n2"]).good();
    host.ends("not-finalized", 60);
    assert_ne!(host.version(), version);
    assert_eq!(world.cluster.cordon("n2"), (false, None));
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.status().unwrap()["tries"][0]["count"], 1, "it counts");
    host.lab("fault", &["clear"]);
}

/// A record that cannot be read, on a node that carries our mark: set aside and said; the node
/// settles, the cordon is lifted, the slot given back.
pub fn a_record_of_garbage_is_set_aside(world: &World) {
    world.expect_error("the record cannot be used and was set aside");
    let host = world.host("n1");
    to_mid_drain(world, host);
    host.lab("cut", &[]);
    std::fs::write(host.disk("/var/lib/lockkeeper/record"), b"\x00\xffgarbage").unwrap();
    lab(&["boot", "n1"]).good();
    let settling = host.comes_to("settling", 30);
    assert_eq!(settling.told("BECAUSE"), "no-record");
    host.comes_to("idle", 60);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    assert!(world.cluster.holders().is_empty());
    let kept = host.sh("ls /var/lib/lockkeeper");
    assert!(kept.lines().count() >= 2, "the old one is kept aside: {kept}");
    assert_eq!(host.sh("systemctl show --property=NRestarts --value lockkeeper").trim(), "0");
    world.let_go();
    host.sh("systemctl stop lockkeeper; rm -rf /var/lib/lockkeeper/*; systemctl start lockkeeper");
}

/// No record can be written: no request and no reboot; it goes on once it can.
pub fn an_unwritable_record_stops_what_is_dangerous(world: &World) {
    world.expect_error("the record cannot be written");
    let host = world.host("n2");
    // A full disk of its own, seen by the agent from its start on.
    host.sh("systemctl stop lockkeeper
        mkdir -p /var/lib/story; mount -t tmpfs -o size=64k tmpfs /var/lib/story
        cp -a /var/lib/lockkeeper/. /var/lib/story/
        mkdir -p /etc/systemd/system/lockkeeper.service.d
        printf '[Service]\\nReadWritePaths=/var/lib/story\\n' \
            >/etc/systemd/system/lockkeeper.service.d/story.conf
        systemctl daemon-reload
        dd if=/dev/zero of=/var/lib/story/fill bs=4k 2>/dev/null || true");
    host.write(
        "/etc/lockkeeper/config.d/99-story.toml",
        "[agent]\nstate_dir = \"/var/lib/story\"\n",
    );
    host.sh("systemctl start lockkeeper");
    host.stage(&world.version(), &[]);
    let status = host.waits_for("record-unwritable", 30);
    assert!(!text(&status["record_unwritable"]).is_empty(), "{status}");
    assert!(world.cluster.holders().is_empty(), "no slot is asked for");
    host.sh("rm /var/lib/story/fill");
    host.comes_to("requesting", 60);
    // The disk is no more after the boot, and neither is what the story set.
    host.sh("lockkeeper hold enough");
    host.lab("unstage", &[]);
    host.waits_for("no-update", 30);
    host.sh("systemctl stop lockkeeper
        rm -r /etc/systemd/system/lockkeeper.service.d /etc/lockkeeper/config.d/99-story.toml
        umount /var/lib/story; systemctl daemon-reload; systemctl start lockkeeper");
}

fn to_mid_drain(world: &World, host: &Host) {
    world.hold_up_drains(host);
    host.stage(&world.version(), &[]);
    host.comes_to("draining", 20);
    until(10, "the node is cordoned", || world.cluster.cordon(&host.name).1);
}
