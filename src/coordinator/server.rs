//! The FleetLock server.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::{any, get};
use axum::serve::Listener;
use futures::StreamExt;
use jiff::Timestamp;
use tokio::time::timeout;

use crate::fleetlock::{
    ATTEMPT_HEADER, BOOT_HEADER, ErrorKind, NODE_HEADER, Operation, PROTOCOL_HEADER,
    PROTOCOL_HEADER_VALUE, REQUEST_BYTES_MAX, RemoteError, clean_value, parse_request,
};

use super::desk::{Desk, DeskError};
use super::metrics::{self, Metrics};
use super::slots::{Ask, Claim, Decision, Grant, Holder, Policies};

/// How long a request's body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// How long one connection may live: its request, one write of the store, its answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Holders that a refusal names; the number of the others follows.
const HOLDERS_NAMED_MAX: usize = 5;

/// What the handlers share.
#[derive(Debug, Clone)]
struct Shared {
    desk: Desk,
    policies: Policies,
    metrics: Metrics,
}

/// An answer that is none of a decision's.
struct Refusal {
    kind: ErrorKind,
    value: String,
}

/// Serves FleetLock, `/healthz` and `/metrics` until `shutdown` completes and every connection has
/// ended. Connections are bounded by the listener.
///
/// # Errors
/// The listener failed.
pub async fn serve<L>(
    listener: L,
    desk: Desk,
    policies: Policies,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    let router = Router::new()
        .route("/v1/pre-reboot", any(pre_reboot))
        .route("/v1/steady-state", any(steady_state))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .fallback(nothing_here)
        .with_state(Shared { desk, policies, metrics });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn pre_reboot(State(shared): State<Shared>, request: Request) -> Response {
    answer(shared, Operation::PreReboot, request).await
}

async fn steady_state(State(shared): State<Shared>, request: Request) -> Response {
    answer(shared, Operation::SteadyState, request).await
}

async fn answer(shared: Shared, operation: Operation, request: Request) -> Response {
    let api = operation.name();
    let ask = match read(operation, request).await {
        Ok(ask) => ask,
        Err(refusal) => {
            let kind = refusal.kind.word();
            tracing::warn!(api, kind, value = refusal.value, "request refused");
            shared.metrics.count(api, None, kind);
            return refused(&refusal);
        }
    };
    let known = shared.policies.contains_key(&ask.group);
    let group = known.then_some(ask.group.as_str());
    let decided = shared.desk.ask(ask.clone()).await;
    #[expect(clippy::disallowed_methods, reason = "only for the words of the answer")]
    let now = Timestamp::now();
    let (kind, response) = match &decided {
        Ok(decision) => match verdict(&ask, decision, now) {
            Ok((kind, value)) => {
                let mut response = response(StatusCode::OK, kind, &value);
                // Who got what it wanted may have more to ask at once.
                response.headers_mut().remove(CONNECTION);
                (kind, response)
            }
            Err(refusal) => (refusal.kind.word(), refused(&refusal)),
        },
        Err(error) => {
            let kind = match error {
                DeskError::NotWritten(_) => ErrorKind::StoreFailed,
                DeskError::Closed => ErrorKind::ShuttingDown,
            };
            (kind.word(), refused(&Refusal { kind, value: error.to_string() }))
        }
    };
    shared.metrics.count(api, group, kind);
    // Told behind the answer: a slow journal keeps nobody waiting for it.
    tokio::spawn(async move { log(&ask, &decided, kind) });
    response
}

/// Reads a request as the protocol has it.
async fn read(operation: Operation, request: Request) -> Result<Ask, Refusal> {
    let refuse = |kind, value: String| Refusal { kind, value };
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        let value = format!("expected POST, found {}", clean_value(parts.method.as_str()));
        return Err(refuse(ErrorKind::MethodNotAllowed, value));
    }
    if header(&parts.headers, PROTOCOL_HEADER)? != Some(PROTOCOL_HEADER_VALUE) {
        let value = format!("expected the header {PROTOCOL_HEADER}: {PROTOCOL_HEADER_VALUE}");
        return Err(refuse(ErrorKind::MissingHeader, value));
    }
    let attempt = header(&parts.headers, ATTEMPT_HEADER)?;
    let boot = header(&parts.headers, BOOT_HEADER)?;
    let node = header(&parts.headers, NODE_HEADER)?;
    let claim = Claim::read(attempt, boot, node);
    let claim = claim.map_err(|e| refuse(ErrorKind::InvalidContext, e))?;
    let body = timeout(BODY_WITHIN, collect(body)).await.unwrap_or_else(|_| {
        let value = format!("the body did not arrive within {} s", BODY_WITHIN.as_secs());
        Err(refuse(ErrorKind::RequestTimeout, value))
    })?;
    let params = parse_request(&body).map_err(|e| refuse(e.kind(), e.to_string()))?;
    Ok(Ask { group: params.group, id: params.id, operation, claim })
}

async fn collect(body: Body) -> Result<Vec<u8>, Refusal> {
    let mut chunks = body.into_data_stream();
    let mut collected = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Refusal {
            kind: ErrorKind::InvalidBody,
            value: format!("the body broke off: {error}"),
        })?;
        if collected.len() + chunk.len() > REQUEST_BYTES_MAX {
            let value = format!("the body is longer than {REQUEST_BYTES_MAX} bytes");
            return Err(Refusal { kind: ErrorKind::BodyTooLarge, value });
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Refusal {
        kind: ErrorKind::InvalidContext,
        value: format!("{name}: expected visible ASCII"),
    })
}

/// The word and the sentence for a decision: `Ok` is HTTP 200.
fn verdict(
    ask: &Ask,
    decision: &Decision,
    now: Timestamp,
) -> Result<(&'static str, String), Refusal> {
    let Ask { group, id, .. } = ask;
    Ok(match decision {
        Decision::Granted { grant, since } => {
            let kind = match grant {
                Grant::New => "granted",
                Grant::Confirmed => "confirmed",
                Grant::TakenOver => "taken_over",
            };
            (kind, format!("{id} holds a slot of {group} since {since:.0}"))
        }
        Decision::Released { holder } => {
            ("released", format!("{id} held a slot of {group} since {:.0}", holder.since))
        }
        Decision::NotHeld => ("not_held", format!("{id} holds no slot of {group}")),
        Decision::NotTheirs { holder } => {
            ("not_theirs", format!("not yours, and not released: {}", named(holder)))
        }
        Decision::Full { slots, holders } => {
            return Err(Refusal {
                kind: ErrorKind::SemaphoreFull,
                value: full(group, *slots, holders, now),
            });
        }
        Decision::OtherAttempt { holder } => {
            let value = format!(
                "another machine asks under the same id (a clone?): {}; if that one is gone: \
                 lockkeeper slots release {group} {id}",
                named(holder)
            );
            return Err(Refusal { kind: ErrorKind::HeldByOtherAttempt, value });
        }
        Decision::UnknownGroup => {
            let value = format!("group {group:?} is not configured");
            return Err(Refusal { kind: ErrorKind::UnknownGroup, value });
        }
    })
}

fn full(group: &str, slots: u32, holders: &[Holder], now: Timestamp) -> String {
    let mut names: Vec<String> = holders
        .iter()
        .take(HOLDERS_NAMED_MAX)
        .map(|holder| format!("{} for {}", holder.name(), age(holder.since, now)))
        .collect();
    if let Some(more @ 1..) = holders.len().checked_sub(HOLDERS_NAMED_MAX) {
        names.push(format!("{more} more"));
    }
    format!("{} of {slots} slots of {group} held by {}", holders.len(), names.join(", "))
}

/// The two greatest units of an age, from minutes on.
fn age(since: Timestamp, now: Timestamp) -> String {
    let minutes = now.duration_since(since).as_secs().max(0) / 60;
    match (minutes / 1440, minutes / 60) {
        (0, 0) => format!("{minutes} min"),
        (0, hours) => format!("{hours} h {} min", minutes % 60),
        (days, hours) => format!("{days} d {} h", hours % 24),
    }
}

fn named(holder: &Holder) -> String {
    let attempt = holder.claim.attempt.as_deref().unwrap_or("unknown");
    format!("{} holds it since {:.0} for attempt {attempt}", holder.name(), holder.since)
}

fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.kind.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = response(status, refusal.kind.word(), &clean_value(&refusal.value));
    let headers = response.headers_mut();
    match refusal.kind {
        ErrorKind::SemaphoreFull
        | ErrorKind::HeldByOtherAttempt
        | ErrorKind::StoreFailed
        | ErrorKind::ShuttingDown => {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after()));
        }
        ErrorKind::MethodNotAllowed => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        ErrorKind::MissingHeader
        | ErrorKind::BodyTooLarge
        | ErrorKind::InvalidBody
        | ErrorKind::InvalidId
        | ErrorKind::InvalidGroup
        | ErrorKind::InvalidContext
        | ErrorKind::UnknownGroup
        | ErrorKind::RequestTimeout
        | ErrorKind::NotFound => {}
    }
    response
}

/// 10 to 30 seconds, so that those who were refused together do not come back together.
fn retry_after() -> u64 {
    10 + RandomState::new().hash_one(()) % 21
}

fn response(status: StatusCode, kind: &str, value: &str) -> Response {
    let body = RemoteError { kind: kind.to_owned(), value: value.to_owned() };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    finish(status, "application/json", Body::from(body))
}

/// What closes its connection: who was refused comes back later, and a place that is kept is one less.
fn finish(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn healthz(State(shared): State<Shared>) -> Response {
    match &shared.desk.view().trouble {
        None => finish(StatusCode::OK, "text/plain; charset=utf-8", Body::from("ok\n")),
        Some(trouble) => {
            let kind = ErrorKind::StoreFailed;
            refused(&Refusal { kind, value: trouble.clone() })
        }
    }
}

async fn metrics_text(State(shared): State<Shared>) -> Response {
    let text = shared.metrics.text(&shared.desk.view(), &shared.policies);
    match text {
        Ok(text) => finish(StatusCode::OK, metrics::CONTENT_TYPE, Body::from(text)),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            finish(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Body::empty())
        }
    }
}

async fn nothing_here(State(shared): State<Shared>) -> Response {
    shared.metrics.count("other", None, ErrorKind::NotFound.word());
    let value = "expected /v1/pre-reboot or /v1/steady-state".to_owned();
    refused(&Refusal { kind: ErrorKind::NotFound, value })
}

fn log(ask: &Ask, decided: &Result<Decision, DeskError>, kind: &str) {
    let (group, id) = (ask.group.as_str(), ask.id.as_str());
    let attempt = ask.claim.attempt.as_deref();
    let node = ask.claim.node.as_deref();
    let api = ask.operation.name();
    match decided {
        Ok(Decision::Granted { grant: Grant::New | Grant::TakenOver, since }) => {
            tracing::info!(group, id, node, attempt, kind, %since, "slot granted");
        }
        Ok(Decision::Granted { grant: Grant::Confirmed, since }) => {
            tracing::debug!(group, id, attempt, kind, %since, "slot confirmed");
        }
        Ok(Decision::Full { slots, holders }) => {
            let holders: Vec<String> = holders.iter().map(Holder::name).collect();
            let holders = holders.join(", ");
            tracing::info!(group, id, node, attempt, kind, slots, holders, "slot denied");
        }
        Ok(Decision::OtherAttempt { holder } | Decision::NotTheirs { holder }) => {
            let held_by = holder.claim.attempt.as_deref();
            let since = holder.since;
            tracing::warn!(group, id, attempt, kind, api, held_by, %since, "two machines, one id");
        }
        Ok(Decision::Released { holder }) => {
            let (node, since) = (holder.claim.node.as_deref(), holder.since);
            tracing::info!(group, id, node, attempt, kind, %since, "slot released");
        }
        Ok(Decision::NotHeld) => tracing::debug!(group, id, attempt, kind, "slot released"),
        Ok(Decision::UnknownGroup) => tracing::warn!(group, id, api, kind, "request refused"),
        Err(error) => tracing::error!(group, id, api, kind, %error, "request not decided"),
    }
}
