//! The API server as this node may use it: one client, its credential, and what went wrong with it.
//!
//! The client library reads client certificates once. Here their files are compared whenever a
//! client is handed out, a long watch is told when they change ([`Cluster::outdated`]), and a 401
//! has the next client built anew.

mod credentials;
#[cfg(test)]
pub(crate) mod fake;
mod files;
mod guard;
mod identity;
mod namespaces;
#[cfg(test)]
pub(crate) mod noise;
mod retry;
#[cfg(test)]
mod tests;
mod trouble;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::client::ClientBuilder;
use tokio::sync::{Mutex, watch};

use crate::config::{Credentials, NodeSettings};
use crate::lifecycle::NodeTrouble;

pub use credentials::CredentialError;
pub use identity::{host_name, self_check};
pub(crate) use retry::Retry;

use files::Stamps;
use guard::Guard;

/// How long one watch lasts before it is begun anew, seconds. The API server ends it by then, so a
/// connection that is silent for longer is dead.
pub const WATCH_SECONDS: u32 = 290;
/// How long one request may take, reads and writes of one object alike. The server's own limit is
/// a minute; a node that waits for a busy one is better off asking again.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long building a client may take: it may run a credential plugin.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a name that is only for people may be waited for.
const NAME_TIMEOUT: Duration = Duration::from_millis(500);

/// The API server. Clones share everything.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

/// A client, and which of the clients in a row it is.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: kube::Client,
    /// Counts from 1; a higher one has replaced this.
    pub generation: u64,
}

struct Inner {
    settings: NodeSettings,
    refused: AtomicBool,
    held: Mutex<Held>,
    /// Held while a client is built, also by one that is no longer waited for.
    building: Arc<Mutex<()>>,
    present: watch::Sender<Present>,
    watched: std::sync::Mutex<Option<Arc<Node>>>,
    told: std::sync::Mutex<namespaces::Told>,
}

/// The client in use, for those who wait for another or speak of its credential.
#[derive(Default)]
struct Present {
    generation: u64,
    origin: Arc<str>,
}

/// What is kept between calls.
#[derive(Default)]
struct Held {
    connection: Option<Connection>,
    stamps: Stamps,
    /// The Node's name, and for which generation it was found out.
    name: Option<(u64, String)>,
}

// === impl Cluster ===

impl Cluster {
    /// Touches neither files nor network.
    pub fn new(settings: &NodeSettings) -> Self {
        install_tls();
        Self {
            inner: Arc::new(Inner {
                settings: settings.clone(),
                refused: AtomicBool::new(false),
                held: Mutex::default(),
                building: Arc::default(),
                present: watch::Sender::default(),
                watched: std::sync::Mutex::default(),
                told: std::sync::Mutex::default(),
            }),
        }
    }

    /// The client: the present one while its files are unchanged and nobody called
    /// [`Cluster::refused`], else a new one.
    ///
    /// # Errors
    /// [`NodeTrouble::NoCredential`], which names the file and what was expected of it.
    pub async fn client(&self) -> Result<kube::Client, NodeTrouble> {
        Ok(self.connection().await?.client)
    }

    /// Like [`Cluster::client`], for those who keep it for long.
    ///
    /// # Errors
    /// As for [`Cluster::client`].
    pub async fn connection(&self) -> Result<Connection, NodeTrouble> {
        let mut held = self.inner.held.lock().await;
        let refused = self.inner.refused.swap(false, Ordering::AcqRel);
        if let Some(connection) = &held.connection
            && !refused
            && !held.stamps.changed()
            && !expired(&connection.client)
        {
            return Ok(connection.clone());
        }
        held.connection = None;
        let loaded = credentials::load(&self.inner.settings.credentials).await;
        held.stamps = loaded.stamps;
        let built = match loaded.config {
            Ok(config) => build(config, &loaded.origin, &self.inner.building).await,
            Err(error) => Err(error),
        };
        // Told even of a failure: whoever holds the old client must not go on with it.
        let generation = self.inner.present.borrow().generation + 1;
        let origin: Arc<str> = loaded.origin.into();
        let result = match built {
            Ok(client) => {
                tracing::debug!(origin = &*origin, generation, "API client built");
                let connection = Connection { client, generation };
                held.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => Err(NodeTrouble::NoCredential(error.to_string())),
        };
        drop(held);
        self.inner.present.send_replace(Present { generation, origin });
        result
    }

    /// A 401 came: the next client is built anew, whatever its files look like.
    pub fn refused(&self) {
        self.inner.refused.store(true, Ordering::Release);
    }

    /// Comes back once the files of the credential, as last read, have changed.
    pub async fn changed(&self) {
        let stamps = self.inner.held.lock().await.stamps.clone();
        if stamps == Stamps::default() {
            // Never read: the first candidates are what may change.
            if let Credentials::Kubeconfig(paths) = &self.inner.settings.credentials {
                return Stamps::take(paths.iter().cloned()).wait().await;
            }
        }
        stamps.wait().await;
    }

    /// Comes back once `connection` should be replaced: its files changed, or another client was
    /// built since. An open watch would go on with an expired certificate and prove nothing.
    pub async fn outdated(&self, connection: &Connection) {
        let mut present = self.inner.present.subscribe();
        let replaced = present.wait_for(|present| present.generation != connection.generation);
        tokio::select! {
            _ = replaced => {}
            () = self.changed() => {}
        }
    }

    /// The name of the own Node: the configured one, else that of the identity (a kubelet's
    /// certificate, or the Node that a pod's token is bound to), else `$NODE_NAME`, else the host's.
    ///
    /// # Errors
    /// The API server is asked once per credential and may be in trouble.
    pub async fn node_name(&self) -> Result<String, NodeTrouble> {
        if let Some(name) = &self.inner.settings.name {
            return Ok(name.clone());
        }
        let connection = self.connection().await?;
        if let Some((generation, name)) = &self.inner.held.lock().await.name
            && *generation == connection.generation
        {
            return Ok(name.clone());
        }
        let found = identity::node_name(self, &connection.client).await?;
        self.inner.held.lock().await.name = Some((connection.generation, found.clone()));
        Ok(found)
    }

    /// The name of the own Node as far as it is known, for people: nobody is asked, and a client
    /// that is being built is hardly waited for.
    pub async fn known_name(&self) -> Option<String> {
        if let Some(name) = &self.inner.settings.name {
            return Some(name.clone());
        }
        let held = tokio::time::timeout(NAME_TIMEOUT, self.inner.held.lock()).await.ok()?;
        held.name.as_ref().map(|(_, name)| name.clone())
    }

    /// Keeps what the watch of the own Node shows, `None` once it shows nothing more. Its long lists
    /// are of no use to anybody here.
    pub fn keep_watched(&self, node: Option<Node>) {
        let node = node.map(|mut node| {
            node.metadata.managed_fields = None;
            if let Some(status) = &mut node.status {
                status.images = None;
            }
            Arc::new(node)
        });
        *self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner) = node;
    }

    /// The own Node as its watch showed it last; `None` where there is no watch of it. It may be
    /// old: only what the server checks, or what comes late without harm, may rest on it.
    pub fn watched(&self) -> Option<Arc<Node>> {
        self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Awaits one request, at most [`REQUEST_TIMEOUT`], and notes a 401 as [`Cluster::refused`].
    ///
    /// # Errors
    /// Those of the request; a lapse of time is a [`kube::Error::Service`].
    pub async fn bounded<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let result = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(result) => result,
            Err(_) => {
                let text = format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
                Err(kube::Error::Service(text.into()))
            }
        };
        if let Err(kube::Error::Api(status)) = &result
            && status.code == 401
        {
            self.refused();
        }
        result
    }

    /// An error of the client in the cycle's words: 401 refused, 403 forbidden, 404 missing, a
    /// credential that cannot be used, and unreachable for the rest.
    pub fn trouble(error: &kube::Error) -> NodeTrouble {
        trouble::trouble(error)
    }

    /// Like [`Cluster::trouble`], and names the credential where it is the credential's.
    pub fn explain(&self, error: &kube::Error) -> NodeTrouble {
        let origin = self.inner.present.borrow().origin.clone();
        match Self::trouble(error) {
            NodeTrouble::Refused(text) => NodeTrouble::Refused(format!("{origin}: {text}")),
            NodeTrouble::Forbidden(text) => NodeTrouble::Forbidden(format!("{origin}: {text}")),
            NodeTrouble::NoCredential(text) => {
                NodeTrouble::NoCredential(format!("{origin}: {text}"))
            }
            trouble @ (NodeTrouble::Missing(_) | NodeTrouble::Unreachable(_)) => trouble,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Makes *ring* the process's TLS provider. Idempotent; whoever was first stays.
pub fn install_tls() {
    // The only error is that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A certificate that a plugin handed out tells its own end.
#[expect(clippy::disallowed_methods, reason = "no decision: it asks for a new certificate early")]
fn expired(client: &kube::Client) -> bool {
    client.valid_until().is_some_and(|until| jiff::Timestamp::now() >= until)
}

/// Builds off the runtime's threads, since a credential plugin is run and awaited in place. One that
/// hangs keeps its thread, so that the next try waits for it.
async fn build(
    config: kube::Config,
    origin: &str,
    building: &Arc<Mutex<()>>,
) -> Result<kube::Client, CredentialError> {
    let unusable = |why: String| CredentialError::Unusable { origin: origin.to_owned(), why };
    let alone = building.clone();
    let built = async move {
        let alone = alone.lock_owned().await;
        tokio::task::spawn_blocking(move || {
            let _alone = alone;
            let builder = ClientBuilder::try_from(config)?;
            Ok(builder.with_layer(&Guard::default()).build())
        })
        .await
    };
    match tokio::time::timeout(BUILD_TIMEOUT, built).await {
        Ok(Ok(Ok(client))) => Ok(client),
        Ok(Ok(Err(error))) => Err(unusable(trouble::describe(&error))),
        Ok(Err(error)) => Err(unusable(error.to_string())),
        Err(_) => Err(unusable(format!("it took longer than {} s", BUILD_TIMEOUT.as_secs()))),
    }
}
