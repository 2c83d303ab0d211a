//! The agent towards people and machines that watch it: status, commands, metrics, systemd.

use crate::lifecycle::{State, Waiting, Wake};
use crate::model::Now;

/// What the loop publishes after each step.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The heart's memory after the step.
    pub state: State,
    /// Why nothing more is done.
    pub waiting: Waiting,
    /// When the heart wants to be woken.
    pub wake: Option<Wake>,
    /// When the step was made.
    pub at: Now,
    /// The own Node's name, once it is known.
    pub node_name: Option<String>,
    /// Who hands out the slot, for people.
    pub slot_server: Option<String>,
    /// Version of the agent.
    pub version: &'static str,
}
