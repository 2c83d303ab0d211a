//! Zincati's FleetLock client: the same HTTP library, used in the same way.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::config::Config;

/// The client of one slot server.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    body: String,
}

/// Why it was no grant; its text is the one that Zincati logs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// An error of the protocol.
    Remote {
        /// HTTP status.
        status: u16,
        /// The word of the server.
        kind: String,
        /// The sentence of the server.
        value: String,
    },
    /// Another answer.
    Http(u16),
    /// No answer.
    Request(String),
}

#[derive(Debug, Serialize)]
struct Body<'a> {
    client_params: Params<'a>,
}

/// The order of the keys is the one on the wire.
#[derive(Debug, Serialize)]
struct Params<'a> {
    id: &'a str,
    group: &'a str,
}

#[derive(Debug, Deserialize)]
struct Rejection {
    kind: String,
    value: String,
}

impl Client {
    /// The client of the configured server; `None`: the strategy has none.
    pub(crate) fn new(config: &Config, timeout: Duration) -> Result<Option<Self>> {
        let Some(base) = &config.base_url else { return Ok(None) };
        let base = Url::parse(base).with_context(|| format!("base_url {base:?}"))?;
        // Another part of the process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder().timeout(timeout);
        if base.scheme() == "http" {
            // Hosts of the lab have no trust store, which is no matter without TLS.
            builder = builder.tls_certs_only(Vec::new());
        }
        let params = Params { id: &config.id, group: &config.group };
        let body = serde_json::to_string_pretty(&Body { client_params: params })?;
        Ok(Some(Self { http: builder.build()?, base, body }))
    }

    /// Asks for the slot.
    pub(crate) async fn pre_reboot(&self) -> Result<(), LockError> {
        self.post("v1/pre-reboot").await
    }

    /// Gives it back.
    pub(crate) async fn steady_state(&self) -> Result<(), LockError> {
        self.post("v1/steady-state").await
    }

    /// No Content-Type and no User-Agent; redirects are followed as the library likes; any 2xx is yes.
    /// A base URL whose path does not end in a slash loses its last part.
    async fn post(&self, api: &str) -> Result<(), LockError> {
        let url = self.base.join(api).map_err(|error| LockError::Request(error.to_string()))?;
        let request = self.http.post(url).body(self.body.clone());
        let sent = request.header("fleet-lock-protocol", "true").send().await;
        let answer = sent.map_err(|error| LockError::Request(chain(&error)))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let rejection = answer.json::<Rejection>().await;
        Err(match rejection {
            Ok(Rejection { kind, value }) => {
                LockError::Remote { status: status.as_u16(), kind, value }
            }
            Err(_) => LockError::Http(status.as_u16()),
        })
    }
}

/// An error and what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl LockError {
    /// The word in Zincati's metrics.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Remote { kind, .. } => kind.clone(),
            Self::Http(status) => format!("generic_http_{status}"),
            Self::Request(_) => "client_failed_request".to_owned(),
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { status, value, .. } => {
                write!(f, "server-side error, code {status}: {value}")
            }
            Self::Http(status) => write!(f, "server-side error, code {status}"),
            Self::Request(error) => write!(f, "client-side error: {error}"),
        }
    }
}
