//! What the agent does to the world: one file a kind of effect.

pub mod announce;
pub mod boot;
pub mod command;
pub mod cordon;
pub mod evict;
pub mod health;
pub mod host;
pub mod reboot;
pub mod slot;
pub mod store;
pub mod update_coordinator;
