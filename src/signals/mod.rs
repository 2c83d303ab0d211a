//! Everything that wakes the agent, one file a source.

pub mod node;
