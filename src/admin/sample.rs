//! Snapshots for the tests of this room and of the front desk.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::drain::{Obstacle, ObstacleKind, Progress};
use crate::fleetlock::SlotPlace;
use crate::lifecycle::{
    Attempt, BootMark, Cordon, Denial, Finished, HostView, OnDeadline, Outcome, Record, Rehearsed,
    Run, Slot, Stage, StageTime, State, View, Waiting, Wake,
};
use crate::model::{AttemptId, BootId, Deployment, Now, Source, SystemView, Target};

use super::Snapshot;

/// A node with nothing to do.
pub(crate) fn idle() -> Snapshot {
    let boot = boot();
    let state = State {
        config_wrong: None,
        record: Record::default(),
        boot,
        kubelet_unit: true,
        seed: 7,
        view: View {
            system: Some(SystemView { deployments: vec![booted()], ..SystemView::default() }),
            ..View::default()
        },
        run: Run::default(),
        in_flight: BTreeSet::new(),
        not_before: BTreeMap::new(),
        failures: BTreeMap::new(),
        unwritable: None,
        waiting_since: Some(("no-update", "2026-11-30T10:00:00Z".parse().unwrap())),
    };
    Snapshot {
        drain: (Duration::from_secs(900), OnDeadline::Yield),
        state,
        waiting: Waiting::NoUpdate,
        wake: None,
        at: Now {
            wall: "2026-11-30T12:00:00Z".parse().unwrap(),
            since_boot: Duration::from_secs(7200),
        },
        node_name: Some("n1".to_owned()),
        slot: Some(SlotPlace {
            server: "http://slots.example:3333".to_owned(),
            group: "workers".to_owned(),
            id: Some("978a225b3d7b40e9acd7ce9b62f68444".to_owned()),
        }),
        config_trouble: None,
        version: "0.1.0",
    }
}

/// A node in mid-drain, with one pod behind a budget and one that leaves.
pub(crate) fn draining() -> Snapshot {
    let mut snapshot = idle();
    let attempt = AttemptId::new(&boot().id, 2);
    let since = |time: &str| format!("2026-11-30T{time}Z").parse().unwrap();
    let record = &mut snapshot.state.record;
    record.core.stage = Stage::Draining;
    record.core.attempt = Some(Attempt {
        id: attempt,
        target: target(),
        boot_before: None,
        booted_before: None,
        place_before: None,
        by_zincati: false,
        also: Vec::new(),
    });
    record.core.slot = Slot::Held { since: since("11:50:30") };
    record.core.cordon = Cordon::Ours;
    record.stages = vec![
        StageTime { stage: Stage::Waiting, since: since("11:45:00") },
        StageTime { stage: Stage::Requesting, since: since("11:50:00") },
        StageTime { stage: Stage::Draining, since: since("11:50:30") },
    ];
    record.tries.insert(target().identity, 1);
    let bad = Denial {
        since: since("09:00:00"),
        because: "the host runs 42.0 again".to_owned(),
        version: Some("42.05".to_owned()),
    };
    record.denied.insert("sha256:0bad".to_owned(), bad);
    record.history.push(finished());
    let view = &mut snapshot.state.view;
    let staged = Deployment {
        identity: target().identity,
        version: target().version,
        place: None,
        booted: false,
        staged: true,
    };
    view.system = Some(SystemView { deployments: vec![staged, booted()], ..SystemView::default() });
    view.progress = Some(progress());
    view.rehearsal = Some((Rehearsed::Passes, Duration::from_secs(6600)));
    view.host = Some((host(), Duration::from_secs(7100)));
    snapshot.state.waiting_since = Some(("draining", since("11:50:31")));
    snapshot.waiting = Waiting::Draining;
    snapshot.wake = Some(Wake { after: Duration::from_secs(170), reason: "confirm the slot" });
    snapshot
}

/// An attempt that was given up, five minutes long.
pub(crate) fn finished() -> Finished {
    let since = |time: &str| format!("2026-11-30T{time}Z").parse().unwrap();
    Finished {
        attempt: AttemptId::new(&boot().id, 1),
        target: target(),
        outcome: Outcome::Yielded,
        detail: Some("shop/cart-0: disruption budget cart: needs 2, has 2".to_owned()),
        stages: vec![
            StageTime { stage: Stage::Waiting, since: since("10:30:00") },
            StageTime { stage: Stage::Requesting, since: since("10:30:05") },
            StageTime { stage: Stage::Draining, since: since("10:30:10") },
            StageTime { stage: Stage::Yielding, since: since("11:30:10") },
            StageTime { stage: Stage::Releasing, since: since("11:30:11") },
            StageTime { stage: Stage::Idle, since: since("11:30:12") },
        ],
        ended: since("11:30:12"),
    }
}

/// The update of these snapshots.
pub(crate) fn target() -> Target {
    Target {
        source: Source::RpmOstree,
        identity: "sha256:42a1".to_owned(),
        version: Some("42.1".to_owned()),
    }
}

/// What stands in the way of the drain.
pub(crate) fn progress() -> Progress {
    let budget = ObstacleKind::Budget {
        budget: Some("cart".to_owned()),
        says: "The disruption budget cart needs 2 healthy pods and has 2 currently".to_owned(),
    };
    Progress {
        total: 12,
        gone: 9,
        obstacles: vec![
            Obstacle { namespace: "shop".to_owned(), pod: "cart-0".to_owned(), kind: budget },
            Obstacle {
                namespace: "shop".to_owned(),
                pod: "web-7f9".to_owned(),
                kind: ObstacleKind::Terminating,
            },
        ],
        volumes: Vec::new(),
    }
}

fn boot() -> BootMark {
    let id = BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap();
    BootMark { id, soft_reboots: 0 }
}

fn booted() -> Deployment {
    Deployment {
        identity: "sha256:4200".to_owned(),
        version: Some("42.0".to_owned()),
        place: None,
        booted: true,
        staged: false,
    }
}

fn host() -> HostView {
    HostView {
        config_wrong: None,
        update_withdrawn: None,
        other_rebooters: Vec::new(),
        inhibitors: Vec::new(),
        users: Vec::new(),
        boot_free: Some(512 << 20),
        finalize_unit_active: true,
        legacy_lock: false,
        clock_synchronised: true,
        other_lock_client: None,
        preparing_for_shutdown: false,
        unreadable: Vec::new(),
    }
}
