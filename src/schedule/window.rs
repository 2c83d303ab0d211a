//! Weekly reboot windows in a named zone, right over DST.

use std::time::Duration;

use jiff::Timestamp;

/// One weekly window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Placeholder until the rule is written.
    zone: jiff::tz::TimeZone,
}

/// All windows; none at all means: always.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Windows(Vec<Window>);

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}, found {found:?}")]
pub struct WindowError {
    /// The key that is wrong.
    pub key: &'static str,
    /// What it should be.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

/// What the windows say of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// Open, and the attempt fits.
    Open {
        /// Until when; `None`: for ever (no windows).
        until: Option<Timestamp>,
    },
    /// Not open, or what is left is too short.
    Closed {
        /// When the next one opens into which it fits; `None`: never.
        opens: Option<Timestamp>,
        /// One is open, but what is left of it is too short.
        too_short: bool,
    },
}

impl Windows {
    /// Whether something that takes `needs` may begin at `now`.
    pub fn openness(&self, now: Timestamp, needs: Duration) -> Openness {
        let _ = (now, needs, &self.0);
        Openness::Open { until: None }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
