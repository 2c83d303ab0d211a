//! Time as an argument.

use std::time::Duration;

use jiff::Timestamp;

/// The moment in which a decision is made: both clocks, read once by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Now {
    /// Wall time, for windows and for people. It jumps.
    pub wall: Timestamp,
    /// `CLOCK_BOOTTIME`, for timeouts. Never compared across boot ids; in a container it does not
    /// start at zero.
    pub since_boot: Duration,
}
