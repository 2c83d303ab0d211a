//! Windows in a zone, and back-off. Pure.

mod backoff;
mod window;

pub use backoff::{backoff, jittered};
pub use window::{Openness, Window, WindowError, Windows};
