//! To come.

pub mod coordinator;
pub mod slots;
