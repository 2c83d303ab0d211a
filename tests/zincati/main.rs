//! A Zincati and the bridge, on loopback, with a scripted heart between them.
//!
//! Zincati is the lab's stand-in, which asks, believes and comes again as the real one does; its clock
//! runs faster.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../lab/standin/src/zincati/mod.rs"]
mod zincati;

mod redirects;
mod rig;
mod stories;
