//! Emptying the own Node: the requests and waits around the pure [`Queue`].
//!
//! One list and one watch show the pods, each is asked once where nothing stands in the way, and
//! only the watch makes one count as gone. A GET is never used: a node's credential is refused for
//! a pod that has just gone. An API server that is away is waited for until the deadline.

mod pods;
mod rehearse;
mod request;
mod tell;
mod volumes;
mod wishes;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod noise;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wishes_tests;

use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config::{DrainSettings, EmptyDir, UnmanagedPods};
use crate::drain::{
    Answer, EmptyDirs, How, Limits, Obstacle, ObstacleKind, Progress, Queue, Rules, Standing,
    Unmanaged,
};
use crate::lifecycle::{DrainEnd, Event, NodeTrouble};

pub use rehearse::{rehearse, verify};

use pods::Seen;
use tell::Teller;

/// Room for what the watch says while the loop is at work: one page of a list.
const SEEN_WAITING: usize = 512;

/// How long requests under way may still take once the drain has ended.
const LANDING: Duration = Duration::from_secs(10);

/// How often in a row the list must be refused before that is believed. An API server that has
/// just started refuses what it will allow a moment later.
const FORBIDDEN_TIMES: u32 = 5;

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;

/// Evicts what has to leave (or deletes it, past all budgets) and waits until it has gone and its
/// volumes have been detached, at most `within`. Progress is sent when it changes, at most every
/// half second. No request is under way any more when it comes back.
pub async fn drain(
    cluster: &Cluster,
    settings: &DrainSettings,
    within: Duration,
    delete: bool,
    progress: mpsc::Sender<Event>,
    stop: CancellationToken,
) -> DrainEnd {
    let (sender, mut seen) = mpsc::channel(SEEN_WAITING);
    let mut drain = Drain::new(cluster, settings, delete, progress);
    let watch = pods::watch(cluster.clone(), sender, drain.outage.doubt.clone());
    let mut watching: Future<()> = Box::pin(watch);
    let deadline = drain.began + within;
    let end = loop {
        if let Some(end) = drain.step() {
            break end;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break DrainEnd::Stopped,
            () = sleep_until(deadline) => break drain.late(),
            () = &mut watching => break DrainEnd::Stopped,
            Some(first) = seen.recv() => {
                drain.seen(first);
                // A list comes as many: the queue is asked once for all of them.
                while let Ok(more) = seen.try_recv() {
                    drain.seen(more);
                }
            }
            () = drain.next() => {}
        }
    };
    drain.land().await;
    tracing::debug!(?end, "drain ended");
    end
}

/// The configured rules in the words of the pure room.
pub(crate) fn rules(settings: &DrainSettings) -> Rules {
    Rules {
        unmanaged: match settings.unmanaged_pods {
            UnmanagedPods::Leave => Unmanaged::Leave,
            UnmanagedPods::Evict => Unmanaged::Evict,
            UnmanagedPods::Refuse => Unmanaged::Refuse,
        },
        empty_dir: match settings.empty_dir {
            EmptyDir::Evict => EmptyDirs::Evict,
            EmptyDir::Refuse => EmptyDirs::Refuse,
        },
    }
}

/// A drain under way.
struct Drain {
    cluster: Cluster,
    grace: Option<u32>,
    queue: Queue,
    began: Instant,
    flights: FuturesUnordered<Future<(String, Answer)>>,
    /// Why the pods cannot be seen, and how often in a row that was a matter of rights.
    trouble: Option<NodeTrouble>,
    forbidden: u32,
    outage: Outage,
    volumes: Volumes,
    teller: Teller,
}

/// Requests that no server answered, and what the watch said meanwhile.
#[derive(Default)]
struct Outage {
    /// No server has answered a request since a first one was lost.
    lasts: bool,
    /// The watch has said something since then, so its connection lives.
    watch_lives: bool,
    /// Tells the watch that it may be dead.
    doubt: Arc<Notify>,
}

/// The wait for volumes, once all pods have gone.
struct Volumes {
    limit: Duration,
    /// When this wait ends, whatever happens; set when the pods had gone for the first time.
    until: Option<Instant>,
    /// `true`: all detached.
    wait: Option<Future<bool>>,
    ended: bool,
    left: watch::Receiver<Vec<String>>,
}

// === impl Drain ===

impl Drain {
    fn new(
        cluster: &Cluster,
        settings: &DrainSettings,
        delete: bool,
        progress: mpsc::Sender<Event>,
    ) -> Self {
        let limits = Limits {
            parallel: settings.parallel,
            budget_retry: settings.budget_retry,
            how: if delete { How::Delete } else { How::Evict },
        };
        let began = Instant::now();
        Self {
            cluster: cluster.clone(),
            grace: settings.grace_period,
            queue: Queue::new(rules(settings), limits, RandomState::new().hash_one(0)),
            began,
            flights: FuturesUnordered::new(),
            trouble: None,
            forbidden: 0,
            outage: Outage::default(),
            volumes: Volumes::new(settings.volume_detach_timeout),
            teller: Teller::new(progress),
        }
    }

    /// Sends what is to be sent now; comes back with the end, if this is it.
    fn step(&mut self) -> Option<DrainEnd> {
        let now = self.began.elapsed();
        for ask in self.queue.next(now) {
            let (cluster, grace) = (self.cluster.clone(), self.grace);
            self.flights.push(Box::pin(async move {
                let answer = request::ask(&cluster, &ask, grace, false).await;
                (ask.pod.uid, answer)
            }));
        }
        self.teller.tell(self.progress());
        if self.forbidden >= FORBIDDEN_TIMES {
            return Some(DrainEnd::Impossible(self.progress().obstacles));
        }
        match self.queue.standing() {
            Standing::Impossible(obstacles) => Some(DrainEnd::Impossible(obstacles)),
            Standing::Busy => {
                // A pod came late: its volumes are waited for afterwards.
                self.volumes.wait = None;
                None
            }
            Standing::Empty if self.volumes.ended => Some(DrainEnd::Empty),
            Standing::Empty => {
                self.volumes.begin(&self.cluster, &self.queue);
                self.volumes.ended.then_some(DrainEnd::Empty)
            }
        }
    }

    fn seen(&mut self, seen: Seen) {
        self.outage.watch_lives = true;
        let now = self.began.elapsed();
        if let Seen::Trouble(trouble) = seen {
            let forbidden = matches!(trouble, NodeTrouble::Forbidden(_));
            self.forbidden = if forbidden { self.forbidden + 1 } else { 0 };
            if !self.trouble.as_ref().is_some_and(|told| told.is_like(&trouble)) {
                let (kind, error) = (trouble.kind(), trouble.text());
                tracing::warn!(kind, error, "the pods cannot be seen: {error}");
                self.trouble = Some(trouble);
            }
            return;
        }
        (self.trouble, self.forbidden) = (None, 0);
        match seen {
            Seen::Pod(pod, namespace) => self.queue.seen(&pod, namespace, now),
            Seen::Gone(uid) => self.queue.gone(&uid),
            Seen::Listed(uids) => self.queue.listed(&uids),
            Seen::Trouble(_) => {}
        }
    }

    /// Waits for anything but the watch, the deadline and the word to stop.
    async fn next(&mut self) {
        let wake = self.queue.wake(self.began.elapsed()).map(|at| self.began + at);
        tokio::select! {
            Some((uid, answer)) = self.flights.next() => {
                self.outage.note(&answer);
                self.queue.answered(&uid, &answer, self.began.elapsed());
            }
            () = at(wake) => {}
            () = at(self.teller.due()) => {}
            () = self.volumes.changed() => {}
        }
    }

    fn progress(&self) -> Progress {
        let mut progress = self.queue.progress();
        progress.volumes = self.volumes.left.borrow().clone();
        if let Some(trouble) = &self.trouble {
            let says = trouble.text().to_owned();
            let kind = match trouble {
                NodeTrouble::Forbidden(_) => ObstacleKind::Forbidden { says },
                NodeTrouble::NoCredential(_)
                | NodeTrouble::Refused(_)
                | NodeTrouble::Missing(_)
                | NodeTrouble::Unreachable(_) => ObstacleKind::Api { says },
            };
            let all = || "*".to_owned();
            progress.obstacles.insert(0, Obstacle { namespace: all(), pod: all(), kind });
        }
        progress
    }

    /// The deadline has come. When only volumes hang on the node is as empty as it gets.
    fn late(&self) -> DrainEnd {
        match self.queue.standing() {
            Standing::Empty if self.trouble.is_none() => {
                self.volumes.warn();
                DrainEnd::Empty
            }
            Standing::Empty | Standing::Busy => DrainEnd::DeadlinePassed(self.progress()),
            Standing::Impossible(obstacles) => DrainEnd::Impossible(obstacles),
        }
    }

    /// Waits for the requests under way, so that none takes effect after the end was told.
    async fn land(mut self) {
        self.teller.last();
        let all = async {
            while let Some((uid, answer)) = self.flights.next().await {
                self.queue.answered(&uid, &answer, self.began.elapsed());
            }
        };
        if timeout(LANDING, all).await.is_err() {
            tracing::warn!(
                requests = self.flights.len(),
                "requests for evictions were given up unanswered"
            );
        }
    }
}

// === impl Outage ===

impl Outage {
    /// A connection that died with the server, or with the way to it, keeps its silence for
    /// minutes. So once requests are answered again, a watch that said nothing is begun anew.
    fn note(&mut self, answer: &Answer) {
        let lost = matches!(answer, Answer::Unreachable { .. });
        if lost && !self.lasts {
            self.watch_lives = false;
        }
        if !lost && self.lasts && !self.watch_lives {
            self.doubt.notify_one();
        }
        self.lasts = lost;
    }
}

// === impl Volumes ===

impl Volumes {
    fn new(limit: Duration) -> Self {
        let left = watch::Sender::new(Vec::new()).subscribe();
        Self { limit, until: None, wait: None, ended: limit.is_zero(), left }
    }

    fn begin(&mut self, cluster: &Cluster, queue: &Queue) {
        if self.wait.is_some() || self.ended {
            return;
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.limit);
        let tell = watch::Sender::new(Vec::new());
        self.left = tell.subscribe();
        let waiting = volumes::detached(cluster.clone(), queue.staying_claims(), tell);
        self.wait =
            Some(Box::pin(async move { tokio::time::timeout_at(until, waiting).await.is_ok() }));
    }

    /// Comes back when the wait has ended or other volumes are left.
    async fn changed(&mut self) {
        let Some(wait) = &mut self.wait else { return std::future::pending().await };
        tokio::select! {
            clean = wait => {
                if !clean {
                    self.warn();
                }
                (self.wait, self.ended) = (None, true);
            }
            Ok(()) = self.left.changed() => {}
        }
    }

    fn warn(&self) {
        tracing::warn!(volumes = ?*self.left.borrow(), "volumes were not detached in time");
    }
}

/// Sleeps until then, for ever where there is no then.
async fn at(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
