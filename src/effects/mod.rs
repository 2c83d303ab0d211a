//! What the agent does to the world: one file a kind of effect.

pub mod store;
//! Everything that the agent does to the world, one file a kind of effect.

pub mod announce;
pub mod cordon;
pub mod evict;
//! To come.

pub mod slot;
//! What the agent does to the world, one file a kind.

pub mod boot;
pub mod command;
pub mod health;
pub mod host;
pub mod reboot;
