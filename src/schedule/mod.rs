//! Windows in a zone, back-off, and durations as people write them. Pure.

mod backoff;
mod duration;
mod window;

pub use backoff::{backoff, jittered};
pub use duration::{DURATION_EXPECTED, duration_text, parse_duration};
pub use window::{LENGTH_MAX, Openness, Window, WindowError, Windows};
