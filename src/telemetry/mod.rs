//! What the journal is told: levels by audience, fields instead of prose, a `MESSAGE_ID` per kind.
//!
//! ERROR is what a person should look at now, WARN what somebody would be woken for if it stayed;
//! INFO is what a person reads afterwards; DEBUG is for those who look for a fault.

mod journal;
mod message;

use std::io;
use std::os::fd::AsFd;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

pub use journal::{held_up, transition, waiting};
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
/// What is ours is logged from `level` on, what comes from libraries only if DEBUG or TRACE is asked
/// for. A journal that does not answer is no reason to stay down: stderr takes its place, with a
/// warning.
///
/// # Errors
/// [`TelemetryError::Twice`], when called a second time.
pub fn init(to_journal: bool, level: LevelFilter) -> Result<(), TelemetryError> {
    let registry = tracing_subscriber::registry().with(filter(level));
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

/// Libraries call a connection that fails an error, each time anew, and a watch that breaks a
/// warning. To a node whose API server restarts, neither is; what of it matters, our own words say
/// once, with what follows from it.
fn filter(level: LevelFilter) -> EnvFilter {
    let libraries = if level >= LevelFilter::TRACE {
        LevelFilter::TRACE
    } else if level >= LevelFilter::DEBUG {
        LevelFilter::WARN
    } else {
        LevelFilter::OFF
    };
    EnvFilter::new(format!("{libraries},lockkeeper={level}"))
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

/// What is logged meanwhile on this thread, one line an entry, libraries and all.
#[cfg(test)]
pub(crate) fn heard(what: impl FnOnce()) -> String {
    tests::logged(LevelFilter::TRACE, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is written.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged at `level` meanwhile.
    pub(super) fn logged(level: LevelFilter, what: impl FnOnce()) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time();
        let subscriber = tracing_subscriber::registry().with(filter(level)).with(lines);
        tracing::subscriber::with_default(subscriber, what);
        let text = sink.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    /// Ours and libraries say the same at each level.
    fn everyone() {
        macro_rules! say {
            ($($target:literal)*) => {$(
                tracing::error!(target: $target, "x");
                tracing::warn!(target: $target, "x");
                tracing::info!(target: $target, "x");
                tracing::debug!(target: $target, "x");
            )*};
        }
        say!("lockkeeper::agent" "kube_client::client::builder" "kube_runtime::watcher"
            "hyper_util::client" "tower::buffer" "reqwest::connect" "zbus::connection");
    }

    #[test]
    fn libraries_are_heard_only_by_those_who_look_for_a_fault() {
        for (level, ours, theirs) in [
            (LevelFilter::WARN, 2, 0),
            (LevelFilter::INFO, 3, 0),
            (LevelFilter::DEBUG, 4, 2),
            (LevelFilter::TRACE, 4, 4),
        ] {
            let text = logged(level, everyone);
            let counted = text.lines().filter(|line| line.contains("lockkeeper::")).count();
            assert_eq!(counted, ours, "{level}:\n{text}");
            assert_eq!(text.lines().count() - counted, theirs * 6, "{level}:\n{text}");
        }
    }
}
