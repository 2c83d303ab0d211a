//! What is looked at before the slot is asked for.

use crate::host::{Host, text};
use crate::world::World;

/// Held by command, by file and by annotation: it says so, asks for nothing, and goes on after.
pub fn a_hold_keeps_the_node(world: &World) {
    let host = world.host("n1");
    host.sh("lockkeeper hold the disk is being looked at");
    host.stage(&world.version(), &[]);
    let status = host.waits_for("held", 10);
    assert_eq!(status["reason"]["text"], "held by command: the disk is being looked at");
    host.write("/etc/lockkeeper/hold", "by file\n");
    host.sh("lockkeeper resume");
    says(host, "held by file: by file");
    let hold = "lockkeeper.dev/hold";
    world.cluster.kubectl(&["annotate", "node", "n1", &format!("{hold}=by annotation")]);
    host.sh("rm /etc/lockkeeper/hold");
    says(host, "held by annotation: by annotation");
    assert!(world.cluster.holders().is_empty(), "a held node takes no slot");
    assert_eq!(host.stages(), ["waiting"]);
    world.hold_up_drains(host);
    world.cluster.kubectl(&["annotate", "node", "n1", &format!("{hold}-")]);
    host.comes_to("draining", 20);
    // A hold is honoured in mid-drain too.
    host.sh("lockkeeper hold not now");
    host.ends("yielded", 20);
    assert_eq!(world.cluster.cordon("n1"), (false, None));
    host.lab("unstage", &[]);
    host.sh("lockkeeper resume");
    host.waits_for("no-update", 10);
    world.let_go();
}

/// A block inhibitor stops root's reboot from systemd 257 on, and counts on both releases.
pub fn who_blocks_the_shutdown_is_named_before_the_slot_is_taken(world: &World) {
    let hosts = [world.host("n1"), world.host("n2")];
    for host in hosts {
        host.sh("systemd-run --quiet --unit=story-backup systemd-inhibit --what=shutdown \
            --mode=block --who=backup --why='a backup runs' sleep 600");
        crate::lab::until(10, "the inhibitor is there", || {
            host.sh("systemd-inhibit --list --no-pager").contains("backup").then_some(())
        });
        host.stage(&world.version(), &[]);
    }
    for host in hosts {
        let status = host.waits_for("inhibited", 15);
        let told = text(&status["reason"]["text"]);
        assert!(told.contains("backup") && told.contains("a backup runs"), "{told}");
        assert!(host.sh("lockkeeper why").contains("backup"));
    }
    assert!(world.cluster.holders().is_empty(), "no slot is taken");
    for host in hosts {
        host.sh("systemctl stop story-backup");
        // The gate is watched, not waited out.
        host.comes_to("requesting", 20);
        host.ends("updated", 90);
    }
}

/// Where the update could not be written, nobody asks for a slot.
pub fn a_full_boot_is_named_before_the_slot_is_taken(world: &World) {
    let host = world.host("n1");
    host.lab("fault", &["boot-full"]);
    host.stage(&world.version(), &[]);
    let status = host.waits_for("boot-full", 15);
    let told = text(&status["reason"]["text"]);
    assert!(told.contains("0 MiB free") && told.contains("needed"), "{told}");
    assert!(world.cluster.holders().is_empty(), "no slot is taken");
    host.lab("fault", &["clear"]);
    host.sh("lockkeeper retry");
    host.ends("updated", 60);
}

/// A user with a session is waited for, by name.
pub fn a_logged_in_user_is_waited_for(world: &World) {
    let host = world.host("n2");
    host.sh("id core >/dev/null 2>&1 || useradd --create-home core
        systemd-run --quiet --unit=story-user --property=PAMName=login --property=User=core \
            --property=TTYPath=/dev/pts/7 sleep 600");
    crate::lab::until(10, "the session is there", || {
        host.sh("loginctl list-sessions --no-legend").contains("core").then_some(())
    });
    host.stage(&world.version(), &[]);
    let status = host.waits_for("users-logged-in", 15);
    assert!(text(&status["reason"]["text"]).contains("core"), "{}", status["reason"]);
    assert!(world.cluster.holders().is_empty(), "no slot is taken");
    host.sh("systemctl stop story-user; loginctl terminate-user core 2>/dev/null || true");
    host.ends("updated", 90);
}

fn says(host: &Host, wanted: &str) {
    crate::lab::until(10, wanted, || (host.status()?["reason"]["text"] == wanted).then_some(()));
}
