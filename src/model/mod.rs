//! The words of the house: identities, targets and time. Pure.

mod ids;
mod now;
mod target;

pub use ids::{AttemptId, BootId, IdError, NodeUid};
pub use now::Now;
pub use target::{
    Deployment, Reading, SENTINEL_PREFIX, Source, SystemView, Target, UNKNOWN_VERSION,
};
