//! rpm-ostreed: one task owns all state; connections, watches and work send it events.
//!
//! Method calls are answered by hand and not by an object server, so that a switch can make
//! any of them silent or wrong.

mod bus;
mod config;
mod execute;
mod polkit;
mod properties;
mod transaction;
mod watch;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use zbus::fdo::{RequestNameFlags, RequestNameReply};
use zbus::{Connection, MatchRule, MessageStream};

use crate::console;
use crate::faults::{Faults, Kind};
use crate::paths::Paths;

use properties::Snapshot;
use transaction::{Event, Transaction};

/// The bus name.
pub(crate) const NAME: &str = "org.projectatomic.rpmostree1";
/// Room for events of peers; the task that reads them does nothing slow.
const EVENTS: usize = 64;
/// Room for calls while one is answered; a full queue would also hold up the replies to us.
const QUEUE: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// For what we ask the bus itself and polkit; as GDBus has it.
const METHOD_TIMEOUT: Duration = Duration::from_secs(25);
/// Changes of the deploy folder come in pairs; one reading is enough.
const SETTLE: Duration = Duration::from_millis(20);
/// For what was sent last; at a shutdown nobody may be there to read it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The daemon while it runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    paths: Paths,
    bus: Connection,
    shown: Snapshot,
    clients: BTreeSet<String>,
    transaction: Option<Transaction>,
    transactions: u64,
    rebooting: bool,
    idle_exit: Option<Duration>,
    idle_since: Option<Instant>,
    events: mpsc::Sender<Event>,
    leaving: bool,
}

/// Runs until idle, told to end, or made to die by a fault.
pub(crate) async fn run(paths: Paths) -> Result<()> {
    let faults = Faults::load(&paths)?;
    if let Some(seconds) = faults.seconds(Kind::SlowActivation) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    let bus = zbus::connection::Builder::system()
        .max_queued(QUEUE)
        .method_timeout(METHOD_TIMEOUT)
        .build()
        .await
        .context("connecting to the bus")?;
    let mut calls = MessageStream::from(&bus);
    let owners = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .build()?;
    zbus::fdo::DBusProxy::new(&bus).await?.add_match_rule(owners).await?;
    let mut changes = watch::Watch::new(&paths)?;
    let (events, mut inbox) = mpsc::channel(EVENTS);
    let idle_exit = match faults.seconds(Kind::IdleExit) {
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => config::idle_exit(&paths)?,
    };
    let shown = Snapshot::load(&paths, None)?;
    let mut daemon = Daemon {
        paths,
        bus: bus.clone(),
        shown,
        clients: BTreeSet::new(),
        transaction: None,
        transactions: 0,
        rebooting: false,
        idle_exit,
        idle_since: Some(Instant::now()),
        events,
        leaving: false,
    };
    let flags = RequestNameFlags::DO_NOT_QUEUE;
    let reply = bus.request_name_with_flags(NAME, flags).await.context("taking the bus name")?;
    if reply != RequestNameReply::PrimaryOwner {
        bail!("the bus name {NAME} is taken");
    }
    console::notify("READY=1");
    let mut terminate = signal(SignalKind::terminate())?;
    while !daemon.leaving {
        let idle = daemon.idle_deadline();
        tokio::select! {
            call = calls.next() => match call {
                Some(Ok(call)) => daemon.message(call).await?,
                Some(Err(error)) => {
                    console::note(&format!("the bus is gone: {error}"));
                    return Ok(());
                }
                None => return Ok(()),
            },
            event = inbox.recv() => if let Some(event) = event { daemon.event(event).await? },
            change = changes.next() => {
                change?;
                tokio::time::sleep(SETTLE).await;
                daemon.reload().await?;
            }
            () = sleep_until(idle.unwrap_or_else(Instant::now)), if idle.is_some() => {
                console::note("In idle state; will auto-exit");
                break;
            }
            _ = terminate.recv() => break,
        }
    }
    console::notify("STOPPING=1");
    // At a shutdown the bus may be gone before us.
    let _ = bus.release_name(NAME).await;
    // What was sent must be out before the connection goes.
    let _ = tokio::time::timeout(LAST_WORDS, bus.graceful_shutdown()).await;
    Ok(())
}

// === impl Daemon ===

impl Daemon {
    /// When to leave; only with no registered client and no transaction. Calls do not count.
    fn idle_deadline(&self) -> Option<Instant> {
        Some(self.idle_since? + self.idle_exit?)
    }

    /// To be called after every change of clients or transaction.
    fn update_idle(&mut self) {
        let idle = self.clients.is_empty() && self.transaction.is_none();
        match (idle, self.idle_since) {
            (true, None) => self.idle_since = Some(Instant::now()),
            (false, Some(_)) => self.idle_since = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Reads everything again and tells what changed: the OS object first.
    async fn reload(&mut self) -> Result<()> {
        let active = self.transaction.as_ref().map(Transaction::active);
        let now = Snapshot::load(&self.paths, active.as_ref())?;
        let before = std::mem::replace(&mut self.shown, now);
        for (path, interface, changed) in self.shown.changes_since(&before) {
            self.emit_changed(&path, interface, &changed).await?;
        }
        Ok(())
    }

    /// A name has gone from the bus.
    async fn vanished(&mut self, name: &str) -> Result<()> {
        if self.clients.remove(name) {
            self.update_idle();
        }
        let abandoned = self
            .transaction
            .as_ref()
            .is_some_and(|transaction| !transaction.started && transaction.sender == name);
        if abandoned {
            console::note("client disconnected before calling Start; cancelling");
            self.close_transaction().await?;
        }
        Ok(())
    }
}
