//! The bridge: Zincati on this host asks the agent for its reboot as if that were a FleetLock server.
//!
//! ```text
//! door: bounded, loopback, who calls ─► server: is it a request of this host's Zincati ─► desk ─► events
//!                                                                             heart: grant, refuse, steady
//! ```
//! A call waits at the [`Desk`] until the heart answers it or its time is over. Every answer but the
//! heart's grant is an error of the protocol: Zincati takes any 2xx for a grant, and what it finds
//! behind a redirect as well.

mod callers;
mod desk;
mod door;
mod fragments;
mod line;
#[cfg(test)]
mod noise;
mod server;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc::Sender;

use crate::config::ZincatiSettings;
use crate::lifecycle::Event;

use callers::Callers;
pub use desk::{CALLS_MAX, Desk};
use door::{Caller, Door};
pub use fragments::Identity;
pub(crate) use fragments::{fragments, read};
use server::{Shared, routes};

/// What the bridge needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeSettings {
    /// A loopback address to listen on.
    pub listen: SocketAddr,
    /// How long a call is held open before it is told what is waited for.
    pub hold: Duration,
    /// Where the host's files are seen: Zincati's configuration, its user, the machine id.
    pub root: PathBuf,
}

/// Bounds on strangers and on friends in a loop.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Connections at once: all calls that are held open, and as many that are being read or answered.
    connections: usize,
    /// Of these, those that may not call and are told so.
    strangers: usize,
    /// Time between two connections that are taken in. Each costs a look through the kernel's table
    /// of connections; Zincati comes once in 5 minutes.
    pace: Duration,
    /// How long a request's head may take to arrive.
    head_within: Duration,
    /// How long its body may take.
    body_within: Duration,
    /// How long a call is held open.
    hold: Duration,
    /// Time between two events. Each may make the heart look at its gates anew.
    event_pace: Duration,
    /// Time until an address that could not be had is tried again.
    bind_retry: Duration,
}

/// What a connection needs beside the time in which its call is held open: to come in and be answered.
const BESIDE_THE_HOLD: Duration = Duration::from_secs(60);

/// Serves Zincati's calls over the desk and tells the heart of them. An address that cannot be had is
/// said once and tried again. Returns only when nobody listens to the events any more.
pub async fn serve(settings: BridgeSettings, desk: Desk, to: Sender<Event>) {
    let bounds = Bounds::new(settings.hold);
    let callers = Callers::new(settings.root.clone());
    serve_within(settings, callers, bounds, desk, to).await;
}

async fn serve_within(
    settings: BridgeSettings,
    callers: Callers,
    bounds: Bounds,
    desk: Desk,
    to: Sender<Event>,
) {
    tokio::select! {
        () = tell(&desk, &to, bounds.event_pace) => {}
        () = to.closed() => {}
        never = listen(&settings, &callers, &bounds, &desk) => match never {},
    }
}

/// Tells what happens at the desk. What happens while an event waits for its place in the channel is
/// told as one.
async fn tell(desk: &Desk, to: &Sender<Event>, pace: Duration) {
    loop {
        let event = desk.news().await;
        if to.send(event).await.is_err() {
            return;
        }
        tokio::time::sleep(pace).await;
    }
}

async fn listen(
    settings: &BridgeSettings,
    callers: &Callers,
    bounds: &Bounds,
    desk: &Desk,
) -> Infallible {
    let address = settings.listen;
    let mut said = None;
    loop {
        let listener = TcpListener::bind(address).await;
        let door = listener.and_then(|listener| Door::new(listener, callers.clone(), bounds));
        let ended = match door {
            Ok(door) => {
                tracing::info!(%address, "Zincati on this host is listened to");
                said = None;
                let shared = Shared {
                    desk: desk.clone(),
                    root: settings.root.clone(),
                    hold: bounds.hold,
                    body_within: bounds.body_within,
                    said: Arc::default(),
                };
                let service = routes(shared).into_make_service_with_connect_info::<Caller>();
                axum::serve(door, service).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended
            && said != Some(error.kind())
        {
            tracing::error!(
                %address, %error, "Zincati cannot be listened to and will not reboot; trying again"
            );
            said = Some(error.kind());
        }
        tokio::time::sleep(bounds.bind_retry).await;
    }
}

/// Whether a base URL in Zincati's configuration leads to the bridge that listens there.
///
/// Zincati joins base and path as a browser does: a last part without a slash behind it is lost.
pub fn leads_to_bridge(base_url: &str, listen: SocketAddr) -> bool {
    let Ok(url) = reqwest::Url::parse(base_url) else { return false };
    let host = url.host_str().unwrap_or_default();
    let is_ours = host.trim_matches(['[', ']']).parse() == Ok(listen.ip())
        || (host == "localhost" && listen.ip() == Ipv4Addr::LOCALHOST);
    let is_root = !url.path().trim_start_matches('/').contains('/');
    url.scheme() == "http"
        && is_ours
        && is_root
        && url.port_or_known_default() == Some(listen.port())
}

// === impl BridgeSettings ===

impl BridgeSettings {
    /// The settings on a host whose files are seen under `root`.
    pub fn new(settings: &ZincatiSettings, root: PathBuf) -> Self {
        Self { listen: settings.listen, hold: settings.hold, root }
    }
}

// === impl Bounds ===

impl Bounds {
    fn new(hold: Duration) -> Self {
        Self {
            connections: 2 * CALLS_MAX,
            strangers: CALLS_MAX / 2,
            pace: Duration::from_millis(100),
            head_within: Duration::from_secs(5),
            body_within: Duration::from_secs(10),
            hold,
            event_pace: Duration::from_millis(250),
            bind_retry: Duration::from_secs(10),
        }
    }

    /// How long a connection may last.
    fn lifetime(&self) -> Duration {
        self.hold + BESIDE_THE_HOLD
    }
}
