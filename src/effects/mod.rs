//! What the agent does to the world, one file a kind.

pub mod boot;
pub mod command;
pub mod health;
pub mod host;
pub mod reboot;
