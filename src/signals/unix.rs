//! Signals of the operating system.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnixSignal {
    /// SIGTERM or SIGINT: end in order.
    Stop,
    /// A second one of them: end now.
    Abort,
    /// SIGHUP: load the configuration anew.
    Reload,
}

/// The signals that this process listens to.
#[derive(Debug)]
pub struct UnixSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    stopping: bool,
}

impl UnixSignals {
    /// Takes the signals over from their default actions.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            stopping: false,
        })
    }

    /// Waits for the next one. Cancel-safe.
    pub async fn next(&mut self) -> UnixSignal {
        let came = tokio::select! {
            came = self.terminate.recv() => came.map(|()| true),
            came = self.interrupt.recv() => came.map(|()| true),
            came = self.hangup.recv() => came.map(|()| false),
        };
        match came {
            Some(true) if self.stopping => UnixSignal::Abort,
            Some(true) => {
                self.stopping = true;
                UnixSignal::Stop
            }
            Some(false) => UnixSignal::Reload,
            // tokio never ends these streams; if it did, there would be nothing more to say.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use nix::sys::signal::{Signal as Number, raise};

    #[tokio::test]
    async fn a_second_stop_aborts_and_a_hangup_does_not_count() {
        let mut signals = UnixSignals::new().unwrap();
        let mut heard = Vec::new();
        for number in [Number::SIGHUP, Number::SIGTERM, Number::SIGHUP, Number::SIGINT] {
            raise(number).unwrap();
            heard.push(signals.next().await);
        }
        assert_eq!(
            heard,
            [UnixSignal::Reload, UnixSignal::Stop, UnixSignal::Reload, UnixSignal::Abort]
        );
    }
}
