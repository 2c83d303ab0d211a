//! The bridge on loopback, with the test in the place of the heart.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod callers;
mod grants;
mod news;
pub(super) mod rig;
