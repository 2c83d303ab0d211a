//! A transaction: a private socket, peers on it, one piece of work that waits for Start.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zbus::message::{Message, Type};
use zbus::wire::Variant;
use zbus::{Connection, Guid, MessageStream};

use crate::console;
use crate::faults::{Faults, Kind};
use crate::files;
use crate::journal;
use crate::paths::Paths;

use super::Daemon;
use super::bus::{self, Answer, Refusal};
use super::execute::{self, Done, Work};
use super::properties::Active;

pub(crate) const INTERFACE: &str = "org.projectatomic.rpmostree1.Transaction";
/// Peers that stay after the end are closed then.
const FORCE_CLOSE: Duration = Duration::from_secs(30);

/// Longest life after a reboot was asked for, when the reply is to be lost.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// What peers and work tell the daemon; the number is that of the transaction.
#[derive(Debug)]
pub(crate) enum Event {
    Connected { transaction: u64, peer: u64, connection: Connection },
    Call { transaction: u64, peer: u64, message: Message },
    Closed { transaction: u64, peer: u64 },
    Executed { transaction: u64, outcome: Result<Done, String> },
    Overdue { transaction: u64 },
}

/// The one transaction that there can be.
#[derive(Debug)]
pub(crate) struct Transaction {
    number: u64,
    method: String,
    arguments: Vec<u8>,
    pub(crate) sender: String,
    path: String,
    pub(crate) title: String,
    client: String,
    address: String,
    work: Work,
    pub(crate) started: bool,
    finished: Option<(bool, String)>,
    cancelled: Arc<AtomicBool>,
    peers: BTreeMap<u64, Connection>,
    listener: JoinHandle<()>,
    lock: Option<File>,
}

/// What a method call asks for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) method: String,
    pub(crate) arguments: Vec<u8>,
    pub(crate) sender: String,
    pub(crate) path: String,
    pub(crate) title: String,
    pub(crate) uid: u32,
    pub(crate) work: Work,
}

// === impl Transaction ===

impl Transaction {
    pub(crate) fn active(&self) -> Active {
        Active {
            method: self.method.clone(),
            sender: self.sender.clone(),
            path: self.path.clone(),
            address: self.address.clone(),
        }
    }

    fn is_joined_by(&self, order: &Order) -> bool {
        self.method == order.method && self.arguments == order.arguments
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

// === impl Daemon ===

impl Daemon {
    /// Creates a transaction, or joins the same one; answers its address.
    pub(crate) async fn begin(&mut self, order: Order) -> Result<Answer, Refusal> {
        if self.rebooting {
            return Err(Refusal::failed("Reboot initiated, cannot start new transaction"));
        }
        if let Some(current) = &self.transaction {
            if current.is_joined_by(&order) {
                console::note("Client joining existing transaction");
                return Ok(Answer::Text(current.address.clone()));
            }
            return Err(Refusal::busy(format!(
                "Transaction in progress: {}\n You can cancel the current transaction with `rpm-ostree cancel`",
                current.title
            )));
        }
        let Some(lock) = files::try_lock(&self.paths).map_err(Refusal::from)? else {
            return Err(Refusal::busy("System transaction in progress"));
        };
        self.transactions += 1;
        let number = self.transactions;
        let listener = listen(&self.paths, number, self.events.clone()).map_err(Refusal::from)?;
        let socket = self.paths.transaction_socket();
        let address = format!("unix:path={}", socket.display());
        console::note(&format!(
            "Initiated txn {} for client(dbus:{} uid:{}): {}",
            order.method, order.sender, order.uid, order.path
        ));
        self.transaction = Some(Transaction {
            number,
            client: format!("client(dbus:{} uid:{})", order.sender, order.uid),
            method: order.method,
            arguments: order.arguments,
            sender: order.sender,
            path: order.path,
            title: order.title,
            address: address.clone(),
            work: order.work,
            started: false,
            finished: None,
            cancelled: Arc::new(AtomicBool::new(false)),
            peers: BTreeMap::new(),
            listener,
            lock: Some(lock),
        });
        self.update_idle();
        self.reload().await.map_err(Refusal::from)?;
        Ok(Answer::Text(address))
    }

    pub(crate) async fn event(&mut self, event: Event) -> Result<()> {
        let number = match &event {
            Event::Connected { transaction, .. }
            | Event::Call { transaction, .. }
            | Event::Closed { transaction, .. }
            | Event::Executed { transaction, .. }
            | Event::Overdue { transaction } => *transaction,
        };
        let Some(current) = self.transaction.as_mut().filter(|each| each.number == number) else {
            // Too late for a transaction that is gone; only a new peer waits for something.
            if let Event::Connected { connection, .. } = event {
                let _ = connection.close().await;
            }
            return Ok(());
        };
        match event {
            Event::Connected { peer, connection, .. } => {
                current.peers.insert(peer, connection);
            }
            Event::Call { peer, message, .. } => self.peer_call(peer, &message).await?,
            Event::Closed { peer, .. } => {
                current.peers.remove(&peer);
                if current.finished.is_some() && current.peers.is_empty() {
                    self.close_transaction().await?;
                }
            }
            Event::Executed { outcome, .. } => self.executed(outcome).await?,
            Event::Overdue { .. } => self.close_transaction().await?,
        }
        Ok(())
    }

    /// A call of a peer on its private connection.
    async fn peer_call(&mut self, peer: u64, message: &Message) -> Result<()> {
        if message.message_type() != Type::MethodCall
            || Faults::load(&self.paths)?.is_on(Kind::Hang)
        {
            return Ok(());
        }
        let Some(current) = self.transaction.as_mut() else {
            return Ok(());
        };
        let Some(connection) = current.peers.get(&peer).cloned() else {
            return Ok(());
        };
        let header = message.header();
        let member = header.member().map_or("", |member| member.as_str());
        let mut start = false;
        let answer = match member {
            "Start" => {
                start = !current.started;
                current.started = true;
                Ok(Answer::Flag(start))
            }
            "Cancel" => {
                current.cancelled.store(true, Ordering::Relaxed);
                Ok(Answer::Nothing)
            }
            "Ping" => Ok(Answer::Nothing),
            "Introspect" => Ok(Answer::Text(bus::introspection(&[INTERFACE], &[]))),
            "Get" => peer_property(current, message),
            "GetAll" => Ok(Answer::Variants(peer_properties(current))),
            other => Err(Refusal::unknown_method(other)),
        };
        let finished = current.finished.clone().filter(|_| member == "Start");
        // A peer that has gone meanwhile is told of by its Closed event.
        let _ = bus::answer(&connection, message, answer).await;
        if let Some(finished) = finished {
            let _ = emit(&connection, "Finished", &finished).await;
        }
        if start {
            self.start();
        }
        Ok(())
    }

    /// Runs the work in a task of its own.
    fn start(&self) {
        let Some(current) = &self.transaction else {
            return;
        };
        journal::send(
            &self.paths,
            &format!("Starting transaction {}", current.method),
            &[("MESSAGE_ID", journal::TRANSACTION), ("BUS_ADDRESS", &current.sender)],
        );
        let number = current.number;
        let work = execute::run(
            self.paths.clone(),
            self.bus.clone(),
            current.work.clone(),
            Arc::clone(&current.cancelled),
        );
        let events = self.events.clone();
        tokio::spawn(async move {
            let outcome = work.await.map_err(|error| format!("{error:#}"));
            let _ = events.send(Event::Executed { transaction: number, outcome }).await;
        });
    }

    /// Property changes come first, then Finished, and the transaction goes last.
    async fn executed(&mut self, outcome: Result<Done, String>) -> Result<()> {
        let mut finished = (true, String::new());
        let mut lost = false;
        match outcome {
            Ok(done) => {
                self.reload().await?;
                if done == Done::Reboot {
                    self.rebooting = true;
                    let faults = Faults::load(&self.paths)?;
                    lost = faults.is_on(Kind::LostReply);
                    let reboot = (!faults.is_on(Kind::RebootNever)).then(|| tokio::spawn(reboot()));
                    if lost && let Some(reboot) = reboot {
                        // Our end would take the command with it before it has queued anything.
                        let _ = tokio::time::timeout(LOST_AFTER, reboot).await;
                    }
                }
            }
            Err(text) => finished = (false, text),
        }
        let Some(current) = self.transaction.as_mut() else {
            return Ok(());
        };
        if lost {
            console::note("dying without an answer, as told");
            self.leaving = true;
            return self.close_transaction().await;
        }
        console::note(&match finished.0 {
            true => format!("Txn {} on {} successful", current.method, current.path),
            false => format!("Txn {} on {} failed: {}", current.method, current.path, finished.1),
        });
        for connection in current.peers.values() {
            let _ = emit(connection, "Finished", &finished).await;
        }
        current.finished = Some(finished);
        current.lock = None;
        if current.peers.is_empty() {
            return self.close_transaction().await;
        }
        let (number, events) = (current.number, self.events.clone());
        tokio::spawn(async move {
            tokio::time::sleep(FORCE_CLOSE).await;
            let _ = events.send(Event::Overdue { transaction: number }).await;
        });
        Ok(())
    }

    /// Forgets the transaction and closes its peers.
    pub(crate) async fn close_transaction(&mut self) -> Result<()> {
        let Some(mut current) = self.transaction.take() else {
            return Ok(());
        };
        files::remove(&self.paths.transaction_socket())?;
        for connection in std::mem::take(&mut current.peers).into_values() {
            let _ = connection.close().await;
        }
        drop(current);
        self.update_idle();
        self.reload().await
    }
}

/// Opens the socket to everybody, as the real one.
fn listen(paths: &Paths, number: u64, events: mpsc::Sender<Event>) -> Result<JoinHandle<()>> {
    let path = paths.transaction_socket();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    files::remove(&path)?;
    let listener =
        UnixListener::bind(&path).with_context(|| format!("listening on {}", path.display()))?;
    fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(tokio::spawn(async move {
        let mut peer = 0;
        while let Ok((stream, _)) = listener.accept().await {
            peer += 1;
            tokio::spawn(serve(stream, number, peer, events.clone()));
        }
    }))
}

/// One peer: handshake, then every message to the daemon.
async fn serve(stream: UnixStream, transaction: u64, peer: u64, events: mpsc::Sender<Event>) {
    let Ok(stream) = stream.into_std() else {
        return;
    };
    let guid = Guid::generate();
    let builder = zbus::connection::Builder::unix_stream(stream).server(guid).p2p();
    let connection = match builder.build().await {
        Ok(connection) => connection,
        Err(error) => return console::note(&format!("a peer that could not speak: {error}")),
    };
    let mut messages = MessageStream::from(&connection);
    let _ = events.send(Event::Connected { transaction, peer, connection }).await;
    while let Some(Ok(message)) = messages.next().await {
        let _ = events.send(Event::Call { transaction, peer, message }).await;
    }
    let _ = events.send(Event::Closed { transaction, peer }).await;
}

async fn emit<B>(connection: &Connection, signal: &str, body: &B) -> zbus::Result<()>
where
    B: serde::Serialize + zbus::wire::DynamicType,
{
    connection.emit_signal(None::<zbus::names::BusName<'_>>, "/", INTERFACE, signal, body).await
}

fn peer_properties(current: &Transaction) -> BTreeMap<String, Variant<'static>> {
    [
        ("Title".to_owned(), Variant::from(current.title.clone())),
        ("InitiatingClientDescription".to_owned(), Variant::from(current.client.clone())),
    ]
    .into()
}

fn peer_property(current: &Transaction, message: &Message) -> Result<Answer, Refusal> {
    let (_, name): (String, String) = bus::arguments(message)?;
    peer_properties(current)
        .remove(&name)
        .map(Answer::Variant)
        .ok_or_else(|| Refusal::invalid(format!("No such property “{name}”")))
}

/// Queues the reboot.
async fn reboot() {
    let name = console::systemctl_name();
    match Command::new(&name).arg("reboot").status().await {
        Ok(status) if status.success() => {}
        Ok(status) => console::note(&format!("{name} reboot: {status}")),
        Err(error) => console::note(&format!("{name} reboot: {error}")),
    }
}
