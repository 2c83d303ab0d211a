//! The only loop: events in, steps out, the record written before what needs it.

mod hands;
mod lanes;
mod rights;
mod setup;
mod sources;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use crate::admin::{Metrics, Notifier, Order, Snapshot, watchdog_interval};
use crate::drain::{ObstacleKind, Progress};
use crate::effects::announce::{Announcement, Announcer};
use crate::effects::store::Store;
use crate::lifecycle::{
    self, Command, Cordon, Core, Effect, Event, Policy, Record, Slot, Stage, State, Step,
};
use crate::signals::clock;
use crate::signals::unix::{UnixSignal, UnixSignals};
use crate::signals::zincati::Desk;
use crate::telemetry;

use hands::Hands;
use lanes::Lanes;

/// Events that may wait: a burst of watch and bus signals, far below what memory minds.
const EVENTS_WAITING: usize = 256;

/// How often a record that could not be written is tried again.
const STORE_RETRY: Duration = Duration::from_secs(10);
/// More pods than anyone reads of in a journal; the status shows all.
const TOLD_PODS_MAX: usize = 50;

/// The loop's own memory.
struct Agent {
    root: PathBuf,
    policy: Policy,
    state: State,
    store: Store,
    /// What is on disk; `None`: nothing that was written by this process.
    written: Option<Record>,
    write_failed: bool,
    hands: Hands,
    lanes: Lanes,
    events_in: mpsc::Sender<Event>,
    snapshots: watch::Sender<Snapshot>,
    metrics: Metrics,
    notifier: Notifier,
    announcer: Option<Announcer>,
    wake: std::pin::Pin<Box<Sleep>>,
    awake: bool,
    last_reason: Option<&'static str>,
    /// Pods that were told to hold the drain up, while it runs.
    told_pods: BTreeSet<(String, String)>,
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// The configuration is wrong, another agent runs on this host, a source of events ended, or an
/// effect broke down.
pub async fn run(root: PathBuf) -> anyhow::Result<()> {
    let signals = UnixSignals::new().context("cannot listen to signals")?;
    let setup::Ready { mut agent, first, channels, _lock } = setup::prepare(root).await?;
    let mut sources = sources::spawn(&agent, &channels);
    agent.accept(first).await;
    agent.notifier.ready();
    let result = agent.serve(signals, channels, &mut sources).await;
    agent.notifier.stopping();
    sources.abort_all();
    result
}

/// What the loop listens to.
struct Channels {
    events: mpsc::Receiver<Event>,
    orders: mpsc::Receiver<Order>,
    orders_in: mpsc::Sender<Order>,
}

/// What outlasts the agent, and what to do about it; `None`: nothing does.
fn left_behind(core: &Core) -> Option<String> {
    let cordon = core.cordon == Cordon::Ours;
    let what = match (core.slot, cordon) {
        (Slot::None, false) => return None,
        (Slot::None, true) => "the cordon stays",
        (Slot::Asked | Slot::Held { .. }, false) => "the slot may still be held",
        (Slot::Asked | Slot::Held { .. }, true) => {
            "the cordon stays and the slot may still be held"
        }
    };
    let otherwise = "to turn back instead, start it, say `lockkeeper hold REASON`, and stop it \
                     once both are undone";
    Some(format!("{what}; the next start of lockkeeper goes on with the attempt; {otherwise}"))
}

/// What a call of Zincati is told once its time is over, and that it may go on looking for updates once
/// this boot has been proved well.
fn tell_zincati(desk: &Desk, step: &Step) {
    desk.say(step.waiting.code(), &step.waiting.to_string());
    if matches!(step.next.record.core.stage, Stage::Idle | Stage::Waiting) {
        desk.steady();
    }
}

impl Agent {
    async fn serve(
        &mut self,
        mut signals: UnixSignals,
        mut channels: Channels,
        sources: &mut sources::Sources,
    ) -> anyhow::Result<()> {
        let watchdog = watchdog_interval().map(clock::Ticker::new).transpose();
        let mut watchdog = watchdog.context("cannot keep the watchdog's time")?;
        self.notifier.watchdog();
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    UnixSignal::Stop => break,
                    UnixSignal::Abort => anyhow::bail!("told twice to stop"),
                    UnixSignal::Reload => self.reload().await,
                },
                Some(event) = channels.events.recv() => self.feed(event).await,
                outcome = self.lanes.next() => {
                    let event = outcome.context("an effect broke down")?;
                    if let Event::SlotAnswered(answer) = &event {
                        self.metrics.slot_answer(answer);
                    }
                    self.feed(event).await;
                }
                Some(order) = channels.orders.recv() => self.obey(order).await,
                () = &mut self.wake, if self.awake => {
                    self.awake = false;
                    self.feed(Event::Woke).await;
                }
                () = clock::tick(&mut watchdog) => self.notifier.watchdog(),
                ended = sources.join_next() => {
                    anyhow::bail!("a source of events ended: {ended:?}");
                }
            }
        }
        if let Some(desk) = &self.hands.zincati {
            desk.refuse("agent-stops", "lockkeeper was told to stop");
        }
        let stage = self.state.record.core.stage.name();
        match left_behind(&self.state.record.core) {
            Some(left) => tracing::warn!(stage, "told to stop while {stage}: {left}"),
            None => tracing::info!(stage, "told to stop"),
        }
        Ok(())
    }

    /// What a person says, told with who says it.
    async fn obey(&mut self, order: Order) {
        let Order { command, by, answer } = order;
        match &command {
            Command::Hold { reason, by } => tracing::info!(by, "{by} says hold: {reason}"),
            Command::Resume => tracing::info!(by, "{by} says resume"),
            Command::Retry => tracing::info!(by, "{by} says retry"),
            Command::Reboot { reason, by } => {
                tracing::info!(by, "{by} asks for a reboot: {reason}")
            }
            Command::CancelReboot => tracing::info!(by, "{by} asks for no reboot any more"),
        }
        let before = self.state.clone();
        self.feed(Event::Person(command.clone())).await;
        let says = lifecycle::answer(&command, &before, &self.state);
        let result = match &self.state.unwritable {
            Some(why) => Err(format!("{says} But not over a restart: {why}")),
            None => Ok(says),
        };
        // The caller may have gone meanwhile.
        let _ = answer.send(result);
    }

    /// One event, and what it leads to.
    async fn feed(&mut self, event: Event) {
        let step = lifecycle::step(&self.policy, &self.state, clock::now(), event);
        self.accept(step).await;
    }

    /// Carries a step out: the record first, then what others see, then the effects. Whether the
    /// record could be written is news for the heart in turn.
    async fn accept(&mut self, step: Step) {
        let mut news = VecDeque::from(self.carry_out(step).await);
        while let Some(event) = news.pop_front() {
            let step = lifecycle::step(&self.policy, &self.state, clock::now(), event);
            news.extend(self.carry_out(step).await);
        }
    }

    async fn carry_out(&mut self, step: Step) -> Vec<Event> {
        self.state = step.next.clone();
        let mut news = self.keep_record().await;
        self.publish(&step);
        for effect in step.effects {
            if effect.needs_record() && self.write_failed {
                news.push(Event::NotDone(effect.lane()));
                continue;
            }
            self.begin(effect);
        }
        news
    }

    /// Writes the record if it changed. What follows from success or failure comes back as events.
    async fn keep_record(&mut self) -> Vec<Event> {
        if self.written.as_ref() == Some(&self.state.record) && !self.write_failed {
            return Vec::new();
        }
        let (store, record) = (self.store.clone(), self.state.record.clone());
        let copy = record.clone();
        let result = tokio::task::spawn_blocking(move || store.write(&copy)).await;
        let result = result.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        match result {
            Ok(()) => {
                self.written = Some(record);
                if std::mem::replace(&mut self.write_failed, false) {
                    tracing::info!("the record can be written again");
                    return vec![Event::RecordWritten];
                }
                Vec::new()
            }
            Err(error) => {
                if !std::mem::replace(&mut self.write_failed, true) {
                    tracing::error!(%error, "the record cannot be written");
                    return vec![Event::RecordUnwritable(error.to_string())];
                }
                Vec::new()
            }
        }
    }

    fn begin(&mut self, effect: Effect) {
        tracing::debug!(?effect, "an effect begins");
        let lane = effect.lane();
        // Where no drain runs, its effect says so, or the heart would wait for its end.
        if effect == Effect::StopDrain && self.lanes.stop(lane) {
            return;
        }
        let mut hands = self.hands.clone();
        hands.releases_for = self.state.releases_for().cloned();
        let events = self.events_in.clone();
        self.lanes.begin(lane, |stop| Box::pin(hands.perform(effect, events, stop)));
    }

    /// Shows where the agent is, everywhere.
    fn publish(&mut self, step: &Step) {
        let now = clock::now();
        let node = step.next.view.node.as_ref().and_then(|node| node.as_ref().ok());
        for transition in &step.transitions {
            telemetry::transition(transition);
            if let Some(announcer) = &self.announcer {
                announcer.tell(transition, now.wall, node.map(|node| node.uid.clone()));
            }
        }
        let record = &step.next.record;
        if self.last_reason != Some(step.waiting.code()) {
            self.last_reason = Some(step.waiting.code());
            let since = step.next.waiting_since.map_or(now.wall, |(_, since)| since);
            telemetry::waiting(&step.waiting, since);
        }
        if let Some(desk) = &self.hands.zincati {
            tell_zincati(desk, step);
        }
        self.tell_held_up(step.next.view.progress.as_ref());
        if let Some(announcer) = &self.announcer {
            announcer.publish(&Announcement {
                stage: record.core.stage,
                waiting: step.waiting.clone(),
                attempt: record.core.attempt.as_ref().map(|attempt| attempt.id.clone()),
                target: record.core.attempt.as_ref().map(|attempt| attempt.target.clone()),
                since: step.next.waiting_since.map(|(_, since)| since),
                fulfilled: record.fulfilled.clone(),
            });
        }
        let snapshot = Snapshot {
            drain: (self.policy.drain_deadline, self.policy.on_deadline),
            state: step.next.clone(),
            waiting: step.waiting.clone(),
            wake: step.wake.clone(),
            at: now,
            node_name: self.snapshots.borrow().node_name.clone(),
            slot: self.hands.slot.place(),
            config_trouble: self.snapshots.borrow().config_trouble.clone(),
            version: env!("CARGO_PKG_VERSION"),
        };
        self.metrics.observe(&snapshot, &step.transitions);
        self.notifier.status(&snapshot);
        self.snapshots.send_replace(snapshot);
        self.set_alarm(step);
    }

    /// A drain may take a quarter of an hour: whoever follows the journal sees what it waits for.
    fn tell_held_up(&mut self, progress: Option<&Progress>) {
        let Some(progress) = progress else { return self.told_pods.clear() };
        for obstacle in &progress.obstacles {
            let pod = (obstacle.namespace.clone(), obstacle.pod.clone());
            let leaves = obstacle.kind == ObstacleKind::Terminating;
            if !leaves && self.told_pods.len() < TOLD_PODS_MAX && self.told_pods.insert(pod) {
                telemetry::held_up(obstacle);
            }
        }
    }

    fn set_alarm(&mut self, step: &Step) {
        let mut after = step.wake.as_ref().map(|wake| wake.after);
        if self.write_failed {
            after = Some(after.map_or(STORE_RETRY, |after| after.min(STORE_RETRY)));
        }
        self.awake = after.is_some();
        if let Some(after) = after {
            self.wake = Box::pin(tokio::time::sleep(after));
        }
    }

    /// Loads the configuration anew; a wrong one changes nothing and says so.
    async fn reload(&mut self) {
        let loaded = match crate::config::load(&self.root) {
            Ok(loaded) => loaded,
            Err(errors) => {
                let first = errors.brief();
                let told = "the new configuration is wrong: the old one stays";
                tracing::error!(%errors, "{told}: {first}");
                return self.config_trouble(Some(format!("{NOT_IN_USE} It is wrong: {first}")));
            }
        };
        let old = self.hands.settings.clone();
        let mut new = loaded.settings;
        if old.agent != new.agent || old.metrics != new.metrics {
            tracing::warn!("[agent] and [metrics] change with the next start only");
        }
        // Nobody would ever ask the place that holds it; to go back to that place is always allowed.
        let held = self.state.slot_place(&self.policy);
        if let Some(held) = held.filter(|held| new.policy.slot_place.as_deref() != Some(held)) {
            let why = slot_may_be_held(held);
            tracing::error!("the old configuration stays: {why}");
            return self.config_trouble(Some(format!("{NOT_IN_USE} {why}")));
        }
        if old.zincati != new.zincati {
            (new.zincati, new.policy.zincati) = (old.zincati, old.policy.zincati);
            tracing::warn!("[zincati] changes with the next start only");
        }
        if old.policy.kubernetes != new.policy.kubernetes {
            new.policy.kubernetes = old.policy.kubernetes;
            tracing::warn!("[node] kubernetes changes with the next start only");
        }
        match self.hands.with(new) {
            Ok(hands) => {
                if old.node != hands.settings.node {
                    tracing::warn!("[node] changes with the next start only");
                }
                if old.updates != hands.settings.updates {
                    tracing::warn!("[updates] changes with the next start only");
                }
                self.policy = hands.settings.policy.clone();
                self.hands = hands;
                tracing::info!("the configuration was loaded anew");
                self.config_trouble(None);
                self.feed(Event::PolicyChanged).await;
            }
            Err(error) => {
                let why = format!("{:#}", anyhow::Error::from(error));
                tracing::error!("the new configuration is wrong: the old one stays: {why}");
                self.config_trouble(Some(format!("{NOT_IN_USE} It is wrong: {why}")));
            }
        }
    }

    /// Shows why the configuration on disk is not in use, until one is.
    fn config_trouble(&self, trouble: Option<String>) {
        self.snapshots.send_if_modified(|snapshot| {
            let changed = snapshot.config_trouble != trouble;
            snapshot.config_trouble = trouble;
            changed
        });
    }
}

/// The configuration …
const NOT_IN_USE: &str = "on disk is not in use, the one before it is.";

/// Why a new `[slot]` is not taken yet, and every way to have it taken.
fn slot_may_be_held(held: &str) -> String {
    format!(
        "A slot may be held at {held}, and the new [slot] names another place. `lockkeeper hold` \
         gives it back there; then reload again, and `lockkeeper resume`. Where that server never \
         confirms it: free the slot there by hand, `systemctl restart lockkeeper`, then \
         `lockkeeper resume` until it says that the slot is forgotten."
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_stop_tells_of_what_outlasts_it() {
        let held = Slot::Held { since: jiff::Timestamp::UNIX_EPOCH };
        for (slot, cordon, begins) in [
            (Slot::None, Cordon::Ours, "the cordon stays;"),
            (Slot::Asked, Cordon::None, "the slot may still be held;"),
            (held, Cordon::Foreign, "the slot may still be held;"),
            (held, Cordon::Ours, "the cordon stays and the slot may still be held;"),
        ] {
            let core = Core { slot, cordon, ..Record::default().core };
            let told = left_behind(&core).unwrap();
            assert!(told.starts_with(begins), "{told}");
            assert!(told.contains("the next start") && told.contains("lockkeeper hold"), "{told}");
        }
        assert_eq!(left_behind(&Core { cordon: Cordon::Foreign, ..Record::default().core }), None);
    }
}
