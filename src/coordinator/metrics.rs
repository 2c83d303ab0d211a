//! What the coordinator tells Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::desk::View;
use super::slots::Policies;

/// Content type of OpenMetrics text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The coordinator's numbers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    slots: Family<GroupLabel, Gauge>,
    holders: Family<GroupLabel, Gauge>,
    held_since: Family<HolderLabel, Gauge>,
    requests: Family<RequestLabel, Counter>,
    writes: Gauge,
    failed_writes: Gauge,
    store_ok: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HolderLabel {
    group: String,
    id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    api: &'static str,
    group: String,
    kind: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// All of them, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("lockkeeper_coordinator");
        let slots = Family::default();
        let holders = Family::default();
        let held_since = Family::default();
        let requests = Family::default();
        let (writes, failed_writes, store_ok) = Default::default();
        registry.register("slots", "Slots of a group", Family::clone(&slots));
        registry.register("holders", "Slots of a group that are held", Family::clone(&holders));
        registry.register(
            "held_since_seconds",
            "When a holder got its slot, seconds since 1970",
            Family::clone(&held_since),
        );
        registry.register(
            "requests",
            "Requests by path, group and the kind of their answer",
            Family::clone(&requests),
        );
        registry.register("store_writes", "Writes of the store", Gauge::clone(&writes));
        registry.register(
            "store_failed_writes",
            "Writes of the store that failed",
            Gauge::clone(&failed_writes),
        );
        registry.register("store_ok", "1 while the last write succeeded", Gauge::clone(&store_ok));
        Self(Arc::new(Inner {
            registry,
            slots,
            holders,
            held_since,
            requests,
            writes,
            failed_writes,
            store_ok,
        }))
    }

    /// Counts one answer. A group that is not configured is no label of its own.
    pub(super) fn count(&self, api: &'static str, group: Option<&str>, kind: &'static str) {
        let group = group.unwrap_or_default().to_owned();
        self.0.requests.get_or_create(&RequestLabel { api, group, kind }).inc();
    }

    /// The text for a scraper, over what is on disk now.
    pub(super) fn text(&self, view: &View, policies: &Policies) -> Result<String, fmt::Error> {
        let inner = &*self.0;
        inner.held_since.clear();
        for (group, policy) in policies {
            let label = GroupLabel { group: group.clone() };
            inner.slots.get_or_create(&label).set(policy.slots.into());
            inner.holders.get_or_create(&label).set(0);
        }
        for (group, held) in &view.slots.groups {
            let label = GroupLabel { group: group.clone() };
            let count = i64::try_from(held.holders.len()).unwrap_or(i64::MAX);
            inner.holders.get_or_create(&label).set(count);
            for holder in &held.holders {
                let label = HolderLabel { group: group.clone(), id: holder.id.clone() };
                inner.held_since.get_or_create(&label).set(holder.since.as_second());
            }
        }
        let as_gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        inner.writes.set(as_gauge(view.writes));
        inner.failed_writes.set(as_gauge(view.failed_writes));
        inner.store_ok.set(view.trouble.is_none().into());
        let mut text = String::new();
        encode(&mut text, &inner.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
