//! The FleetLock protocol, both sides. Pure.

mod answer;

pub use answer::{ReleaseAnswer, SlotAnswer};
