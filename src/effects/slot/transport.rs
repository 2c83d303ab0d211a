//! One HTTP request, from files to bytes, with every way to fail told by name.
//!
//! A client is built for each request: requests are minutes apart, so that a kept connection would
//! be stale, and rotated certificates are read anew without any watching.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Certificate, Client, ClientBuilder, Identity, Proxy, redirect};

use crate::config::SlotServer;
use crate::config::file::read_bounded;

/// An answer is a sentence; more than this is something else's.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// A CA bundle of a whole distribution is about 250 kB.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What came back.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Why nothing usable came back.
#[derive(Debug)]
pub(super) struct Trouble {
    /// `connect`, `dns`, `tls`, `timeout`, `too-large`, `not-an-answer`, `io` or `config`.
    pub(super) kind: &'static str,
    /// What happened, for people.
    pub(super) error: String,
    /// The server may have seen the request, and done what it asks.
    pub(super) may_have_reached: bool,
}

/// Makes *ring* the TLS provider of the process, unless there is one.
pub(super) fn install_tls_provider() {
    // An error says that another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Builds the client of one request from the files as they are now.
pub(super) async fn client(
    settings: &SlotServer,
    environment_proxy: bool,
) -> Result<Client, Trouble> {
    let mut builder = builder(settings, environment_proxy).await?;
    if settings.ca_file.is_none() && !speaks_tls(settings, environment_proxy) {
        // The system's trust store is slow to read, and where there is none reqwest refuses to
        // build, though nobody asked for TLS.
        builder = builder.tls_certs_only(Vec::new());
    }
    builder.build().map_err(unusable)
}

/// Whether anything on the way is reached over TLS: the server, or a proxy.
fn speaks_tls(settings: &SlotServer, environment_proxy: bool) -> bool {
    let is_https = |url: &str| url.trim().to_ascii_lowercase().starts_with("https://");
    if is_https(&settings.base_url) {
        return true;
    }
    match &settings.proxy {
        Some(proxy) => is_https(proxy),
        None if environment_proxy => ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|proxy| is_https(&proxy))),
        None => false,
    }
}

/// Sends one request and reads its answer to the end. No longer than the client's timeout.
pub(super) async fn post(
    client: &Client,
    url: reqwest::Url,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<Reply, Trouble> {
    let mut response =
        client.post(url).headers(headers).body(body).send().await.map_err(|e| lost(e, true))?;
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).map(ToOwned::to_owned);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| lost(e, false))? {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            let error = format!("HTTP {status} with more than {BODY_BYTES_MAX} bytes");
            return Err(Trouble { kind: "too-large", error, may_have_reached: true });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply { status, retry_after, body })
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    crate::fleetlock::clean_value(&text)
}

async fn builder(settings: &SlotServer, environment_proxy: bool) -> Result<ClientBuilder, Trouble> {
    let mut builder = Client::builder()
        .user_agent(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .connect_timeout(settings.connect_timeout)
        .timeout(settings.answer_timeout)
        .pool_max_idle_per_host(0)
        .tcp_keepalive(Duration::from_secs(60));
    if let Some(file) = &settings.ca_file {
        let certificates = Certificate::from_pem_bundle(&read(file).await?)
            .map_err(|e| Trouble::before("config", format!("{}: {}", file.display(), chain(&e))))?;
        if certificates.is_empty() {
            let error = format!("{}: expected PEM certificates, found none", file.display());
            return Err(Trouble::before("config", error));
        }
        builder = builder.tls_certs_only(certificates);
    }
    if let Some((certificate, key)) = &settings.client_certificate {
        let mut pem = read(certificate).await?;
        pem.push(b'\n');
        pem.extend(read(key).await?);
        let identity = Identity::from_pem(&pem).map_err(|e| {
            let (certificate, key) = (certificate.display(), key.display());
            Trouble::before("config", format!("{certificate} and {key}: {}", chain(&e)))
        })?;
        builder = builder.identity(identity);
    }
    match &settings.proxy {
        Some(proxy) => {
            let proxy = Proxy::all(proxy.as_str()).map_err(unusable)?;
            builder = builder.proxy(proxy);
        }
        None if !environment_proxy => builder = builder.no_proxy(),
        None => {}
    }
    Ok(builder)
}

async fn read(file: &Path) -> Result<Vec<u8>, Trouble> {
    let path = file.to_owned();
    let read = tokio::task::spawn_blocking(move || read_bounded(&path, PEM_BYTES_MAX)).await;
    let trouble = |e: io::Error| Trouble::before("io", format!("{}: {e}", file.display()));
    read.map_err(|e| trouble(io::Error::other(e)))?.map_err(trouble)
}

fn unusable(error: reqwest::Error) -> Trouble {
    Trouble::before("config", chain(&error.without_url()))
}

/// What a failed request says; `sending` while no answer has begun.
fn lost(error: reqwest::Error, sending: bool) -> Trouble {
    let unconnected = sending && error.is_connect();
    let kind = if error.is_builder() {
        "config"
    } else if error.is_timeout() {
        "timeout"
    } else if error.is_dns() {
        "dns"
    } else if caused_by_tls(&error) {
        "tls"
    } else if unconnected {
        "connect"
    } else if connection_broke(&error) {
        "io"
    } else {
        "not-an-answer"
    };
    let may_have_reached = !unconnected && !error.is_builder();
    Trouble { kind, error: chain(&error.without_url()), may_have_reached }
}

fn caused_by_tls(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if current.is::<rustls::Error>() {
            return true;
        }
        // An io::Error's source skips the error that it wraps.
        let wrapped = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if wrapped.is_some_and(|inner| caused_by_tls(inner)) {
            return true;
        }
        cause = current.source();
    }
    false
}

/// A connection that broke, as against a server that closed it in mid-answer or spoke no HTTP.
fn connection_broke(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<io::Error>() {
            return !matches!(io.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData);
        }
        cause = current.source();
    }
    false
}

// === impl Trouble ===

impl Trouble {
    /// Before anything was sent.
    pub(super) fn before(kind: &'static str, error: String) -> Self {
        Self { kind, error, may_have_reached: false }
    }
}
