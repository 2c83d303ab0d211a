//! What the configuration of a story says.

use std::time::Duration;

use lockkeeper::lifecycle::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
use lockkeeper::schedule::{Window, Windows};

use crate::words::{Words, duration, number};

/// The policy with which every story begins: short settling, no windows, everything else close to
/// what is shipped, and fixed here, so that another default changes no story.
pub(crate) fn first() -> Policy {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    Policy {
        kubernetes: KubernetesPolicy::Auto,
        slot: SlotPolicy::Server,
        slot_place: Some("server".to_owned()),
        answer_timeout: minutes(30),
        confirm_every: minutes(5),
        denial_retry: Duration::from_secs(30),
        windows: Windows::default(),
        drain_deadline: minutes(15),
        on_deadline: OnDeadline::Yield,
        delete_timeout: minutes(2),
        on_foreign_uncordon: OnForeignUncordon::Yield,
        rehearsal_every: minutes(10),
        reboot_estimate: minutes(5),
        shutdown_wait: minutes(1),
        zincati: false,
        users: OnUsers::Wait,
        minimum_uptime: Duration::ZERO,
        boot_free: 100 << 20,
        settle_time: Duration::from_secs(30),
        settle_deadline: minutes(10),
        check_every: minutes(1),
        attempt_limit: 2,
        backoff_first: minutes(5),
        backoff_max: minutes(60),
        after_rollback: AfterRollback::Halt,
    }
}

/// Changes a policy by a line of `key=value` pairs.
pub(crate) fn change(policy: &mut Policy, mut words: Words) -> Result<(), String> {
    while let Some((key, value)) = words.pair() {
        set(policy, &key, &value).map_err(|error| format!("policy: {key}: {error}"))?;
    }
    words.finish()
}

fn set(policy: &mut Policy, key: &str, value: &str) -> Result<(), String> {
    match key {
        "kubernetes" => {
            policy.kubernetes = one_of(
                value,
                &[
                    ("auto", KubernetesPolicy::Auto),
                    ("required", KubernetesPolicy::Required),
                    ("none", KubernetesPolicy::None),
                ],
            )?;
        }
        "slot" => {
            policy.slot = one_of(
                value,
                &[
                    ("unset", SlotPolicy::Unset),
                    ("server", SlotPolicy::Server),
                    ("none", SlotPolicy::None { only_node: false }),
                    ("none-only-node", SlotPolicy::None { only_node: true }),
                ],
            )?;
        }
        "slot_place" => {
            policy.slot_place = (value != "none").then(|| value.to_owned());
        }
        "on_deadline" => {
            policy.on_deadline = one_of(
                value,
                &[
                    ("yield", OnDeadline::Yield),
                    ("delete", OnDeadline::Delete),
                    ("reboot", OnDeadline::Reboot),
                ],
            )?;
        }
        "on_foreign_uncordon" => {
            policy.on_foreign_uncordon = one_of(
                value,
                &[("yield", OnForeignUncordon::Yield), ("cordon", OnForeignUncordon::Cordon)],
            )?;
        }
        "zincati" => policy.zincati = one_of(value, &[("yes", true), ("no", false)])?,
        "users" => {
            policy.users = one_of(value, &[("wait", OnUsers::Wait), ("ignore", OnUsers::Ignore)])?;
        }
        "after_rollback" => {
            policy.after_rollback = one_of(
                value,
                &[("halt", AfterRollback::Halt), ("release", AfterRollback::Release)],
            )?;
        }
        "window" => policy.windows = Windows::new(vec![window(value)?]),
        "boot_free_mib" => policy.boot_free = u64::from(number(value)?) << 20,
        "attempt_limit" => policy.attempt_limit = number(value)?,
        other => {
            let place = time(policy, other)?;
            *place = duration(value)?;
        }
    }
    Ok(())
}

fn time<'a>(policy: &'a mut Policy, key: &str) -> Result<&'a mut Duration, String> {
    Ok(match key {
        "answer_timeout" => &mut policy.answer_timeout,
        "confirm_every" => &mut policy.confirm_every,
        "denial_retry" => &mut policy.denial_retry,
        "drain_deadline" => &mut policy.drain_deadline,
        "delete_timeout" => &mut policy.delete_timeout,
        "rehearsal_every" => &mut policy.rehearsal_every,
        "reboot_estimate" => &mut policy.reboot_estimate,
        "shutdown_wait" => &mut policy.shutdown_wait,
        "minimum_uptime" => &mut policy.minimum_uptime,
        "settle_time" => &mut policy.settle_time,
        "settle_deadline" => &mut policy.settle_deadline,
        "check_every" => &mut policy.check_every,
        "backoff_first" => &mut policy.backoff_first,
        "backoff_max" => &mut policy.backoff_max,
        _ => return Err("there is no such key".to_owned()),
    })
}

/// `"sun 02:00 4h Europe/Berlin"`.
fn window(text: &str) -> Result<Window, String> {
    let parts: Vec<&str> = text.split(' ').collect();
    let [days, start, length, zone] = parts.as_slice() else {
        return Err(format!("expected \"days start length zone\", found {text:?}"));
    };
    let days: Vec<&str> = days.split(',').collect();
    Window::new(&days, start, length, zone).map_err(|error| error.to_string())
}

fn one_of<T: Copy>(value: &str, table: &[(&str, T)]) -> Result<T, String> {
    table.iter().find(|(name, _)| *name == value).map(|(_, found)| *found).ok_or_else(|| {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}, found {value:?}", names.join(", "))
    })
}
