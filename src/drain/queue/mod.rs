//! Whom to ask when: the pure state of a drain.
//!
//! The watch says what is there, answers say what was allowed, time is an argument, and out come
//! the requests to send now. Only the watch makes a pod count as gone.

mod answers;
mod choose;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::answer::Answer;
use super::classify::{
    Rules, Stays, Tier, Verdict, classify, controller, is_terminating, priority, volumes,
};
use super::pace::{Jitter, Pace};
use super::progress::{Obstacle, ObstacleKind};
use super::wish::Wish;

/// How long a pod that has ended may still be listed. Something holds the object then (a
/// finalizer), while nothing runs any more.
const FINISHED_WAIT: Duration = Duration::from_secs(30);

/// One pod, told apart from its namesakes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// How a pod is asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// By an eviction: budgets count.
    Evict,
    /// By a deletion: they do not.
    Delete,
}

/// One request to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Whom.
    pub pod: PodId,
    /// How.
    pub how: How,
}

/// A persistent volume claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How a drain behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way at once, at least 1; a pod that waits is none of them.
    pub parallel: usize,
    /// Longest time between two probes of an exhausted budget, before jitter.
    pub budget_retry: Duration,
    /// Evict, or delete past all budgets and without tiers.
    pub how: How,
}

/// How a drain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Pods are leaving, or have not been listed yet.
    Busy,
    /// The watch shows nothing that has to leave.
    Empty,
    /// Waiting does not help: these are refused, or a right is missing.
    Impossible(Vec<Obstacle>),
}

/// The state of a drain. Times count from any fixed moment.
#[derive(Debug)]
pub struct Queue {
    rules: Rules,
    limits: Limits,
    jitter: Jitter,
    listed: bool,
    /// Pods that have to leave, by UID.
    pods: BTreeMap<String, Entry>,
    /// Pods that stay and run, by UID, with their claims.
    staying: BTreeMap<String, Vec<Claim>>,
    /// Pods that a rule refuses, by UID.
    refused: BTreeMap<String, Obstacle>,
    gone: usize,
    in_flight: BTreeSet<String>,
    /// Gone by an answer, while the watch still shows them: never asked again.
    told_gone: BTreeSet<String>,
    budgets: BTreeMap<BudgetKey, Budget>,
    /// Which budget last refused a pod of this controller.
    owners: BTreeMap<String, BudgetKey>,
    /// Nothing is asked before.
    hold_until: Duration,
    /// Times in a row that no server answered.
    outages: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BudgetKey {
    namespace: String,
    name: String,
}

#[derive(Debug)]
struct Budget {
    pace: Pace,
    /// The pod that asks for all of them.
    probe: Option<String>,
    says: String,
}

#[derive(Debug)]
struct Entry {
    id: PodId,
    tier: Tier,
    priority: i32,
    owner: Option<String>,
    ready: bool,
    terminating: bool,
    /// It is not asked, since it ends by itself.
    completes: bool,
    how: How,
    /// Times that it was asked.
    asked: u32,
    /// Failures in a row.
    failures: u32,
    /// Times in a row that a right was missing.
    forbidden: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// To be asked, from this moment on.
    Due { from: Duration, because: Option<ObstacleKind> },
    /// Behind an exhausted budget.
    Behind(BudgetKey),
    /// Asked; the answer is under way. What it was kept back by before stays on show.
    Asking { because: Option<ObstacleKind> },
    /// On its way, or gone by an answer: the watch will tell.
    Leaving,
    /// It ends by itself and is not asked.
    Completing,
    /// Its containers have ended, the object is still there.
    Finished { since: Duration },
    /// The right to ask for it is missing.
    Forbidden(String),
}

// === impl PodId ===

impl PodId {
    /// The identity of a pod; `None`: it lacks a part, as no object of an API server does.
    pub fn of(pod: &Pod) -> Option<Self> {
        let ObjectMeta { uid, namespace, name, .. } = &pod.metadata;
        Some(Self { uid: uid.clone()?, namespace: namespace.clone()?, name: name.clone()? })
    }
}

// === impl Queue: what is seen ===

impl Queue {
    /// A drain that has seen nothing yet. `seed` scatters the waits.
    pub fn new(rules: Rules, limits: Limits, seed: u64) -> Self {
        Self {
            rules,
            limits: Limits { parallel: limits.parallel.max(1), ..limits },
            jitter: Jitter::new(seed),
            listed: false,
            pods: BTreeMap::new(),
            staying: BTreeMap::new(),
            refused: BTreeMap::new(),
            gone: 0,
            in_flight: BTreeSet::new(),
            told_gone: BTreeSet::new(),
            budgets: BTreeMap::new(),
            owners: BTreeMap::new(),
            hold_until: Duration::ZERO,
            outages: 0,
        }
    }

    /// The list or the watch shows a pod of this node, whose namespace says this about drains.
    pub fn seen(&mut self, pod: &Pod, namespace: Option<Wish>, now: Duration) {
        let Some(id) = PodId::of(pod) else { return };
        self.staying.remove(&id.uid);
        self.refused.remove(&id.uid);
        match classify(pod, namespace, &self.rules) {
            Verdict::Evict { tier } | Verdict::Await { tier } => {
                self.target(id, pod, tier, false, now);
            }
            Verdict::Complete { tier } => {
                // Past the deadline it is deleted like the others.
                let completes = self.limits.how == How::Evict;
                self.target(id, pod, tier, completes, now);
            }
            Verdict::Leave { why: Stays::Finished } => self.finished(id, pod, now),
            Verdict::Leave {
                why: Stays::Static | Stays::DaemonSet | Stays::Unmanaged | Stays::Skipped,
            } => {
                self.pods.remove(&id.uid);
                self.staying.insert(id.uid.clone(), claims(&id, pod));
            }
            Verdict::Refuse { rule } => {
                self.pods.remove(&id.uid);
                let kind = ObstacleKind::Refused { rule: rule.to_string() };
                self.refused.insert(id.uid.clone(), Obstacle::of(&id, kind));
            }
        }
    }

    /// The watch says that a pod has gone.
    pub fn gone(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.gone += 1;
        }
        self.staying.remove(uid);
        self.refused.remove(uid);
        self.told_gone.remove(uid);
    }

    /// A list is complete; what it does not name has gone.
    pub fn listed(&mut self, uids: &BTreeSet<String>) {
        self.listed = true;
        let known: Vec<String> = self
            .pods
            .keys()
            .chain(self.staying.keys())
            .chain(self.refused.keys())
            .filter(|uid| !uids.contains(*uid))
            .cloned()
            .collect();
        for uid in known {
            self.gone(&uid);
        }
    }

    fn target(&mut self, id: PodId, pod: &Pod, tier: Tier, completes: bool, now: Duration) {
        let how = self.limits.how;
        let entry = self.pods.entry(id.uid.clone()).or_insert_with(|| Entry {
            id,
            tier,
            priority: priority(pod),
            owner: controller(pod).map(|o| o.uid.clone()),
            ready: true,
            terminating: false,
            completes,
            how,
            asked: 0,
            failures: 0,
            forbidden: 0,
            state: State::Due { from: now, because: None },
        });
        entry.ready = is_ready(pod);
        entry.terminating = is_terminating(pod);
        entry.completes = completes;
        let leaving = entry.terminating || self.told_gone.contains(&entry.id.uid);
        if leaving && !matches!(entry.state, State::Asking { .. }) {
            entry.state = State::Leaving;
        }
        entry.complete(now);
    }

    /// A pod has ended. One that was to leave is waited for a little, since the kubelet takes its
    /// volumes apart before the object goes. So is one that a drain before this one has evicted.
    fn finished(&mut self, id: PodId, pod: &Pod, now: Duration) {
        let uid = id.uid.clone();
        if is_terminating(pod) && controller(pod).is_some() && !self.pods.contains_key(&uid) {
            self.target(id, pod, Tier::Ordinary, false, now);
        }
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        if !is_terminating(pod) && !self.in_flight.contains(&uid) {
            self.gone(&uid);
        } else if !matches!(entry.state, State::Finished { .. }) {
            entry.terminating = true;
            entry.state = State::Finished { since: now };
        }
    }
}

/// The claims of a pod; a generic ephemeral volume has one named after pod and volume.
fn claims(id: &PodId, pod: &Pod) -> Vec<Claim> {
    let named = volumes(pod).filter_map(|volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(claim.claim_name.clone());
        }
        volume.ephemeral.as_ref().map(|_| format!("{}-{}", id.name, volume.name))
    });
    named.map(|name| Claim { namespace: id.namespace.clone(), name }).collect()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True")
}
