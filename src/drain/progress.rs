//! How far a drain is and what stands in its way, in words that a person can act on.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::answer::says;
use super::queue::PodId;

/// Why a pod does not leave.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ObstacleKind {
    /// A disruption budget allows no disruption now (429 with cause `DisruptionBudget`).
    Budget {
        /// Name of the budget, where the server gave one.
        budget: Option<String>,
        /// The server's own words: how many are needed and how many there are.
        says: String,
    },
    /// More than one budget matches the pod, which the API refuses for good (500).
    SeveralBudgets {
        /// The server's own words.
        says: String,
    },
    /// The configuration refuses to drain it (no controller, or emptyDir).
    Refused {
        /// Which rule refuses.
        rule: String,
    },
    /// The identity of the agent may not evict it.
    Forbidden {
        /// The server's own words.
        says: String,
    },
    /// It was evicted and has not gone yet.
    Terminating,
    /// It says that it ends by itself, and has not yet.
    Completing,
    /// It came late or came back: it is there at the last look.
    Present,
    /// The API server is busy or failing; the eviction is asked again.
    Api {
        /// What it answered.
        says: String,
    },
}

/// One pod that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Obstacle {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Why it does not leave.
    #[serde(flatten)]
    pub kind: ObstacleKind,
}

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Pods that the drain has to move, those that have gone included.
    pub total: usize,
    /// Pods that have gone.
    pub gone: usize,
    /// What stands in the way, in a stable order (namespace, pod).
    pub obstacles: Vec<Obstacle>,
    /// Volumes that are still attached once all pods have gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

/// Obstacles in the order in which people see them, the same each time: namespace, then pod.
pub fn in_order(mut obstacles: Vec<Obstacle>) -> Vec<Obstacle> {
    obstacles.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
    obstacles
}

// === impl Obstacle ===

impl Obstacle {
    /// This pod stands in the way.
    pub fn of(pod: &PodId, kind: ObstacleKind) -> Self {
        Self { namespace: says(&pod.namespace), pod: says(&pod.name), kind }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.namespace.as_str(), self.pod.as_str()) {
            ("*", "*") => f.write_str("the pods cannot be seen: ")?,
            (namespace, pod) => write!(f, "{namespace}/{pod}: ")?,
        }
        match &self.kind {
            ObstacleKind::Budget { budget: Some(budget), says } => {
                write!(f, "disruption budget {budget}: {says}")
            }
            ObstacleKind::Budget { budget: None, says } => write!(f, "disruption budget: {says}"),
            ObstacleKind::SeveralBudgets { says } => {
                write!(f, "more than one disruption budget matches it: {says}")
            }
            ObstacleKind::Refused { rule } => write!(f, "refused by {rule}"),
            ObstacleKind::Forbidden { says } => write!(f, "not allowed: {says}"),
            ObstacleKind::Terminating => f.write_str("is terminating"),
            ObstacleKind::Completing => {
                f.write_str("has not ended by itself yet (lockkeeper.dev/drain = wait-completed)")
            }
            ObstacleKind::Present => f.write_str("came late or came back"),
            ObstacleKind::Api { says } => write!(f, "API server: {says}"),
        }
    }
}
