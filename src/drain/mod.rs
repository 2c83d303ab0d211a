//! Which pods leave the node, and what an answer to an eviction means. Pure.
//!
//! [`classify()`] is the only filter; rehearsal, drain and the last look share it. [`judge`] reads an
//! answer. [`Queue`] decides whom to ask when.

mod answer;
mod classify;
mod pace;
mod progress;
mod queue;
mod wish;

pub use answer::{Answer, Cause, Reply, judge};
pub use classify::{
    EmptyDirs, RefusalRule, Rules, Stays, Tier, Unmanaged, Verdict, asks_its_namespace, classify,
};
pub use progress::{Obstacle, ObstacleKind, Progress, in_order};
pub use queue::{Ask, Claim, How, Limits, PodId, Queue, Standing};
pub use wish::{DRAIN, UnknownWish, Wish, wish_of};
