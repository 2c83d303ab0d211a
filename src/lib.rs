//! lockkeeper reboots the nodes of a cluster into their updates, a bounded number at a time.
//!
//! ```text
//! signals/ ──Event──► lifecycle::step ──Step──► effects/store ──► effects/* ──outcome Event──► (back)
//! ```
//!
//! The rooms, in reading order. A room uses those above it only; `tests/tidy` holds them to that.
//! ARCHITECTURE.md has the promises, the stages and the decisions.
//!
//! **Architecture Invariant:** the pure rooms (model, schedule, drain, fleetlock, lifecycle,
//! `coordinator::slots`) know no runtime, bus, HTTP, log, file, environment or clock.
//!
//! **Architecture Invariant:** nothing polls while all is well, and nothing from outside can panic
//! the process.

pub mod model;

pub mod schedule;

pub mod drain;
pub mod fleetlock;

pub mod lifecycle;

pub mod config;

pub mod listen;

pub mod cluster;

pub mod effects;
pub mod signals;

pub mod admin;
pub mod telemetry;

pub mod coordinator;

pub mod agent;

pub mod cli;
