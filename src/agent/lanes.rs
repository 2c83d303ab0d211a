//! Effects under way: one a lane, and an outcome counts only if its effect was not replaced.

use std::collections::BTreeMap;

use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::{Event, Lane};

/// The effects under way. They end with it.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    running: BTreeMap<Lane, Running>,
    tasks: JoinSet<Outcome>,
    generation: u64,
}

/// How an effect ended.
#[derive(Debug)]
struct Outcome {
    lane: Lane,
    generation: u64,
    event: Event,
}

#[derive(Debug)]
struct Running {
    generation: u64,
    task: AbortHandle,
    stop: CancellationToken,
}

impl Lanes {
    /// Begins an effect, which is handed the word to stop. One of the same lane that still runs is
    /// dropped, its outcome with it.
    pub(super) fn begin<F>(&mut self, lane: Lane, effect: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        if let Some(replaced) = self.running.remove(&lane) {
            replaced.task.abort();
        }
        self.generation += 1;
        let generation = self.generation;
        let stop = CancellationToken::new();
        let effect = effect(stop.clone());
        let task =
            self.tasks.spawn(async move { Outcome { lane, generation, event: effect.await } });
        self.running.insert(lane, Running { generation, task, stop });
    }

    /// Tells the effect in this lane to stop; its outcome still comes. `false`: there is none.
    pub(super) fn stop(&self, lane: Lane) -> bool {
        let running = self.running.get(&lane);
        if let Some(running) = running {
            running.stop.cancel();
        }
        running.is_some()
    }

    /// Waits for the next outcome that counts. Cancel-safe.
    ///
    /// # Errors
    /// An effect broke down without an outcome: the heart would wait for it for ever.
    pub(super) async fn next(&mut self) -> Result<Event, JoinError> {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(outcome)) => {
                    if let Some(event) = self.take(outcome) {
                        return Ok(event);
                    }
                }
                // It was replaced.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => return Err(error),
                None => std::future::pending().await,
            }
        }
    }

    /// The event of an outcome, unless its effect was replaced meanwhile.
    fn take(&mut self, outcome: Outcome) -> Option<Event> {
        if self.running.get(&outcome.lane)?.generation != outcome.generation {
            return None;
        }
        self.running.remove(&outcome.lane);
        Some(outcome.event)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::time::Duration;

    use super::*;

    async fn next(lanes: &mut Lanes) -> Result<Event, JoinError> {
        tokio::time::timeout(Duration::from_secs(20), lanes.next()).await.unwrap()
    }

    #[tokio::test]
    async fn an_effect_that_was_replaced_has_no_outcome() {
        let mut lanes = Lanes::default();
        // Has ended before it is replaced, and its outcome has not been taken.
        lanes.begin(Lane::Slot, async |_| Event::NotDone(Lane::Slot));
        tokio::task::yield_now().await;
        lanes.begin(Lane::Slot, |_| std::future::pending());
        lanes.begin(Lane::Slot, async |_| Event::Woke);
        lanes.begin(Lane::Node, async |_| Event::ClockSet);
        let mut heard = [next(&mut lanes).await.unwrap(), next(&mut lanes).await.unwrap()];
        heard.sort_by_key(|event| *event == Event::ClockSet);
        assert_eq!(heard, [Event::Woke, Event::ClockSet]);
        assert!(lanes.running.is_empty());
    }

    #[tokio::test]
    async fn one_that_is_told_to_stop_still_says_how_it_ended() {
        let mut lanes = Lanes::default();
        lanes.begin(Lane::Drain, |stop| async move {
            stop.cancelled().await;
            Event::Woke
        });
        assert!(!lanes.stop(Lane::Host));
        assert!(lanes.stop(Lane::Drain));
        assert_eq!(next(&mut lanes).await.unwrap(), Event::Woke);
        assert!(!lanes.stop(Lane::Drain));
    }

    #[tokio::test]
    async fn one_that_breaks_down_is_not_waited_for() {
        let mut lanes = Lanes::default();
        lanes.begin(Lane::Health, async |_| panic!("on purpose"));
        assert!(next(&mut lanes).await.unwrap_err().is_panic());
    }
}
