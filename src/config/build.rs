//! From the merged keys to the settings, and what keys must have to do with one another.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::lifecycle::{
    AfterRollback, KubernetesPolicy, OnDeadline, OnForeignUncordon, OnUsers, Policy, SlotPolicy,
};
use crate::model::Source;
use crate::schedule::{Openness, Windows, duration_text};

use super::error::ConfigError;
use super::merge::Merged;
use super::reading::Reading;
use super::settings::{
    AgentSettings, CoordinatorSettings, Credentials, DrainSettings, EmptyDir, GroupSettings,
    HealthSettings, MetricsSettings, NodeSettings, RebootSettings, Settings, SlotBackend,
    SlotServer, UnmanagedPods, UpdateSettings, ZincatiSettings,
};

/// Builds the settings of keys that are each right by themselves.
///
/// # Errors
/// A key without default: a fault in `default.toml`, which a test finds.
pub(super) fn settings(merged: &Merged) -> Result<Settings, ConfigError> {
    Ok(Settings {
        agent: AgentSettings {
            state_dir: path(merged, "agent.state_dir")?,
            run_dir: path(merged, "agent.run_dir")?,
            hold_file: path(merged, "agent.hold_file")?,
        },
        policy: policy(merged)?,
        node: node(merged)?,
        updates: updates(merged)?,
        slot: slot(merged)?,
        drain: drain(merged)?,
        reboot: RebootSettings { boot_dir: path(merged, "reboot.boot_dir")? },
        health: HealthSettings {
            units: texts(merged, "settle.units")?,
            checks_dir: path(merged, "settle.checks_dir")?,
            check_timeout: duration(merged, "settle.check_timeout")?,
        },
        metrics: MetricsSettings {
            listen: text(merged, "metrics.listen").and_then(|text| text.parse().ok()),
        },
        zincati: zincati(merged)?,
        coordinator: coordinator(merged)?,
    })
}

/// What is wrong between keys, each of which is right by itself.
pub(super) fn conflicts(merged: &Merged) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut expect = |keys: &[&'static str], holds: bool, expected: String| {
        let Some(key) = keys.first().copied() else { return };
        if !holds && !keys.iter().any(|key| merged.broken.contains(key)) {
            errors.push(ConfigError::Conflict { place: merged.place(key), key, expected });
        }
    };
    slot_conflicts(merged, &mut expect);
    let get = |key| duration(merged, key).unwrap_or_default();
    let (first, max) = (get("attempts.backoff_first"), get("attempts.backoff_max"));
    expect(
        &["attempts.backoff_max", "attempts.backoff_first"],
        max >= first,
        format!("at least attempts.backoff_first, which is {}", duration_text(first)),
    );
    let (time, deadline) = (get("settle.time"), get("settle.deadline"));
    expect(
        &["settle.deadline", "settle.time"],
        deadline > time,
        format!("more than settle.time, which is {}", duration_text(time)),
    );
    update_conflicts(merged, &mut expect);
    let state = path(merged, "agent.state_dir").unwrap_or_default();
    expect(
        &["agent.state_dir"],
        !["/run", "/dev", "/proc", "/sys", "/etc"].iter().any(|top| state.starts_with(top)),
        "a folder that outlives a reboot and a rollback, such as the default: the record of attempts \
         and the list of denied updates lie there; not in /run, and not in /etc"
            .to_owned(),
    );
    listen_conflicts(merged, &mut expect);
    let grace = get("drain.grace_period");
    expect(&["drain.grace_period"], grace.subsec_nanos() == 0, "whole seconds".to_owned());
    let needs = get("drain.deadline") + get("reboot.estimate");
    expect(
        &["windows", "drain.deadline", "reboot.estimate"],
        ever_fits(&windows(merged), needs),
        format!(
            "a window of at least {}, or no attempt ever starts: drain.deadline ({}) and \
             reboot.estimate ({}) must fit into it",
            duration_text(needs),
            duration_text(get("drain.deadline")),
            duration_text(get("reboot.estimate")),
        ),
    );
    errors
}

/// What must hold between the keys of `[updates]`.
fn update_conflicts(merged: &Merged, expect: &mut dyn FnMut(&[&'static str], bool, String)) {
    let named = texts(merged, "updates.sources").unwrap_or_default();
    let names = |name: &str| named.iter().any(|one| one == name);
    expect(
        &["updates.sources"],
        !names("auto") || named.len() == 1,
        "\"auto\" alone, or a list without it".to_owned(),
    );
    expect(
        &["updates.sources"],
        !(names("rpm-ostree") && names("update-engine")),
        "\"rpm-ostree\" or \"update-engine\": a host has one update system".to_owned(),
    );
}

/// What must hold between the keys of `[slot]`.
fn slot_conflicts(merged: &Merged, expect: &mut dyn FnMut(&[&'static str], bool, String)) {
    let set = |key| merged.get(key).is_some();
    let backend = text(merged, "slot.backend");
    let base_url = text(merged, "slot.base_url");
    expect(
        &["slot.base_url", "slot.backend"],
        backend.as_deref() != Some("fleetlock") || base_url.is_some(),
        "the URL of the server, since slot.backend is \"fleetlock\"".to_owned(),
    );
    expect(
        &["slot.backend", "slot.base_url"],
        backend.is_some() || base_url.is_none(),
        "\"fleetlock\" or \"none\", since slot.base_url is set".to_owned(),
    );
    for (one, other) in [
        ("slot.client_certificate", "slot.client_key"),
        ("slot.client_key", "slot.client_certificate"),
    ] {
        expect(&[one, other], !set(one) || set(other), format!("{other} beside it"));
    }
    let plain_http = base_url.is_some_and(|url| url.to_ascii_lowercase().starts_with("http://"));
    for key in ["slot.ca_file", "slot.client_certificate"] {
        expect(
            &[key, "slot.base_url"],
            !(plain_http && set(key)),
            "slot.base_url to begin with https://, or this would protect nothing".to_owned(),
        );
    }
}

/// Two sockets of this program on one host.
fn listen_conflicts(merged: &Merged, expect: &mut dyn FnMut(&[&'static str], bool, String)) {
    for (one, other) in [
        ("metrics.listen", "coordinator.listen"),
        ("zincati.listen", "coordinator.listen"),
        ("zincati.listen", "metrics.listen"),
    ] {
        let address = text(merged, one);
        expect(
            &[one, other],
            address.is_none() || address != text(merged, other),
            format!("another address than {other}"),
        );
    }
}

/// Whether an attempt fits into any window, whenever that is.
pub(crate) fn ever_fits(windows: &Windows, needs: Duration) -> bool {
    // The search spans a whole year of DST changes from any moment on; a fixed one, by today's
    // rules, so that a configuration is right or wrong whatever the clock says.
    const FIRST_OF_2026: Timestamp = Timestamp::constant(1_767_225_600, 0);
    match windows.openness(FIRST_OF_2026, needs) {
        Openness::Open { .. } | Openness::Closed { opens: Some(_), .. } => true,
        Openness::Closed { opens: None, .. } => false,
    }
}

fn policy(merged: &Merged) -> Result<Policy, ConfigError> {
    let get = |key| duration(merged, key);
    Ok(Policy {
        kubernetes: choice(
            merged,
            "node.kubernetes",
            &[
                ("auto", KubernetesPolicy::Auto),
                ("required", KubernetesPolicy::Required),
                ("none", KubernetesPolicy::None),
            ],
        )?,
        slot: slot_policy(merged)?,
        slot_place: slot_place(merged)?,
        answer_timeout: get("slot.answer_timeout")?,
        confirm_every: get("slot.confirm_every")?,
        denial_retry: get("slot.denial_retry")?,
        windows: windows(merged),
        drain_deadline: get("drain.deadline")?,
        on_deadline: choice(
            merged,
            "drain.on_deadline",
            &[
                ("yield", OnDeadline::Yield),
                ("delete", OnDeadline::Delete),
                ("reboot", OnDeadline::Reboot),
            ],
        )?,
        delete_timeout: get("drain.delete_timeout")?,
        on_foreign_uncordon: choice(
            merged,
            "drain.on_foreign_uncordon",
            &[("yield", OnForeignUncordon::Yield), ("cordon", OnForeignUncordon::Cordon)],
        )?,
        rehearsal_every: get("drain.rehearsal_every")?,
        reboot_estimate: get("reboot.estimate")?,
        shutdown_wait: get("reboot.shutdown_wait")?,
        zincati: zincati(merged)?.is_some(),
        users: choice(
            merged,
            "reboot.users",
            &[("wait", OnUsers::Wait), ("ignore", OnUsers::Ignore)],
        )?,
        minimum_uptime: get("reboot.minimum_uptime")?,
        boot_free: count(merged, "reboot.boot_free_mib")? << 20,
        settle_time: get("settle.time")?,
        settle_deadline: get("settle.deadline")?,
        check_every: get("settle.check_every")?,
        attempt_limit: small(count(merged, "attempts.limit")?),
        backoff_first: get("attempts.backoff_first")?,
        backoff_max: get("attempts.backoff_max")?,
        after_rollback: choice(
            merged,
            "attempts.after_rollback",
            &[("halt", AfterRollback::Halt), ("release", AfterRollback::Release)],
        )?,
    })
}

fn slot_policy(merged: &Merged) -> Result<SlotPolicy, ConfigError> {
    if text(merged, "slot.backend").is_none() {
        return Ok(SlotPolicy::Unset);
    }
    let only_node = matches!(merged.get("slot.only_node"), Some(Reading::Flag(true)));
    choice(
        merged,
        "slot.backend",
        &[("fleetlock", SlotPolicy::Server), ("none", SlotPolicy::None { only_node })],
    )
}

fn node(merged: &Merged) -> Result<NodeSettings, ConfigError> {
    let kubeconfig = texts(merged, "node.kubeconfig")?.into_iter().map(PathBuf::from).collect();
    Ok(NodeSettings {
        credentials: choice(
            merged,
            "node.credentials",
            &[
                ("kubeconfig", Credentials::Kubeconfig(kubeconfig)),
                ("in-cluster", Credentials::InCluster),
            ],
        )?,
        name: text(merged, "node.name"),
    })
}

fn updates(merged: &Merged) -> Result<UpdateSettings, ConfigError> {
    let named = texts(merged, "updates.sources")?;
    let all = [Source::RpmOstree, Source::UpdateEngine];
    let chosen = all.into_iter().filter(|source| named.iter().any(|name| name == source.name()));
    let automatic = named.iter().any(|name| name == "auto");
    Ok(UpdateSettings { sources: (!automatic).then(|| chosen.collect()) })
}

/// The place of a slot in one text: what must be the same for a release to find it.
fn slot_place(merged: &Merged) -> Result<Option<String>, ConfigError> {
    Ok(match slot(merged)? {
        Some(SlotBackend::FleetLock(server)) => Some(server.place()),
        Some(SlotBackend::None) | None => None,
    })
}

fn slot(merged: &Merged) -> Result<Option<SlotBackend>, ConfigError> {
    match slot_policy(merged)? {
        SlotPolicy::Unset => return Ok(None),
        SlotPolicy::None { .. } => return Ok(Some(SlotBackend::None)),
        SlotPolicy::Server => {}
    }
    let file = |key| text(merged, key).map(PathBuf::from);
    Ok(Some(SlotBackend::FleetLock(SlotServer {
        base_url: required(text(merged, "slot.base_url"), "slot.base_url")?,
        group: required(text(merged, "slot.group"), "slot.group")?,
        id: text(merged, "slot.id"),
        ca_file: file("slot.ca_file"),
        client_certificate: file("slot.client_certificate").zip(file("slot.client_key")),
        headers: headers(merged),
        proxy: text(merged, "slot.proxy"),
        connect_timeout: duration(merged, "slot.connect_timeout")?,
        answer_timeout: duration(merged, "slot.answer_timeout")?,
    })))
}

fn drain(merged: &Merged) -> Result<DrainSettings, ConfigError> {
    let grace_period = match merged.get("drain.grace_period") {
        Some(_) => Some(small(duration(merged, "drain.grace_period")?.as_secs())),
        None => None,
    };
    Ok(DrainSettings {
        parallel: usize::try_from(count(merged, "drain.parallel")?).unwrap_or(usize::MAX),
        unmanaged_pods: choice(
            merged,
            "drain.unmanaged_pods",
            &[
                ("leave", UnmanagedPods::Leave),
                ("evict", UnmanagedPods::Evict),
                ("refuse", UnmanagedPods::Refuse),
            ],
        )?,
        empty_dir: choice(
            merged,
            "drain.empty_dir",
            &[("evict", EmptyDir::Evict), ("refuse", EmptyDir::Refuse)],
        )?,
        grace_period,
        volume_detach_timeout: duration(merged, "drain.volume_detach_timeout")?,
        budget_retry: duration(merged, "drain.budget_retry")?,
    })
}

fn zincati(merged: &Merged) -> Result<Option<ZincatiSettings>, ConfigError> {
    let hold = duration(merged, "zincati.hold")?;
    let listen = text(merged, "zincati.listen").and_then(|text| text.parse().ok());
    Ok(listen.map(|listen| ZincatiSettings { listen, hold }))
}

fn coordinator(merged: &Merged) -> Result<CoordinatorSettings, ConfigError> {
    let listen: Option<SocketAddr> =
        text(merged, "coordinator.listen").and_then(|text| text.parse().ok());
    Ok(CoordinatorSettings {
        listen: required(listen, "coordinator.listen")?,
        state_dir: path(merged, "coordinator.state_dir")?,
        run_dir: path(merged, "coordinator.run_dir")?,
        groups: required(groups(merged), "coordinator.groups")?,
    })
}

// What follows asks for one kind of value. `None` is a key that is not set; `default.toml` sets each
// that must be.

fn text(merged: &Merged, key: &str) -> Option<String> {
    match merged.get(key) {
        Some(Reading::Text(text) | Reading::SecretText(text)) => Some(text.clone()),
        Some(_) | None => None,
    }
}

fn path(merged: &Merged, key: &'static str) -> Result<PathBuf, ConfigError> {
    required(text(merged, key).map(PathBuf::from), key)
}

fn duration(merged: &Merged, key: &'static str) -> Result<Duration, ConfigError> {
    match merged.get(key) {
        Some(Reading::Duration(duration)) => Ok(*duration),
        Some(_) | None => Err(ConfigError::NoDefault { key }),
    }
}

fn count(merged: &Merged, key: &'static str) -> Result<u64, ConfigError> {
    match merged.get(key) {
        Some(Reading::Count(count)) => Ok(*count),
        Some(_) | None => Err(ConfigError::NoDefault { key }),
    }
}

fn texts(merged: &Merged, key: &'static str) -> Result<Vec<String>, ConfigError> {
    match merged.get(key) {
        Some(Reading::Texts(texts)) => Ok(texts.clone()),
        Some(_) | None => Err(ConfigError::NoDefault { key }),
    }
}

fn headers(merged: &Merged) -> BTreeMap<String, String> {
    match merged.get("slot.headers") {
        Some(Reading::Headers(headers)) => headers.clone(),
        Some(_) | None => BTreeMap::new(),
    }
}

fn windows(merged: &Merged) -> Windows {
    match merged.get("windows") {
        Some(Reading::Windows(windows)) => Windows::new(windows.clone()),
        Some(_) | None => Windows::default(),
    }
}

fn groups(merged: &Merged) -> Option<Vec<GroupSettings>> {
    match merged.get("coordinator.groups") {
        Some(Reading::Groups(groups)) => Some(groups.clone()),
        Some(_) | None => None,
    }
}

fn choice<T: Clone>(
    merged: &Merged,
    key: &'static str,
    words: &[(&str, T)],
) -> Result<T, ConfigError> {
    let word = text(merged, key);
    let found = words.iter().find(|(name, _)| word.as_deref() == Some(*name));
    required(found.map(|(_, value)| value.clone()), key)
}

fn required<T>(value: Option<T>, key: &'static str) -> Result<T, ConfigError> {
    value.ok_or(ConfigError::NoDefault { key })
}

/// A number whose bounds, in the table of keys, are far below 2³².
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
