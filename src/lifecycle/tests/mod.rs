//! Tables of the small parts; the whole is told in `tests/stories` and searched in `tests/search`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub(crate) mod any;
mod gates;
mod place;
mod record;
mod verdict;
mod waiting;

use std::time::Duration;

use super::policy::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
use crate::schedule::Windows;

/// A policy in which every time is this long.
pub(crate) fn policy(time: Duration) -> Policy {
    Policy {
        kubernetes: KubernetesPolicy::Required,
        slot: SlotPolicy::Server,
        slot_place: Some("server".to_owned()),
        answer_timeout: time,
        confirm_every: time,
        denial_retry: time,
        windows: Windows::default(),
        drain_deadline: time,
        on_deadline: OnDeadline::Yield,
        delete_timeout: time,
        on_foreign_uncordon: OnForeignUncordon::Yield,
        rehearsal_every: time,
        reboot_estimate: time,
        shutdown_wait: time,
        zincati: false,
        users: OnUsers::Wait,
        minimum_uptime: Duration::ZERO,
        boot_free: 1000,
        settle_time: time,
        settle_deadline: time,
        check_every: time,
        attempt_limit: 3,
        backoff_first: time,
        backoff_max: time,
        after_rollback: AfterRollback::Halt,
    }
}
