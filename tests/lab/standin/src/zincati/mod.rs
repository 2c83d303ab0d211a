//! Zincati 0.0.32 as a slot server sees it: what it sends, what it takes for a grant, and when it
//! comes again. What it asks the update server for is left out: an update is what lies staged.
//!
//! It knows nothing of the rest of the stand-in but where that runs as a program, so that tests of the
//! agent can use it too.

pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod machine;
