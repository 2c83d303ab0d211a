//! Every key and what its value may be. `default.toml` says what each is for.

use super::rules::{self, Rule};

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its dotted name.
    pub(super) name: &'static str,
    /// What its value may be.
    pub(super) shape: Shape,
}

/// What a value may be.
#[derive(Debug)]
pub(super) enum Shape {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A duration as text.
    Duration {
        /// The shortest.
        min: &'static str,
        /// The longest.
        max: &'static str,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text.
    Text(Rule),
    /// A text that may hold a password.
    SecretText(Rule),
    /// A list of texts, may be empty.
    Texts(Rule),
    /// A text, or a list with at least one.
    OneOrMore(Rule),
    /// A table of headers.
    Headers,
    /// `[[windows]]`.
    Windows,
    /// `[[coordinator.groups]]`.
    Groups,
}

/// The tables that keys are in; `windows` is a key without one.
pub(super) const TABLES: [&str; 12] = [
    "agent",
    "node",
    "updates",
    "slot",
    "drain",
    "reboot",
    "settle",
    "attempts",
    "metrics",
    "zincati",
    "coordinator",
    "windows",
];

/// Every key, in the order of `default.toml`.
pub(super) static KEYS: [Key; 57] = [
    key("agent.state_dir", Shape::Text(rules::PATH)),
    key("agent.run_dir", Shape::Text(rules::PATH)),
    key("agent.hold_file", Shape::Text(rules::PATH)),
    key("node.kubernetes", Shape::Choice(&["auto", "required", "none"])),
    key("node.credentials", Shape::Choice(&["kubeconfig", "in-cluster"])),
    key("node.kubeconfig", Shape::OneOrMore(rules::PATH)),
    key("node.name", Shape::Text(rules::NODE_NAME)),
    key("updates.sources", Shape::OneOrMore(rules::SOURCE)),
    key("slot.backend", Shape::Choice(&["fleetlock", "none"])),
    key("slot.only_node", Shape::Flag),
    key("slot.base_url", Shape::SecretText(rules::BASE_URL)),
    key("slot.group", Shape::Text(rules::GROUP)),
    key("slot.id", Shape::Text(rules::ID)),
    key("slot.ca_file", Shape::Text(rules::PATH)),
    key("slot.client_certificate", Shape::Text(rules::PATH)),
    key("slot.client_key", Shape::Text(rules::PATH)),
    key("slot.headers", Shape::Headers),
    key("slot.proxy", Shape::SecretText(rules::PROXY)),
    key("slot.connect_timeout", duration("1s", "5m")),
    key("slot.answer_timeout", duration("1s", "24h")),
    key("slot.confirm_every", duration("10s", "1h")),
    key("slot.denial_retry", duration("1s", "1h")),
    key("windows", Shape::Windows),
    key("drain.deadline", duration("1s", "24h")),
    key("drain.on_deadline", Shape::Choice(&["yield", "delete", "reboot"])),
    key("drain.on_foreign_uncordon", Shape::Choice(&["yield", "cordon"])),
    key("drain.rehearsal_every", duration("10s", "24h")),
    key("drain.parallel", Shape::Count { min: 1, max: 100 }),
    key("drain.unmanaged_pods", Shape::Choice(&["leave", "evict", "refuse"])),
    key("drain.empty_dir", Shape::Choice(&["evict", "refuse"])),
    key("drain.grace_period", duration("1s", "24h")),
    key("drain.volume_detach_timeout", duration("0s", "1h")),
    key("drain.budget_retry", duration("1s", "10m")),
    key("drain.delete_timeout", duration("1s", "1h")),
    key("reboot.estimate", duration("1s", "24h")),
    key("reboot.shutdown_wait", duration("1s", "1h")),
    key("reboot.users", Shape::Choice(&["wait", "ignore"])),
    key("reboot.minimum_uptime", duration("0s", "24h")),
    key("reboot.boot_dir", Shape::Text(rules::PATH)),
    key("reboot.boot_free_mib", Shape::Count { min: 0, max: 1_000_000 }),
    key("settle.time", duration("1s", "1h")),
    key("settle.deadline", duration("2s", "24h")),
    key("settle.check_every", duration("1s", "10m")),
    key("settle.units", Shape::Texts(rules::UNIT)),
    key("settle.checks_dir", Shape::Text(rules::PATH)),
    key("settle.check_timeout", duration("1s", "1h")),
    key("attempts.limit", Shape::Count { min: 1, max: 100 }),
    key("attempts.backoff_first", duration("1s", "24h")),
    key("attempts.backoff_max", duration("1s", "7d")),
    key("attempts.after_rollback", Shape::Choice(&["halt", "release"])),
    key("metrics.listen", Shape::Text(rules::LISTEN)),
    key("zincati.listen", Shape::Text(rules::LOOPBACK)),
    key("zincati.hold", duration("10s", "28m")),
    key("coordinator.listen", Shape::Text(rules::LISTEN_ANY)),
    key("coordinator.state_dir", Shape::Text(rules::PATH)),
    key("coordinator.run_dir", Shape::Text(rules::PATH)),
    key("coordinator.groups", Shape::Groups),
];

/// Finds a key.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that `name` most likely was meant to be: the same word in another table, or few
/// letters away.
pub(super) fn nearest<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    // Longer texts are no slips of the pen, and comparing them costs.
    const LENGTH_MAX: usize = 64;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let word = |name: &str| name.rsplit_once('.').map_or(name, |(_, word)| word).to_owned();
    // Two letters that changed places are two steps.
    let allowed = if name.chars().count() < 4 { 1 } else { 2 };
    known
        .clone()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
        .or_else(|| known.clone().find(|candidate| word(candidate) == word(name)))
}

/// Letters to add, take away or change to make one text the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.chars().enumerate() {
        let mut diagonal = n;
        let mut left = n + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&other) {
            let changed = diagonal + usize::from(a != *b);
            diagonal = *cell;
            *cell = changed.min(left + 1).min(diagonal + 1);
            left = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = n + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// A row of the table.
const fn key(name: &'static str, shape: Shape) -> Key {
    Key { name, shape }
}

/// A duration within bounds.
const fn duration(min: &'static str, max: &'static str) -> Shape {
    Shape::Duration { min, max }
}
