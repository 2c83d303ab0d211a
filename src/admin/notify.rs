//! What systemd is told: READY, STATUS, WATCHDOG, STOPPING.
//!
//! Without `$NOTIFY_SOCKET` nothing is sent. A message that systemd does not take is logged and
//! never stops the cycle.

use std::time::Duration;

use sd_notify::NotifyState;

use super::Snapshot;

/// A status longer than this is cut: `systemctl status` shows one line.
const STATUS_CHARACTERS_MAX: usize = 200;

/// Tells systemd. Keeps the last status, so that only changes are sent.
#[derive(Debug, Default)]
pub struct Notifier {
    status: Option<String>,
}

// === impl Notifier ===

impl Notifier {
    /// Nothing has been told yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The agent has started and its socket answers.
    pub fn ready(&self) {
        send(&[NotifyState::Ready]);
    }

    /// The one line of `systemctl status`: `state: reason`.
    pub fn status(&mut self, snapshot: &Snapshot) {
        let line = status_line(snapshot);
        if self.status.as_ref() != Some(&line) {
            send(&[NotifyState::Status(&line)]);
            self.status = Some(line);
        }
    }

    /// The loop is alive. Call it every [`watchdog_interval`], from the loop itself and from
    /// nowhere else, so that a loop that hangs is found.
    pub fn watchdog(&self) {
        send(&[NotifyState::Watchdog]);
    }

    /// The agent goes down on request.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping]);
    }
}

/// How often systemd wants to hear [`Notifier::watchdog`]: half of `WatchdogSec=`; `None`: never.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| limit / 2)
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd did not take a notification");
    }
}

fn status_line(snapshot: &Snapshot) -> String {
    let stage = snapshot.state.record.core.stage.name();
    let line = format!("{stage}: {}", snapshot.waiting);
    let one_line = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut cut: String = one_line.take(STATUS_CHARACTERS_MAX + 1).collect();
    if cut.chars().count() > STATUS_CHARACTERS_MAX {
        cut = cut.chars().take(STATUS_CHARACTERS_MAX - 1).chain(['…']).collect();
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::sample;
    use crate::lifecycle::Waiting;

    #[test]
    fn status_is_one_bounded_line() {
        let mut snapshot = sample::idle();
        assert_eq!(status_line(&snapshot), "idle: no update waits");
        snapshot.waiting = Waiting::SystemUnknown(Some(format!("a\nb{}", "ü".repeat(400))));
        let line = status_line(&snapshot);
        assert!(
            line.starts_with("idle: the update system cannot be read: a b") && line.ends_with('…')
        );
        assert_eq!(line.chars().count(), STATUS_CHARACTERS_MAX);
    }
}
