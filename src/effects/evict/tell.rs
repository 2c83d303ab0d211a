//! Telling the heart how far the drain is, often enough for people and not more.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::drain::Progress;
use crate::lifecycle::Event;

/// Least time between two tellings.
const EVERY: Duration = Duration::from_millis(500);

/// Sends progress when it has changed, at most twice a second. Never waits: a loop that is behind
/// gets the newest state later.
#[derive(Debug)]
pub(super) struct Teller {
    events: mpsc::Sender<Event>,
    told: Option<Progress>,
    told_at: Option<Instant>,
    pending: Option<Progress>,
}

impl Teller {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, told: None, told_at: None, pending: None }
    }

    /// This is how far it is now.
    pub(super) fn tell(&mut self, progress: Progress) {
        if self.told.as_ref() == Some(&progress) {
            self.pending = None;
            return;
        }
        self.pending = Some(progress);
        if self.due().is_none_or(|due| due <= Instant::now()) {
            self.last();
        }
    }

    /// When what is pending should be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.as_ref()?;
        Some(self.told_at? + EVERY)
    }

    /// Tells what is pending at once.
    pub(super) fn last(&mut self) {
        let Some(progress) = self.pending.take() else { return };
        self.told_at = Some(Instant::now());
        match self.events.try_send(Event::DrainProgress(progress.clone())) {
            Ok(()) => self.told = Some(progress),
            Err(mpsc::error::TrySendError::Full(_)) => self.pending = Some(progress),
            Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }
}
