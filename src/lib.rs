//! lockkeeper reboots the nodes of a cluster into their updates, one slot at a time.

pub mod admin;
pub mod agent;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod coordinator;
pub mod drain;
pub mod effects;
pub mod fleetlock;
pub mod lifecycle;
pub mod model;
pub mod schedule;
pub mod signals;
pub mod telemetry;
