//! Effects under way: one a lane, and an outcome counts only if its effect was not replaced.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::{Effect, Event, Lane};

use super::hands::Hands;

/// How an effect ended.
#[derive(Debug)]
pub(super) struct Outcome {
    lane: Lane,
    generation: u64,
    event: Option<Event>,
}

#[derive(Debug)]
struct Running {
    generation: u64,
    task: AbortHandle,
    stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Lanes {
    running: BTreeMap<Lane, Running>,
    generation: u64,
    outcomes: mpsc::Sender<Outcome>,
    events: mpsc::Sender<Event>,
}

impl Lanes {
    pub(super) fn new(outcomes: mpsc::Sender<Outcome>, events: mpsc::Sender<Event>) -> Self {
        Self { running: BTreeMap::new(), generation: 0, outcomes, events }
    }

    /// Begins an effect; one of the same lane that still runs is dropped, its outcome with it.
    pub(super) fn begin(&mut self, hands: Hands, effect: Effect) {
        let lane = effect.lane();
        if effect == Effect::StopDrain {
            if let Some(running) = self.running.get(&lane) {
                running.stop.cancel();
            }
            return;
        }
        if let Some(replaced) = self.running.remove(&lane) {
            replaced.task.abort();
        }
        self.generation += 1;
        let generation = self.generation;
        let (outcomes, events) = (self.outcomes.clone(), self.events.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let event = Box::pin(hands.perform(effect, events, stopped)).await;
            // The loop is gone only when the process ends.
            let _ = outcomes.send(Outcome { lane, generation, event }).await;
        });
        self.running.insert(lane, Running { generation, task: task.abort_handle(), stop });
    }

    /// The event of an outcome, unless its effect was replaced meanwhile.
    pub(super) fn take(&mut self, outcome: Outcome) -> Option<Event> {
        let current = self.running.get(&outcome.lane)?;
        if current.generation != outcome.generation {
            return None;
        }
        self.running.remove(&outcome.lane);
        outcome.event
    }
}
