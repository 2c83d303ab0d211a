//! Shutdown and boot without a bus: what is finalized, what boots, what each fault does.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;

use support::Host;

/// A host whose staged 40.2 was unlocked, with a fault; then the shutdown and the next boot.
fn rebooted(fault: Option<&str>) -> Host {
    let host = Host::new();
    let mut arguments = vec!["stage", "40.2", "--unlocked"];
    if let Some(fault) = fault {
        arguments.extend(["--fault", fault]);
    }
    host.run("standin", &arguments);
    let _ = host.try_run("ostree", &["admin", "finalize-staged"]);
    host.boot("boot-2");
    host
}

#[test]
fn an_unlocked_deployment_is_finalized_and_boots() {
    let host = rebooted(None);
    assert_eq!(host.versions(), ["*40.2", "40.1"]);
    let text = fs::read_to_string(host.root("etc/os-release")).unwrap();
    assert!(text.contains("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm) 40.2\""), "{text}");
    assert!(text.contains("OSTREE_VERSION='40.2'") && text.contains("ID=debian"), "{text}");
    assert!(!text.contains("12 (bookworm)\"\n"), "{text}");
    host.run("ostree", &["admin", "boot-complete"]);
    assert_eq!(host.run("ostree", &["admin", "status", "-D"]), "default\n");
}

#[test]
fn a_locked_deployment_is_lost_at_a_reboot() {
    for lock in ["--locked", "--unlocked"] {
        let host = Host::new();
        host.run("standin", &["stage", "40.2", lock]);
        if lock == "--unlocked" {
            // The old lock file counts at shutdown although nothing else honours it.
            fs::write(host.root("run/ostree/staged-deployment-locked"), "").unwrap();
        }
        host.run("ostree", &["admin", "finalize-staged"]);
        host.boot("boot-2");
        assert_eq!(host.versions(), ["*40.1"], "{lock}");
    }
}

#[test]
fn the_legacy_lock_goes_only_with_a_real_unlock() {
    let host = Host::new();
    let legacy = host.root("run/ostree/staged-deployment-locked");
    host.run("standin", &["stage", "40.2", "--unlocked", "--legacy-lock"]);
    host.run("ostree", &["admin", "lock-finalization", "-u"]);
    assert!(legacy.exists());
    host.run("ostree", &["admin", "lock-finalization"]);
    assert!(legacy.exists());
    host.run("ostree", &["admin", "lock-finalization", "-u"]);
    assert!(!legacy.exists());
}

#[test]
fn status_tells_the_lock_truly() {
    let host = Host::new();
    host.run("standin", &["stage", "40.2"]);
    let status: serde_json::Value =
        serde_json::from_str(&host.run("ostree", &["admin", "status", "--json"])).unwrap();
    let first = &status["deployments"][0];
    assert_eq!(first["finalization-locked"], true);
    assert_eq!(first["pending"], true);
    assert_eq!(first["stateroot"], "fedora-coreos");
    assert_eq!(status["deployments"][1]["booted"], true);
    let status: serde_json::Value =
        serde_json::from_str(&host.run("rpm-ostree", &["status", "--json"])).unwrap();
    assert_eq!(status["deployments"][0]["staged"], true);
    assert!(status["deployments"][0].get("finalization-locked").is_none());
    let booted: serde_json::Value =
        serde_json::from_str(&host.run("rpm-ostree", &["status", "--json", "--booted"])).unwrap();
    assert_eq!(booted["deployments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_newer_staging_replaces_the_older_and_undeploy_drops_it() {
    let host = Host::new();
    host.run("standin", &["stage", "40.2"]);
    host.run("standin", &["stage", "40.3"]);
    assert_eq!(host.versions(), ["+40.3", "*40.1"]);
    host.fail("ostree", &["admin", "undeploy", "1"]);
    host.run("ostree", &["admin", "undeploy", "0"]);
    assert_eq!(host.versions(), ["*40.1"]);
    assert!(host.fail("ostree", &["admin", "lock-finalization"]).contains("No staged deployment"));
}

#[test]
fn a_failed_finalization_is_told_once_at_the_next_boot() {
    let host = rebooted(Some("finalize-fails"));
    assert_eq!(host.versions(), ["*40.1"]);
    let text = host.fail("ostree", &["admin", "boot-complete"]);
    assert!(
        text.contains(
            "ostree-finalize-staged.service failed on previous boot: Finalizing deployment:"
        ),
        "{text}"
    );
    host.run("ostree", &["admin", "boot-complete"]);
    // Another version is not concerned.
    host.run("standin", &["stage", "40.3", "--unlocked"]);
    host.run("ostree", &["admin", "finalize-staged"]);
    host.boot("boot-3");
    assert_eq!(host.versions(), ["*40.3", "40.1"]);
}

#[test]
fn a_failed_boot_falls_back_until_cleared() {
    let host = rebooted(Some("boot-fails"));
    assert_eq!(host.versions(), ["40.2", "*40.1"]);
    assert_eq!(host.run("ostree", &["admin", "status", "-D"]), "not-default\n");
    host.boot("boot-3");
    assert_eq!(host.versions(), ["40.2", "*40.1"]);
    host.run("standin", &["fault", "clear", "boot-fails"]);
    host.boot("boot-4");
    assert_eq!(host.versions(), ["*40.2", "40.1"]);
}

#[test]
fn a_rollback_puts_the_target_behind() {
    let host = rebooted(Some("rollback"));
    assert_eq!(host.versions(), ["*40.1", "40.2"]);
    host.boot("boot-3");
    assert_eq!(host.versions(), ["*40.1", "40.2"]);
}

#[test]
fn a_third_system_boots() {
    let host = rebooted(Some("third"));
    assert_eq!(host.versions(), ["*40.2.third", "40.2", "40.1"]);
}

#[test]
fn an_unhealthy_target_boots_unwell_until_cleared() {
    let host = rebooted(Some("unhealthy"));
    assert_eq!(host.versions(), ["*40.2", "40.1"]);
    assert!(host.fail("standin", &["health-check"]).contains("40.2 is not well"));
    host.boot("boot-3");
    assert!(host.root("run/standin/unhealthy").exists());
    host.run("standin", &["fault", "clear", "unhealthy"]);
    host.run("standin", &["health-check"]);
    assert_eq!(host.systemctl().last().unwrap(), "restart standin-health.service");
    host.boot("boot-4");
    host.run("standin", &["health-check"]);
}

#[test]
fn faults_set_in_general_bind_to_the_next_finalized() {
    let host = Host::new();
    host.run("standin", &["fault", "set", "boot-fails"]);
    host.boot("boot-2");
    assert_eq!(host.versions(), ["*40.1"]);
    host.run("standin", &["stage", "40.2", "--unlocked"]);
    host.run("ostree", &["admin", "finalize-staged"]);
    host.boot("boot-3");
    assert_eq!(host.versions(), ["40.2", "*40.1"]);
}

#[test]
fn a_full_boot_partition_fails_the_finalization() {
    let host = Host::new();
    host.run("standin", &["stage", "40.2", "--unlocked", "--fault", "boot-full"]);
    let how = fs::read_to_string(host.root("run/standin/boot-full")).unwrap();
    if how == "mounted" {
        let left = nix::sys::statvfs::statvfs(&host.root("boot")).unwrap();
        assert_eq!(left.blocks_available(), 0);
    }
    let text = host.fail("ostree", &["admin", "finalize-staged"]);
    assert!(text.contains("No space left on device"), "{text}");
    assert!(host.root("boot/ostree/finalize-failure.stamp").exists());
    host.boot("boot-2");
    assert_eq!(host.versions(), ["*40.1"]);
    assert!(host.fail("ostree", &["admin", "boot-complete"]).contains("No space left"));
    host.run("standin", &["apply-faults"]);
    assert!(host.root("run/standin/boot-full").exists());
    host.run("standin", &["fault", "clear"]);
    assert!(!host.root("run/standin/boot-full").exists());
}

#[test]
fn without_the_finalize_unit_nothing_is_finalized() {
    let host = rebooted(Some("no-finalize-unit"));
    assert_eq!(host.systemctl(), Vec::<String>::new());
    assert_eq!(host.versions(), ["*40.1"]);
}

#[test]
fn a_soft_reboot_runs_the_same_again_unless_another_was_prepared() {
    let host = Host::new();
    host.run("standin", &["stage", "40.2"]);
    host.run("standin", &["boot-select"]);
    assert_eq!(host.versions(), ["+40.2", "*40.1"]);
    host.run("ostree", &["admin", "prepare-soft-reboot", "0"]);
    assert_eq!(host.versions(), ["40.2", "*40.1"]);
    host.run("standin", &["boot-select"]);
    assert_eq!(host.versions(), ["*40.2", "40.1"]);
}

#[test]
fn wrong_use_is_told() {
    let host = Host::new();
    assert!(
        host.fail("standin", &["stage", "40.2", "--fault", "nonsense"]).contains("expected one of")
    );
    assert!(host.fail("standin", &["stage", "40 2"]).contains("expected letters"));
    assert!(
        host.fail("standin", &["stage", "40.2", "--fault", "rollback=3"]).contains("no number")
    );
    assert!(host.fail("standin", &["init", "40.1"]).contains("already"));
    assert_eq!(host.versions(), ["*40.1"]);
}
