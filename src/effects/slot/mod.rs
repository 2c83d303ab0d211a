//! Asking for the slot and giving it back.

mod transport;

#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::config::file::read_text_bounded;
use crate::config::{SlotBackend, SlotServer};
use crate::fleetlock::{
    ATTEMPT_HEADER, BOOT_HEADER, EndpointError, NODE_HEADER, Operation, PROTOCOL_HEADER,
    PROTOCOL_HEADER_VALUE, ReleaseAnswer, Request, SlotAnswer, SlotPlace, endpoint, is_group,
    is_node_name, read_answer, read_release, zincati_id,
};
use crate::model::{AttemptId, BootId};
use crate::signals::clock;

use transport::{Reply, Trouble};

/// Where a host keeps its machine id.
const MACHINE_ID_FILE: &str = "/etc/machine-id";
/// It has 33 bytes, or the word `uninitialized`.
const MACHINE_ID_BYTES_MAX: u64 = 4096;

/// Asks for the slot and gives it back, over whatever backend is configured. Cheap to clone.
#[derive(Clone)]
pub struct SlotClient {
    backend: Arc<Backend>,
}

/// What our own coordinator is told of who asks; other servers do not look at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asker<'a> {
    /// The attempt that the slot is for.
    pub attempt: Option<&'a AttemptId>,
    /// The boot that runs.
    pub boot: Option<&'a BootId>,
    /// The node's name, for people. One that is no name is not told.
    pub node: Option<&'a str>,
}

/// Why a backend can never work as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The base URL is none.
    #[error("base_url of the slot server")]
    BaseUrl(#[source] EndpointError),
    /// The base URL has the right beginning, but is no URL.
    #[error("base_url of the slot server: expected a URL, found {found:?}: {because}")]
    Url {
        /// The URL that was built from it, without what is secret in it.
        found: String,
        /// What the parser says.
        because: String,
    },
    /// The group does not match `^[a-zA-Z0-9.-]+$`.
    #[error("group of the slot server: expected ^[a-zA-Z0-9.-]+$, found {0:?}")]
    Group(String),
    /// A header that HTTP does not allow. Its value is not told: it may be a secret.
    #[error("header {0:?} of the slot server: expected a name and a value that HTTP allows")]
    Header(String),
    /// A header that the protocol itself sets.
    #[error("header {0:?} of the slot server: the protocol sets it itself")]
    ReservedHeader(String),
    /// The proxy is no URL.
    #[error("proxy of the slot server: expected a URL: {0}")]
    Proxy(String),
}

enum Backend {
    /// None is configured, and there is no default.
    Missing,
    /// A single machine: nobody to ask.
    Nobody,
    FleetLock(Box<Server>),
}

/// A FleetLock server, its settings once checked.
struct Server {
    settings: SlotServer,
    lock_url: reqwest::Url,
    unlock_url: reqwest::Url,
    headers: HeaderMap,
    machine_id_file: PathBuf,
    /// The id from that file, once it could be read; only for people.
    shown_id: OnceLock<String>,
    /// Off in tests, so that a proxy in their environment does not decide them.
    environment_proxy: bool,
}

// === impl SlotClient ===

impl SlotClient {
    /// The client of a backend. Touches neither network nor files.
    ///
    /// # Errors
    /// The settings can never work.
    pub fn new(backend: Option<&SlotBackend>) -> Result<Self, SlotError> {
        let backend = match backend {
            None => Backend::Missing,
            Some(SlotBackend::None) => Backend::Nobody,
            Some(SlotBackend::FleetLock(settings)) => {
                Backend::FleetLock(Box::new(Server::new(settings)?))
            }
        };
        Ok(Self { backend: Arc::new(backend) })
    }

    /// The server that is asked, for people; without what is secret in its URL.
    pub fn server(&self) -> Option<String> {
        match &*self.backend {
            Backend::Missing | Backend::Nobody => None,
            Backend::FleetLock(server) => Some(server.name()),
        }
    }

    /// Where the slot is asked for and as whom, for people; `None` without a server.
    pub fn place(&self) -> Option<SlotPlace> {
        match &*self.backend {
            Backend::Missing | Backend::Nobody => None,
            Backend::FleetLock(server) => Some(SlotPlace {
                server: server.name(),
                group: server.settings.group.clone(),
                id: server.shown_id(),
            }),
        }
    }

    /// Asks for the slot, or confirms it. Ends within the answer timeout.
    pub async fn request(&self) -> SlotAnswer {
        self.request_as(Asker::default()).await
    }

    /// As [`Self::request`]; our own coordinator is told who asks, so that it can refuse a second
    /// machine under the same id, and name the node to people.
    pub async fn request_as(&self, asker: Asker<'_>) -> SlotAnswer {
        let server = match &*self.backend {
            Backend::Missing => {
                return SlotAnswer::Failed {
                    kind: "no-backend".to_owned(),
                    error: "no slot backend is configured, and there is no default".to_owned(),
                    answer_lost: false,
                };
            }
            Backend::Nobody => return SlotAnswer::Granted,
            Backend::FleetLock(server) => server,
        };
        match server.ask(Operation::PreReboot, asker).await {
            Ok(reply) => read_answer(
                reply.status,
                reply.retry_after.as_deref(),
                &reply.body,
                clock::now().wall,
            ),
            Err(trouble) => SlotAnswer::Failed {
                kind: trouble.kind.to_owned(),
                error: trouble.error,
                answer_lost: trouble.may_have_reached,
            },
        }
    }

    /// Gives the slot back, whoever of this id took it. Ends within the answer timeout.
    pub async fn release(&self) -> ReleaseAnswer {
        self.release_as(Asker::default()).await
    }

    /// As [`Self::release`]; our own coordinator is told the attempt that took the slot and the
    /// boot that runs, so that one machine's release does not free the slot of another one under
    /// the same id.
    pub async fn release_as(&self, asker: Asker<'_>) -> ReleaseAnswer {
        let server = match &*self.backend {
            Backend::Missing | Backend::Nobody => return ReleaseAnswer::Released,
            Backend::FleetLock(server) => server,
        };
        match server.ask(Operation::SteadyState, asker).await {
            Ok(reply) => read_release(
                reply.status,
                reply.retry_after.as_deref(),
                &reply.body,
                clock::now().wall,
            ),
            Err(trouble) => ReleaseAnswer::Failed {
                kind: trouble.kind.to_owned(),
                error: trouble.error,
                retry_after: None,
            },
        }
    }
}

#[cfg(test)]
impl SlotClient {
    /// A client that no proxy of the tests' environment gets between.
    pub(crate) fn direct(settings: &SlotServer) -> Result<Self, SlotError> {
        let server = Server { environment_proxy: false, ..Server::new(settings)? };
        Ok(Self { backend: Arc::new(Backend::FleetLock(Box::new(server))) })
    }
}

impl fmt::Debug for SlotClient {
    /// Without headers, proxy and user, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.backend {
            Backend::Missing => f.write_str("SlotClient(no backend)"),
            Backend::Nobody => f.write_str("SlotClient(none)"),
            Backend::FleetLock(server) => write!(f, "SlotClient({})", server.name()),
        }
    }
}

// === impl Server ===

impl Server {
    fn new(settings: &SlotServer) -> Result<Self, SlotError> {
        transport::install_tls_provider();
        if !is_group(&settings.group) {
            return Err(SlotError::Group(settings.group.chars().take(128).collect()));
        }
        if let Some(proxy) = &settings.proxy {
            reqwest::Proxy::all(proxy.as_str())
                .map_err(|e| SlotError::Proxy(transport::chain(&e.without_url())))?;
        }
        Ok(Self {
            lock_url: url(&settings.base_url, Operation::PreReboot)?,
            unlock_url: url(&settings.base_url, Operation::SteadyState)?,
            headers: headers(settings)?,
            settings: settings.clone(),
            machine_id_file: PathBuf::from(MACHINE_ID_FILE),
            shown_id: OnceLock::new(),
            environment_proxy: true,
        })
    }

    fn name(&self) -> String {
        let mut base = self.lock_url.clone();
        // Neither fails: an http URL has a host.
        let _ = base.set_username("");
        let _ = base.set_password(None);
        base.as_str().trim_end_matches(Operation::PreReboot.path()).trim_end_matches('/').to_owned()
    }

    async fn ask(&self, operation: Operation, asker: Asker<'_>) -> Result<Reply, Trouble> {
        let id = match &self.settings.id {
            Some(id) => id.clone(),
            None => self.machine_id()?,
        };
        let url = match operation {
            Operation::PreReboot => &self.lock_url,
            Operation::SteadyState => &self.unlock_url,
        };
        let mut headers = self.headers.clone();
        let context = [
            (ATTEMPT_HEADER, asker.attempt.map(AttemptId::as_str)),
            (BOOT_HEADER, asker.boot.map(BootId::as_str)),
            // A name that nobody could read must not keep the slot away.
            (NODE_HEADER, asker.node.filter(|name| is_node_name(name))),
        ];
        for (name, value) in context {
            let value = value.and_then(|value| HeaderValue::from_str(value).ok());
            if let Some(value) = value {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let body = Request::new(id, self.settings.group.as_str()).body();
        let client = transport::client(&self.settings, self.environment_proxy).await?;
        transport::post(&client, url.clone(), headers, body).await
    }

    /// The id that the server sees; a few bytes are read until there is one, and not again.
    fn shown_id(&self) -> Option<String> {
        if let Some(id) = self.settings.id.as_ref().or_else(|| self.shown_id.get()) {
            return Some(id.clone());
        }
        let text = read_text_bounded(&self.machine_id_file, MACHINE_ID_BYTES_MAX).ok()?;
        let id = zincati_id(&text).ok()?;
        Some(self.shown_id.get_or_init(|| id).clone())
    }

    /// Read at each request: on a first boot the id may come later than the agent.
    fn machine_id(&self) -> Result<String, Trouble> {
        let file = self.machine_id_file.display();
        // A few bytes of a local file: no need of another thread.
        let text = read_text_bounded(&self.machine_id_file, MACHINE_ID_BYTES_MAX)
            .map_err(|e| Trouble::before("io", format!("{file}: {e}")))?;
        zincati_id(&text).map_err(|e| Trouble::before("config", format!("{file}: {e}")))
    }
}

fn url(base: &str, operation: Operation) -> Result<reqwest::Url, SlotError> {
    let text = endpoint(base, operation).map_err(SlotError::BaseUrl)?;
    reqwest::Url::parse(&text).map_err(|e| {
        // What stands before an `@` may be a password.
        let found = text.rsplit('@').next().unwrap_or_default().chars().take(128).collect();
        SlotError::Url { found, because: e.to_string() }
    })
}

/// The configured headers and the protocol's own. No Content-Type: one server reads JSON only
/// without it, and the others do not look at it.
fn headers(settings: &SlotServer) -> Result<HeaderMap, SlotError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let wrong = || SlotError::Header(name.chars().take(64).collect());
        let lower = name.to_ascii_lowercase();
        let ours = [PROTOCOL_HEADER, ATTEMPT_HEADER, BOOT_HEADER, NODE_HEADER];
        if ours.contains(&lower.as_str())
            || ["content-length", "transfer-encoding"].contains(&lower.as_str())
        {
            return Err(SlotError::ReservedHeader(lower));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(lower.as_bytes()).map_err(|_| wrong())?, value);
    }
    headers.insert(
        HeaderName::from_static(PROTOCOL_HEADER),
        HeaderValue::from_static(PROTOCOL_HEADER_VALUE),
    );
    Ok(headers)
}
