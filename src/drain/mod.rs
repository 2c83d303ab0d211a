//! Which pods leave the node, and what an answer to an eviction means. Pure.

mod progress;

pub use progress::{Obstacle, ObstacleKind, Progress};
