//! To come.

pub mod slot;
