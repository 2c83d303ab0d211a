//! update_engine: whether an update lies on the other partition of a Flatcar host.
//!
//! A signal is a hint only, and the daemon is asked then. One that would change nothing, such as each percent
//! of a download, leads to no question. While an update waits the daemon is asked every few minutes
//! too, since it says nothing when the update is taken back; else an idle host is not asked at all.

mod host;
#[cfg(test)]
mod noise;
mod status;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use zbus::{Message, MessageStream};

use host::Booted;
use status::{MANAGER, NAME, ask};
pub use status::{Status, status_now};

use crate::model::{Deployment, Reading, Source, UNKNOWN_VERSION};
use crate::signals::bus::retry::Retry;
use crate::signals::bus::{BusError, Host, Link, one_line, owner};
use crate::signals::clock::{self, Ticker};
use crate::signals::if_any;
use crate::signals::system::Heard;

/// How update_engine is watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub host: Host,
    /// The least time from one question to the next: hints that come within it are gathered.
    pub pace: Duration,
    /// How often it is asked while an update waits. More than zero.
    pub recheck: Duration,
    /// How long it may take to answer.
    pub answer: Duration,
    /// How long trouble that comes and goes is kept quiet. It is longer than the 30 s after which
    /// systemd starts a daemon that failed.
    pub patience: Duration,
}

/// Why it is not known whether an update waits.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("{path}: {why}, expected the VERSION that runs")]
    Booted { path: String, why: String },
    #[error("no timer is left")]
    Timer(#[source] std::io::Error),
}

/// An update that waits for the reboot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Update {
    /// `None`: the daemon has forgotten it.
    version: Option<String>,
}

/// What was told last.
#[derive(Debug, Default)]
struct Told {
    /// What the daemon that runs answered last.
    status: Option<Status>,
    /// Outlives the daemon, which forgets the version when it is started anew.
    update: Option<Update>,
    deployments: Option<Vec<Deployment>>,
    trouble: Option<String>,
    /// Since when questions fail, `CLOCK_BOOTTIME`.
    failing_since: Option<Duration>,
    retry: Retry,
    absence: bool,
}

/// What a message on the bus means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hint {
    /// Nothing.
    None,
    /// The daemon signalled this status; `None`: in words that are not understood.
    Said(Option<Status>),
    /// A daemon came.
    OwnerCame,
    /// The daemon went.
    OwnerWent,
}

type Asking = Pin<Box<dyn Future<Output = Result<Status, BusError>> + Send>>;

/// What a session still has to do. On an idle host without an update all of it is empty.
#[derive(Default)]
struct Work {
    /// When the next question is due.
    due: Option<Pin<Box<Sleep>>>,
    /// The question that is under way.
    asking: Option<Asking>,
    /// When the last one began.
    last: Option<Instant>,
    /// What was signalled last while it was under way.
    said: Option<Option<Status>>,
    /// Runs while an update waits.
    recheck: Option<Ticker>,
}

/// What one connection's life works with.
struct Session<'a> {
    options: &'a Options,
    to: &'a Sender<Heard>,
    told: &'a mut Told,
    booted: Booted,
    work: Work,
}

// === impl Options ===

impl Options {
    /// The usual times.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            pace: Duration::from_secs(2),
            recheck: Duration::from_secs(300),
            answer: crate::signals::bus::CALL_TIMEOUT,
            patience: Duration::from_secs(180),
        }
    }
}

/// Tells what runs and what waits whenever it has changed, and lasting trouble. Returns only when
/// nobody listens any more.
pub async fn watch(options: Options, to: Sender<Heard>) {
    let mut told = Told::default();
    loop {
        let end = tokio::select! {
            () = to.closed() => return,
            end = session(&options, &to, &mut told) => end,
        };
        let Err(trouble) = end;
        let rest = told.failed(&trouble, &options, &to).await;
        tokio::select! {
            () = to.closed() => return,
            () = sleep(rest) => {}
        }
    }
}

/// Lives as long as one connection.
async fn session(
    options: &Options,
    to: &Sender<Heard>,
    told: &mut Told,
) -> Result<Infallible, Trouble> {
    let booted = Booted::read(&options.host.root)?;
    let link = options.host.bus.connect().await?;
    let mut messages = MessageStream::from(link.connection.clone());
    for rule in [
        format!(
            "type='signal',sender='{NAME}',path='{}',interface='{}',member='StatusUpdate'",
            MANAGER.path, MANAGER.interface
        ),
        owner::rule(NAME),
    ] {
        link.add_match(&rule).await?;
    }
    let mut owner = link.owner_of(NAME).await?;
    let mut session = Session { options, to, told, booted, work: Work::default() };
    match owner {
        Some(_) => session.work.want(options.pace),
        None => session.absent().await,
    }
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(Ok(message)) = message else { return Err(BusError::Closed.into()) };
                session.hinted(understand(&message, &mut owner)).await;
            }
            () = clock::tick(&mut session.work.recheck) => session.work.want(options.pace),
            () = if_any(&mut session.work.due), if session.work.asking.is_none() => {
                session.work.begin(&link, options.answer);
            }
            answer = if_any(&mut session.work.asking) => session.answered(answer).await?,
        }
    }
}

/// Understands a message. Only the bus itself may name an owner, and only the owner is believed: a
/// signal sent straight to us passes by every match rule.
fn understand(message: &Message, owner: &mut Option<String>) -> Hint {
    let header = message.header();
    if message.message_type() != zbus::message::Type::Signal {
        return Hint::None;
    }
    if owner::changed(message, NAME, owner) {
        return if owner.is_some() { Hint::OwnerCame } else { Hint::OwnerWent };
    }
    let (Some(sender), Some(member), Some(path), Some(interface)) =
        (header.sender(), header.member(), header.path(), header.interface())
    else {
        return Hint::None;
    };
    let said = member.as_str() == "StatusUpdate"
        && owner.as_deref() == Some(sender.as_str())
        && path.as_str() == MANAGER.path
        && interface.as_str() == MANAGER.interface;
    match said {
        true => Hint::Said(message.body().deserialize().ok().map(Status::new)),
        false => Hint::None,
    }
}

/// The systems of this host in boot order: an update boots next.
fn systems(booted: &Booted, update: Option<&Update>) -> Vec<Deployment> {
    let waits = update.map(|update| Deployment {
        identity: update.version.clone().unwrap_or_else(|| UNKNOWN_VERSION.to_owned()),
        version: update.version.clone(),
        place: booted.partition.map(|partition| partition.other().name().to_owned()),
        booted: false,
        staged: true,
    });
    let runs = Deployment {
        identity: booted.version.clone(),
        version: Some(booted.version.clone()),
        place: booted.partition.map(|partition| partition.name().to_owned()),
        booted: true,
        staged: false,
    };
    waits.into_iter().chain([runs]).collect()
}

// === impl Trouble ===

impl Trouble {
    /// Whether waiting a little is no help.
    fn is_definite(&self) -> bool {
        match self {
            Self::Bus(error @ BusError::Call { .. }) => {
                let refused = "org.freedesktop.DBus.Error.AccessDenied";
                error.is_unknown_object() || error.name().as_deref() == Some(refused)
            }
            Self::Bus(BusError::OddType { .. }) | Self::Booted { .. } => true,
            Self::Bus(BusError::Connect { .. } | BusError::TimedOut { .. } | BusError::Closed)
            | Self::Timer(_) => false,
        }
    }
}

// === impl Session ===

impl Session<'_> {
    async fn hinted(&mut self, hint: Hint) {
        match hint {
            Hint::None => {}
            // Which of the two is newer, the answer or this, is not known.
            Hint::Said(said) if self.work.asking.is_some() => self.work.said = Some(said),
            Hint::Said(said) => {
                if !self.told.knows(said.as_ref()) {
                    self.work.want(self.options.pace);
                }
            }
            Hint::OwnerCame => {
                self.work.asking = None;
                self.work.want(self.options.pace);
            }
            Hint::OwnerWent => self.absent().await,
        }
    }

    async fn answered(&mut self, answer: Result<Status, BusError>) -> Result<(), Trouble> {
        self.work.asking = None;
        let said = self.work.said.take();
        match answer {
            Ok(status) => {
                self.work.look_again(status.needs_reboot(), self.options.recheck)?;
                self.told.read(status, &self.booted, self.to).await;
                if said.is_some_and(|said| !self.told.knows(said.as_ref())) {
                    self.work.want(self.options.pace);
                }
            }
            // It went a moment ago; that it comes back is told.
            Err(error) if error.is_absent() => self.absent().await,
            Err(error) => {
                let rest = self.told.failed(&error.into(), self.options, self.to).await;
                self.work.due = Some(Box::pin(sleep(rest)));
            }
        }
        Ok(())
    }

    /// There is nobody to ask.
    async fn absent(&mut self) {
        self.work = Work { last: self.work.last, ..Work::default() };
        self.told.absent(&self.booted, self.options, self.to).await;
    }
}

// === impl Work ===

impl Work {
    fn begin(&mut self, link: &Link, within: Duration) {
        let link = link.clone();
        self.due = None;
        self.said = None;
        self.last = Some(Instant::now());
        self.asking = Some(Box::pin(async move { ask(&link, within).await }));
    }

    /// A question is due as soon as the pace allows it.
    fn want(&mut self, pace: Duration) {
        let at = self.last.map_or_else(Instant::now, |last| last + pace);
        self.due.get_or_insert_with(|| Box::pin(sleep_until(at)));
    }

    /// Nothing tells of an update that is taken back.
    fn look_again(&mut self, waits: bool, every: Duration) -> Result<(), Trouble> {
        if !waits {
            self.recheck = None;
        } else if self.recheck.is_none() {
            self.recheck = Some(Ticker::new(every).map_err(Trouble::Timer)?);
        }
        Ok(())
    }
}

// === impl Told ===

impl Told {
    /// Whether a status would change nothing. `None`: it is not understood.
    fn knows(&self, said: Option<&Status>) -> bool {
        match (said, &self.status) {
            (Some(said), Some(known)) if self.failing_since.is_none() => {
                said.needs_reboot() == known.needs_reboot()
                    && (!said.needs_reboot() || said.version == known.version)
            }
            (Some(_) | None, Some(_) | None) => false,
        }
    }

    /// The daemon answered.
    async fn read(&mut self, status: Status, booted: &Booted, to: &Sender<Heard>) {
        self.update = status.needs_reboot().then(|| {
            let before = self.update.take().unwrap_or_default();
            Update { version: status.version.clone().or(before.version) }
        });
        self.status = Some(status);
        self.tell(booted, to).await;
    }

    /// No daemon runs. An update of which it has left its mark waits all the same: it lies there and
    /// boots next, whether the daemon runs or not.
    async fn absent(&mut self, booted: &Booted, options: &Options, to: &Sender<Heard>) {
        self.status = None;
        self.update = host::update_is_marked(&options.host.root)
            .then(|| self.update.take().unwrap_or_default());
        if !std::mem::replace(&mut self.absence, true) {
            tracing::info!("update_engine does not run; updates are seen once it does");
        }
        self.tell(booted, to).await;
    }

    async fn tell(&mut self, booted: &Booted, to: &Sender<Heard>) {
        self.retry.succeeded();
        self.failing_since = None;
        let deployments = systems(booted, self.update.as_ref());
        let recovered = self.trouble.take().is_some();
        if recovered {
            tracing::info!("update_engine can be read again");
        }
        if recovered || self.deployments.as_ref() != Some(&deployments) {
            self.deployments = Some(deployments.clone());
            let reading = Ok(Reading::Deployments(deployments));
            // Nobody listens any more: the caller sees it too.
            let _ = to.send(Heard { source: Source::UpdateEngine, reading }).await;
        }
    }

    /// Counts a failure, tells it if it lasts; how long to rest.
    async fn failed(
        &mut self,
        trouble: &Trouble,
        options: &Options,
        to: &Sender<Heard>,
    ) -> Duration {
        let now = clock::since_boot();
        let since = *self.failing_since.get_or_insert(now);
        let text = one_line(trouble);
        let lasts = now.saturating_sub(since) >= options.patience;
        tracing::debug!(error = text, "update_engine was not read");
        if (trouble.is_definite() || lasts) && self.trouble.as_ref() != Some(&text) {
            tracing::warn!(error = text, "update_engine cannot be read: {text}");
            self.trouble = Some(text.clone());
            let _ = to.send(Heard { source: Source::UpdateEngine, reading: Err(text) }).await;
        }
        self.retry.failed()
    }
}
