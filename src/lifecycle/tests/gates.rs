//! What the host tells, gate by gate.

use std::time::Duration;

use super::super::event::{HostView, Inhibitor};
use super::super::gates::host_gate;
use super::super::policy::{OnUsers, Policy};
use super::policy;
use crate::model::{Source, Target};
use crate::schedule::{Window, Windows};

/// A host with nothing in the way.
fn open() -> HostView {
    HostView { finalize_unit_active: true, clock_synchronised: true, ..HostView::default() }
}

fn blocker() -> Inhibitor {
    Inhibitor { who: "backup".to_owned(), why: "runs".to_owned() }
}

/// The reason that speaks, or `open`.
fn speaks(policy: &Policy, host: &HostView) -> &'static str {
    let target = Target { source: Source::RpmOstree, identity: "42".to_owned(), version: None };
    host_gate(policy, host, Some(&target)).map_or("open", |reason| reason.code())
}

#[test]
fn every_gate_closes_by_itself() {
    type Change = fn(&mut HostView);
    let table: [(Change, &str); 13] = [
        (|_| (), "open"),
        (|host| host.unreadable.push("sessions".to_owned()), "host-unreadable"),
        (|host| host.other_rebooters.push("locksmithd runs".to_owned()), "other-rebooter"),
        (|host| host.preparing_for_shutdown = true, "shutting-down"),
        (|host| host.other_lock_client = Some("http://h".to_owned()), "other-lock-client"),
        (|host| host.legacy_lock = true, "legacy-lock"),
        (|host| host.config_wrong = Some("50-x.toml: wrong".to_owned()), "config-wrong"),
        (|host| host.finalize_unit_active = false, "finalize-unit-inactive"),
        (|host| host.boot_free = Some(999), "boot-full"),
        (|host| host.boot_free = Some(1000), "open"),
        (|host| host.clock_synchronised = false, "open"),
        (|host| host.inhibitors.push(blocker()), "inhibited"),
        (|host| host.users.push("ada".to_owned()), "users-logged-in"),
    ];
    let policy = policy(Duration::from_secs(60));
    for (change, reason) in table {
        let mut host = open();
        change(&mut host);
        assert_eq!(speaks(&policy, &host), reason, "{host:?}");
    }
    assert_eq!(speaks(&policy, &HostView::default()), "finalize-unit-inactive", "the default");
}

#[test]
fn the_clock_matters_where_there_are_windows() {
    let window = Window::new(&["daily".to_owned()], "00:00", "24h", "UTC").unwrap();
    let policy = Policy { windows: Windows::new(vec![window]), ..policy(Duration::from_secs(60)) };
    assert_eq!(speaks(&policy, &open()), "open");
    let host = HostView { clock_synchronised: false, ..open() };
    assert_eq!(speaks(&policy, &host), "clock-not-synchronised");
}

#[test]
fn users_matter_where_the_policy_waits_for_them() {
    let policy = Policy { users: OnUsers::Ignore, ..policy(Duration::from_secs(60)) };
    let host = HostView { users: vec!["ada".to_owned()], ..open() };
    assert_eq!(speaks(&policy, &host), "open");
}
