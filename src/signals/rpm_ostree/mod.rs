//! rpm-ostree: which deployments there are, and which one waits.
//!
//! Signals of the daemon and changes of files are hints only. The first one after a while leads to a
//! read at once, those that come on its heels to one more together. On an idle node nothing is read: the daemon leaves after a minute without work, and its going is no
//! reason to call it back.

mod daemon;
mod deployments;
mod files;
#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use zbus::{Message, MessageStream, OwnedVariant};

pub(crate) use daemon::{
    NAME, Reading, START_TIMEOUT, SYSROOT, Trouble, UNIT, ensure_started, read,
};
pub(crate) use deployments::Entry;
pub use deployments::{DeploymentsError, parse_deployments};
use files::Files;

use crate::model::{self, Deployment, Source};
use crate::signals::bus::retry::Retry;
use crate::signals::bus::{BusError, Host, Link, owner};
use crate::signals::clock;
use crate::signals::if_any;
use crate::signals::system::Heard;

/// How the update system is watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub host: Host,
    /// The least time from the beginning of one read to that of the next: hints that come within it
    /// are gathered.
    pub debounce: Duration,
    /// How long trouble that comes and goes is kept quiet. A restart of the daemon, a slow start
    /// and a lost reply are normal life.
    pub patience: Duration,
}

/// What was told last.
#[derive(Debug, Default)]
struct Told {
    deployments: Option<Vec<Deployment>>,
    trouble: Option<String>,
    /// Since when reads fail, `CLOCK_BOOTTIME`.
    failing_since: Option<Duration>,
    retry: Retry,
}

/// What a message on the bus means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    /// Nothing.
    None,
    /// Deployments may have changed; whether a transaction runs now, if it says so.
    Changed { busy: Option<bool> },
    /// A daemon came.
    OwnerCame,
    /// The daemon went.
    OwnerWent,
}

type Read = Pin<Box<dyn Future<Output = Result<Reading, Trouble>> + Send>>;

/// What a session still has to do. On an idle node `due` and `reading` are empty, and nothing is
/// done at all.
struct Work {
    /// When the next read begins.
    due: Option<Pin<Box<Sleep>>>,
    /// The read that is under way.
    reading: Option<Read>,
    /// When the last one began.
    last: Option<Instant>,
    /// A hint came while a transaction ran.
    skipped: bool,
    /// A transaction runs.
    busy: bool,
}

// === impl Options ===

impl Options {
    /// The usual times.
    pub fn new(host: Host) -> Self {
        Self { host, debounce: Duration::from_millis(300), patience: Duration::from_secs(180) }
    }
}

/// Tells the deployments whenever they have changed, and lasting trouble. Returns only when nobody
/// listens any more.
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

/// One connection's life.
async fn session(
    options: &Options,
    to: &Sender<Heard>,
    told: &mut Told,
) -> Result<Infallible, Trouble> {
    let link = options.host.bus.connect().await?;
    let mut messages = MessageStream::from(link.connection.clone());
    for rule in [
        format!(
            "type='signal',sender='{NAME}',path_namespace='/org/projectatomic/rpmostree1',\
             interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'"
        ),
        owner::rule(NAME),
    ] {
        link.add_match(&rule).await?;
    }
    let mut files = Files::new(&options.host.root)?;
    let mut owner = link.owner_of(NAME).await?;

    let mut work = Work::new();
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(Ok(message)) = message else { return Err(BusError::Closed.into()) };
                work.hint(understand(&message, &mut owner), options.debounce);
            }
            changed = files.changed() => {
                changed?;
                work.hint(Hint::Changed { busy: None }, options.debounce);
            }
            () = if_any(&mut work.due), if work.reading.is_none() => {
                work.due = None;
                work.last = Some(Instant::now());
                work.skipped = false;
                work.reading = Some(begin(options, &link, told.deployments.is_none()));
            }
            result = if_any(&mut work.reading) => {
                work.reading = None;
                match result {
                    Ok(Reading::Busy) => {
                        work.busy = true;
                        work.skipped = true;
                        told.retry.succeeded();
                    }
                    Ok(Reading::Entries(entries)) => {
                        work.busy = false;
                        told.read(&entries, to).await;
                    }
                    Err(trouble) => {
                        work.due = Some(Box::pin(sleep(told.failed(&trouble, options, to).await)));
                    }
                }
            }
        }
    }
}

// === impl Work ===

impl Work {
    /// The first read is due at once.
    fn new() -> Self {
        Self {
            due: Some(Box::pin(sleep(Duration::ZERO))),
            reading: None,
            last: None,
            skipped: false,
            busy: false,
        }
    }

    fn hint(&mut self, hint: Hint, debounce: Duration) {
        let is_due = match hint {
            Hint::None => false,
            Hint::Changed { busy } => {
                self.busy = busy.unwrap_or(self.busy);
                self.skipped |= self.busy;
                !self.busy
            }
            Hint::OwnerWent => {
                self.busy = false;
                // Its idle exit must not call it back. A transaction that it took along leaves a
                // read to be done.
                std::mem::take(&mut self.skipped)
            }
            Hint::OwnerCame => {
                self.busy = false;
                // If it came because of a read, that read has the answer.
                self.reading.is_none()
            }
        };
        if is_due {
            let at = self.last.map_or_else(Instant::now, |last| last + debounce);
            self.due.get_or_insert_with(|| Box::pin(sleep_until(at)));
        }
    }
}

/// A read, which starts the daemon if need be. The very first one is not put off by a transaction:
/// what runs now must be known.
fn begin(options: &Options, link: &Link, first: bool) -> Read {
    let (bus, link) = (options.host.bus.clone(), link.clone());
    Box::pin(async move {
        ensure_started(&bus, &link).await?;
        read(&link, first).await
    })
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
    let (Some(sender), Some(member), Some(path)) =
        (header.sender(), header.member(), header.path())
    else {
        return Hint::None;
    };
    let changed = member.as_str() == "PropertiesChanged"
        && owner.as_deref() == Some(sender.as_str())
        && path.as_str().starts_with("/org/projectatomic/rpmostree1");
    match changed {
        true => Hint::Changed { busy: says_busy(message) },
        false => Hint::None,
    }
}

/// What a change of properties says about a running transaction, if anything.
fn says_busy(message: &Message) -> Option<bool> {
    let body = message.body();
    let (interface, changed, _): (String, HashMap<String, OwnedVariant>, Vec<String>) =
        body.deserialize().ok()?;
    if interface != SYSROOT.interface {
        return None;
    }
    daemon::transaction_is_active(changed.get("ActiveTransaction")?)
}

// === impl Told ===

impl Told {
    async fn read(&mut self, entries: &[Entry], to: &Sender<Heard>) {
        self.retry.succeeded();
        self.failing_since = None;
        let deployments = deployments::list(entries);
        let recovered = self.trouble.take().is_some();
        if recovered {
            tracing::info!("the update system can be read again");
        }
        if recovered || self.deployments.as_ref() != Some(&deployments) {
            self.deployments = Some(deployments.clone());
            let reading = Ok(model::Reading::Deployments(deployments));
            // Nobody listens any more: the caller sees it too.
            let _ = to.send(Heard { source: Source::RpmOstree, reading }).await;
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
        let text = trouble.text();
        let lasts = now.saturating_sub(since) >= options.patience;
        tracing::debug!(error = text, "the update system was not read");
        if (trouble.is_definite() || lasts) && self.trouble.as_ref() != Some(&text) {
            tracing::warn!(error = text, "the update system cannot be read: {text}");
            self.trouble = Some(text.clone());
            let _ = to.send(Heard { source: Source::RpmOstree, reading: Err(text) }).await;
        }
        self.retry.failed()
    }
}
