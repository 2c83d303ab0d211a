//! The agent towards people and machines that watch it: status, commands, metrics, systemd.
//!
//! Nothing here decides: a snapshot goes out, a command goes in to the loop.

mod advice;
mod client;
mod listen;
mod lock;
mod metrics;
mod notify;
#[cfg(test)]
pub(crate) mod sample;
mod schema;
mod socket;
mod status;
mod why;

use std::net::SocketAddr;
use std::path::PathBuf;

use std::time::Duration;

use tokio::sync::oneshot;

use crate::fleetlock::SlotPlace;
use crate::lifecycle::{Command, OnDeadline, State, Waiting, Wake};
use crate::model::Now;

pub use advice::{Advice, advice, next};
pub use client::{Client, ClientError};
pub use listen::ListenError;
pub use lock::{AgentLock, LockError};
pub use metrics::Metrics;
pub use notify::{Notifier, watchdog_interval};
pub use schema::{
    AnswerStatus, AttemptStatus, DeniedStatus, DrainStatus, FinishedStatus, GatesStatus, History,
    HoldStatus, ObstacleStatus, ReasonStatus, RehearsalStatus, SCHEMA, SlotStatus, StageStatus,
    Status, SystemStatus, TargetStatus, TriesStatus, WakeStatus,
};
pub use socket::{
    COMMAND_ANSWER_TIMEOUT, HoldRequest, REASON_CHARACTERS_MAX, Refusal, SayRequest, serve,
};
pub use status::waiting_since;
pub use why::Why;

/// Name of the admin socket in the run folder: root only.
pub const SOCKET_NAME: &str = "agent.sock";

/// Name of the metrics socket in the run folder: readable by all, it tells no secrets.
pub const METRICS_SOCKET_NAME: &str = "metrics.sock";

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
    /// How long a drain may take, and what happens then.
    pub drain: (Duration, OnDeadline),
    /// Who hands out the slot, in which group and as whom, for people.
    pub slot: Option<SlotPlace>,
    /// Why the configuration on disk is not the one in use, since a reload that failed.
    pub config_trouble: Option<String>,
    /// Version of the agent.
    pub version: &'static str,
}

/// A person's command on its way to the loop.
#[derive(Debug)]
pub struct Order {
    /// What is wanted.
    pub command: Command,
    /// Who says so: a user name on one line.
    pub by: String,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// Where people and machines find the agent.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Folder of the sockets; must exist.
    pub run_dir: PathBuf,
    /// TCP address for metrics; `None`: the unix socket only.
    pub metrics_listen: Option<SocketAddr>,
}
