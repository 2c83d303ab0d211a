//! What is answered to a request.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use tokio::time::timeout;

use crate::fleetlock::{
    ClientParams, ErrorKind, Operation, PROTOCOL_HEADER, PROTOCOL_HEADER_VALUE, REQUEST_BYTES_MAX,
    RemoteError, clean_value, parse_request,
};

use super::desk::{CALLS_MAX, Desk, Verdict, Words};
use super::door::Caller;
use super::fragments::Identity;

/// What the handlers share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) desk: Desk,
    /// Where the host's files are seen.
    pub(super) root: PathBuf,
    /// How long a call is held open.
    pub(super) hold: Duration,
    /// How long a request's body may take to arrive.
    pub(super) body_within: Duration,
    /// The last refusal, so that a caller in a loop does not fill the journal.
    pub(super) said: Arc<Mutex<Option<String>>>,
}

/// An answer that is none of the desk's. Its word is out of a bounded set.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    kind: &'static str,
    value: String,
}

/// All paths: what is not the protocol's is told what is.
pub(super) fn routes(shared: Shared) -> Router {
    Router::new().fallback(answer).with_state(shared)
}

async fn answer(
    State(shared): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
) -> Response {
    let operation = match admit(&shared, &caller, request).await {
        Ok(operation) => operation,
        Err(refusal) => {
            shared.log(&refusal);
            return refused(&refusal);
        }
    };
    let call = shared.desk.open(operation, &caller.line);
    match call.verdict(shared.hold).await {
        Verdict::Yes => {
            shared.forget();
            tracing::info!(api = operation.name(), "Zincati was answered with 200");
            response(StatusCode::OK, "granted", "go on")
        }
        Verdict::No(words) => {
            let Words { kind, value } = words;
            tracing::debug!(api = operation.name(), kind, value, "Zincati was answered");
            no(waiting(operation), &kind, &value)
        }
        Verdict::TooMany => {
            let value = format!("more than {CALLS_MAX} calls at once; the oldest is answered");
            let refusal =
                Refusal { status: StatusCode::SERVICE_UNAVAILABLE, kind: "too_many_calls", value };
            shared.log(&refusal);
            refused(&refusal)
        }
    }
}

/// Everything that is looked at before a call waits for its answer.
async fn admit(shared: &Shared, caller: &Caller, request: Request) -> Result<Operation, Refusal> {
    if let Some(why) = &caller.refused {
        return Err(Refusal {
            status: StatusCode::FORBIDDEN,
            kind: "not_allowed",
            value: why.clone(),
        });
    }
    let (parts, body) = request.into_parts();
    let operation = match parts.uri.path() {
        "/v1/pre-reboot" => Operation::PreReboot,
        "/v1/steady-state" => Operation::SteadyState,
        _ => {
            let value = "expected /v1/pre-reboot or /v1/steady-state: Zincati's \
                         updates.fleet_lock.base_url must have no path";
            return Err(Refusal::protocol(ErrorKind::NotFound, value.to_owned()));
        }
    };
    if parts.method != Method::POST {
        let value = format!("expected POST, found {}", parts.method);
        return Err(Refusal::protocol(ErrorKind::MethodNotAllowed, value));
    }
    let header = parts.headers.get(PROTOCOL_HEADER).map(HeaderValue::as_bytes);
    if header != Some(PROTOCOL_HEADER_VALUE.as_bytes()) {
        let value = format!("expected the header {PROTOCOL_HEADER}: {PROTOCOL_HEADER_VALUE}");
        return Err(Refusal::protocol(ErrorKind::MissingHeader, value));
    }
    let body = timeout(shared.body_within, collect(body)).await.unwrap_or_else(|_| {
        let value = format!("the body did not arrive within {:?}", shared.body_within);
        Err(Refusal::protocol(ErrorKind::RequestTimeout, value))
    })?;
    let asked = parse_request(&body).map_err(|e| Refusal::protocol(e.kind(), e.to_string()))?;
    // A few small files of this host: no need of another thread.
    let own = Identity::read(&shared.root).map_err(|value| Refusal {
        status: StatusCode::SERVICE_UNAVAILABLE,
        kind: "identity_unknown",
        value,
    })?;
    is_own(&asked, &own)?;
    Ok(operation)
}

/// Whether this host's Zincati asks: another one's reboot would take this node's drain for its own.
fn is_own(asked: &ClientParams, own: &Identity) -> Result<(), Refusal> {
    let refusal = |kind, name: &str, asked: &str, own: &str, key: &str| Refusal {
        status: StatusCode::FORBIDDEN,
        kind,
        value: format!(
            "asked as {name} {asked}, but Zincati's configuration on this host says {own}: set \
             {key}, or restart zincati.service if it was set since"
        ),
    };
    if asked.id != own.id {
        return Err(refusal("other_id", "id", &asked.id, &own.id, "identity.node_uuid"));
    }
    if asked.group != own.group {
        return Err(refusal("other_group", "group", &asked.group, &own.group, "identity.group"));
    }
    Ok(())
}

async fn collect(body: Body) -> Result<Vec<u8>, Refusal> {
    let mut chunks = body.into_data_stream();
    let mut collected = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            Refusal::protocol(ErrorKind::InvalidBody, format!("the body broke off: {error}"))
        })?;
        if collected.len() + chunk.len() > REQUEST_BYTES_MAX {
            let value = format!("the body is longer than {REQUEST_BYTES_MAX} bytes");
            return Err(Refusal::protocol(ErrorKind::BodyTooLarge, value));
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected)
}

/// The status of an answer of the desk that is no grant.
fn waiting(operation: Operation) -> StatusCode {
    match operation {
        Operation::PreReboot => StatusCode::LOCKED,
        Operation::SteadyState => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn refused(refusal: &Refusal) -> Response {
    let mut response = no(refusal.status, refusal.kind, &clean_value(&refusal.value));
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// No grant, whatever the status was meant to be: Zincati takes any 2xx for one, and what it finds
/// behind a redirect too.
fn no(status: StatusCode, kind: &str, value: &str) -> Response {
    let is_error = status.is_client_error() || status.is_server_error();
    let status = if is_error { status } else { StatusCode::INTERNAL_SERVER_ERROR };
    response(status, kind, value)
}

/// One request a connection, so that what is written behind it can only be its answer.
fn response(status: StatusCode, kind: &str, value: &str) -> Response {
    let body = RemoteError { kind: kind.to_owned(), value: value.to_owned() };
    let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

// === impl Refusal ===

impl Refusal {
    fn protocol(kind: ErrorKind, value: String) -> Self {
        let status = StatusCode::from_u16(kind.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, kind: kind.word(), value }
    }
}

// === impl Shared ===

impl Shared {
    /// Says a refusal once, until another one or a grant came.
    fn log(&self, refusal: &Refusal) {
        let (kind, value) = (refusal.kind, clean_value(&refusal.value));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() == Some(&value) {
            tracing::debug!(kind, value, "a call over the bridge was refused again");
            return;
        }
        tracing::warn!(kind, value, "a call over the bridge was refused");
        *said = Some(value);
    }

    fn forget(&self) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
