//! What the journal is told: levels by audience, fields instead of prose, a `MESSAGE_ID` per kind.
//!
//! WARN means that somebody would be woken for it; INFO is what a person reads afterwards; DEBUG is
//! for those who look for a fault.

mod journal;
mod message;

use std::io;
use std::os::fd::AsFd;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

pub use journal::{transition, waiting};
pub use message::Message;

/// What `journalctl -t` finds us by.
pub const SYSLOG_IDENTIFIER: &str = "lockkeeper";

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Something else has been set up in this process.
    #[error("logging is set up already")]
    Twice(#[source] TryInitError),
}

/// Sets up logging for this process: to the journal's own socket, else in lines to stderr.
///
/// What is ours is logged from `level` on, what comes from libraries from WARN on. A journal that
/// does not answer is no reason to stay down: stderr takes its place, with a warning.
///
/// # Errors
/// [`TelemetryError::Twice`], when called a second time.
pub fn init(to_journal: bool, level: LevelFilter) -> Result<(), TelemetryError> {
    // kube's client logs each failed request as an ERROR. What a failure means is ours to say, and a
    // server that is away for a while is no error; who looks for a fault sees it.
    let client = if level >= LevelFilter::DEBUG { "warn" } else { "off" };
    let filter = EnvFilter::new(format!("warn,kube_client={client},lockkeeper={level}"));
    let registry = tracing_subscriber::registry().with(filter);
    let mut trouble = None;
    if to_journal {
        match journal_layer() {
            Ok(journal) => return registry.with(journal).try_init().map_err(TelemetryError::Twice),
            Err(error) => trouble = Some(error),
        }
    }
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    registry.with(lines).try_init().map_err(TelemetryError::Twice)?;
    if let Some(error) = trouble {
        tracing::warn!(%error, "the journal does not answer; logging to stderr");
    }
    Ok(())
}

/// Whether stderr is a stream of the journal: `$JOURNAL_STREAM` names its device and inode.
pub fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = nix::sys::stat::fstat(io::stderr().as_fd()) else { return false };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// The journal layer, without its defaults: no prefix before our fields, so that `message_id`
/// becomes a `MESSAGE_ID`, and INFO as `info` (6), not as `notice`.
fn journal_layer() -> io::Result<tracing_journald::Layer> {
    Ok(tracing_journald::layer()?
        .with_field_prefix(None)
        .with_syslog_identifier(SYSLOG_IDENTIFIER.to_owned())
        .with_priority_mappings(tracing_journald::PriorityMappings {
            info: tracing_journald::Priority::Informational,
            debug: tracing_journald::Priority::Debug,
            ..tracing_journald::PriorityMappings::new()
        }))
}
