//! Hands out the slots: a FleetLock server over one semaphore a group.
//!
//! ```text
//! server ──┐
//! admin  ──┴─► desk ─► slots::decide (pure) ─► store (one fsync for all that wait) ─► answers
//! ```
//!
//! The desk is the only one that changes anything, and no answer leaves before what it says is on
//! disk.

pub mod admin;
mod desk;
mod line;
mod metrics;
mod server;
pub mod slots;
pub mod store;

#[cfg(test)]
mod tests;

pub use crate::listen::BoundedListener;
pub use desk::{Desk, DeskError, View};
pub use metrics::Metrics;
pub use server::{ANSWER_WITHIN, serve};
