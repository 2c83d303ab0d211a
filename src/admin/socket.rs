//! The agent's sockets: `agent.sock` for root, `metrics.sock` and a TCP address for scrapers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use axum::{Json, middleware};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot, watch};

use crate::lifecycle::Command;

use super::listen::{self, Bounded, ListenError};
use super::schema::{History, Status};
use super::why::Why;
use super::{AdminSettings, METRICS_SOCKET_NAME, Metrics, Order, SOCKET_NAME, Snapshot};

/// How long the loop may take to answer a command. A step takes milliseconds; a disk that hangs
/// must not hang the person too.
pub const COMMAND_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A reason longer than this is no reason but an essay; it travels through status lines.
pub const REASON_CHARACTERS_MAX: usize = 500;

/// A hold's body: its reason at four bytes a character, and a name.
const BODY_BYTES_MAX: usize = 4096;

/// Root's own tools; `--watch` in some terminals among them.
const ADMIN_CONNECTIONS_MAX: usize = 32;

/// One scraper or two, and somebody who looks.
const METRICS_CONNECTIONS_MAX: usize = 16;

/// A scrape takes milliseconds; whoever holds a connection longer gives its place back.
const METRICS_CONNECTION_LIFETIME: Duration = Duration::from_secs(60);

/// How long to wait before a TCP address that could not be had is tried again.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// `connect` needs the right to write, so that this is what "everybody may read" looks like. The
/// socket answers GET only and tells what a TCP address would tell.
const METRICS_SOCKET_MODE: u32 = 0o666;

/// The body of `POST /v1/hold`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Why, for those who read the status.
    pub reason: String,
    /// Who says so, where the caller knows it better than the socket (sudo).
    #[serde(default)]
    pub by: Option<String>,
}

/// The body of `POST /v1/resume` and `/v1/retry`; there may be none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SayRequest {
    /// Who says so, where the caller knows it better than the socket (sudo).
    #[serde(default)]
    pub by: Option<String>,
}

/// The body of every answer that is no success.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// A bounded word.
    pub kind: String,
    /// The sentence.
    pub error: String,
}

/// What the handlers see.
#[derive(Debug, Clone)]
struct Desk {
    snapshots: watch::Receiver<Snapshot>,
    commands: mpsc::Sender<Order>,
    /// [`COMMAND_ANSWER_TIMEOUT`].
    answer_timeout: Duration,
}

/// Who called.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// `None`: the kernel did not tell.
    uid: Option<u32>,
}

/// Serves all sockets until the loop is gone. Both unix sockets are there when the future is
/// first polled to its first wait; a TCP address that cannot be had is tried again.
///
/// # Errors
/// A unix socket cannot be bound, or its listener broke.
pub async fn serve(
    snapshots: watch::Receiver<Snapshot>,
    commands: mpsc::Sender<Order>,
    metrics: Metrics,
    settings: AdminSettings,
) -> Result<(), ListenError> {
    let admin_path = settings.run_dir.join(SOCKET_NAME);
    let metrics_path = settings.run_dir.join(METRICS_SOCKET_NAME);
    let admin = listen::bind(&admin_path, 0o600)?;
    let scrape = listen::bind(&metrics_path, METRICS_SOCKET_MODE)?;
    let loop_gone = commands.clone();
    let admin =
        serve_admin(admin, Desk { snapshots, commands, answer_timeout: COMMAND_ANSWER_TIMEOUT });
    let scrape = serve_metrics(scrape, metrics.clone());
    let tcp = serve_tcp(settings.metrics_listen, metrics);
    tokio::select! {
        result = admin => result.map_err(|source| ListenError { path: admin_path, source }),
        result = scrape => result.map_err(|source| ListenError { path: metrics_path, source }),
        never = tcp => match never {},
        () = loop_gone.closed() => Ok(()),
    }
}

async fn serve_admin(listener: UnixListener, desk: Desk) -> io::Result<()> {
    let listener = Bounded::new(listener, ADMIN_CONNECTIONS_MAX, None);
    let service = admin_routes(desk).into_make_service_with_connect_info::<Caller>();
    axum::serve(listener, service).await
}

async fn serve_metrics<L>(listener: L, metrics: Metrics) -> io::Result<()>
where
    L: axum::serve::Listener,
    L::Io: Unpin,
    L::Addr: std::fmt::Debug,
{
    let listener =
        Bounded::new(listener, METRICS_CONNECTIONS_MAX, Some(METRICS_CONNECTION_LIFETIME));
    axum::serve(listener, metrics_routes(metrics)).await
}

/// Metrics over TCP are a help, not a need: an address in use is said and tried again, and never
/// stops the cycle.
async fn serve_tcp(address: Option<SocketAddr>, metrics: Metrics) -> Infallible {
    let Some(address) = address else { return std::future::pending().await };
    let mut said = None;
    loop {
        let result = match TcpListener::bind(address).await {
            Ok(listener) => {
                said = None;
                serve_metrics(listener, metrics.clone()).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result
            && said != Some(error.kind())
        {
            tracing::warn!(%address, %error, "metrics cannot be served; trying again");
            said = Some(error.kind());
        }
        tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
    }
}

fn admin_routes(desk: Desk) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/status/watch", get(watch_status))
        .route("/v1/history", get(history))
        .route("/v1/why", get(why))
        .route("/v1/hold", post(hold))
        .route("/v1/resume", post(resume))
        .route("/v1/retry", post(retry))
        .route("/v1/reboot", post(reboot))
        .route("/v1/reboot/cancel", post(cancel_reboot))
        .fallback(nothing_here)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(root_only))
        .with_state(desk)
}

fn metrics_routes(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).fallback(nothing_here).with_state(metrics)
}

/// The mode of the socket keeps others out; this says so to those who got hold of it all the same
/// (a passed descriptor, a mode changed by hand), and keeps them out as well.
async fn root_only(
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if is_allowed(caller, nix::unistd::geteuid().as_raw()) {
        return next.run(request).await;
    }
    let who = caller.uid.map_or_else(|| "an unknown user".to_owned(), |uid| format!("uid {uid}"));
    refusal(
        StatusCode::FORBIDDEN,
        "not-root",
        format!("only root may speak to the agent, you are {who}; try again with sudo"),
    )
}

/// Root, and the user that the agent itself runs as.
fn is_allowed(caller: Caller, own_uid: u32) -> bool {
    caller.uid.is_some_and(|uid| uid == 0 || uid == own_uid)
}

async fn status(State(desk): State<Desk>) -> Json<Status> {
    Json(Status::of(&desk.snapshots.borrow()))
}

async fn history(State(desk): State<Desk>) -> Json<History> {
    Json(History::of(&desk.snapshots.borrow().state.record))
}

async fn why(State(desk): State<Desk>) -> Json<Why> {
    Json(Why::of(&desk.snapshots.borrow()))
}

/// One line of JSON now and one for each change; ends with the loop.
async fn watch_status(State(desk): State<Desk>) -> Response {
    let first: (watch::Receiver<Snapshot>, Option<Status>) = (desk.snapshots, None);
    let lines = futures::stream::unfold(first, |(mut snapshots, told)| async move {
        loop {
            if told.is_some() {
                snapshots.changed().await.ok()?;
            }
            let status = Status::of(&snapshots.borrow_and_update());
            let news = status.without_time();
            if told.as_ref() == Some(&news) {
                continue;
            }
            let line = serde_json::to_string(&status).ok()? + "\n";
            return Some((Ok::<_, Infallible>(line), (snapshots, Some(news))));
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

type ReasonBody = Result<Json<HoldRequest>, axum::extract::rejection::JsonRejection>;

async fn hold(
    State(desk): State<Desk>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: ReasonBody,
) -> Response {
    say_why(&desk, caller, body, |reason, by| Command::Hold { reason, by }).await
}

async fn reboot(
    State(desk): State<Desk>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: ReasonBody,
) -> Response {
    say_why(&desk, caller, body, |reason, by| Command::Reboot { reason, by }).await
}

async fn cancel_reboot(
    State(desk): State<Desk>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Bytes,
) -> Response {
    say(&desk, Command::CancelReboot, caller, &body).await
}

async fn resume(
    State(desk): State<Desk>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Bytes,
) -> Response {
    say(&desk, Command::Resume, caller, &body).await
}

async fn retry(
    State(desk): State<Desk>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Bytes,
) -> Response {
    say(&desk, Command::Retry, caller, &body).await
}

/// A command with a reason.
async fn say_why(
    desk: &Desk,
    caller: Caller,
    body: ReasonBody,
    command: impl FnOnce(String, String) -> Command,
) -> Response {
    let request = match body {
        Ok(Json(request)) => request,
        Err(error) => return refusal(error.status(), "bad-request", error.body_text()),
    };
    let said = text("reason", &request.reason)
        .and_then(|reason| Ok((reason, who(request.by.as_deref(), caller)?)));
    match said {
        Ok((reason, by)) => order(desk, command(reason, by.clone()), by).await,
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, "bad-reason", error),
    }
}

/// A command without a reason. Its body only names the speaker, so one of another shape, or none,
/// is no reason to refuse.
async fn say(desk: &Desk, command: Command, caller: Caller, body: &[u8]) -> Response {
    let request: SayRequest = serde_json::from_slice(body).unwrap_or_default();
    match who(request.by.as_deref(), caller) {
        Ok(by) => order(desk, command, by).await,
        Err(error) => refusal(StatusCode::UNPROCESSABLE_ENTITY, "bad-reason", error),
    }
}

/// The speaker: as the caller says, else as the socket knows.
fn who(by: Option<&str>, caller: Caller) -> Result<String, String> {
    match (by, caller.uid) {
        (Some(by), _) => text("by", by),
        (None, Some(uid)) => Ok(user_name(uid)),
        (None, None) => Ok("unknown".to_owned()),
    }
}

/// A text of a person that may travel through status lines and annotations.
fn text(key: &str, text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("{key}: expected a text that says why, found none"));
    }
    let characters = text.chars().count();
    if characters > REASON_CHARACTERS_MAX {
        return Err(format!(
            "{key}: expected at most {REASON_CHARACTERS_MAX} characters, found {characters}"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{key}: expected one line without control characters"));
    }
    Ok(text.to_owned())
}

fn user_name(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    user.ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Gives a command to the loop and waits for its word, both within bounds.
async fn order(desk: &Desk, command: Command, by: String) -> Response {
    let (answer_to, answer) = oneshot::channel();
    let said = tokio::time::timeout(desk.answer_timeout, async {
        desk.commands.send(Order { command, by, answer: answer_to }).await.ok()?;
        answer.await.ok()
    });
    match said.await {
        Ok(Some(Ok(says))) => (StatusCode::OK, says).into_response(),
        Ok(Some(Err(error))) => refusal(StatusCode::CONFLICT, "refused", error),
        Ok(None) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the agent is going down; the command was not taken".to_owned(),
        ),
        Err(_) => refusal(
            StatusCode::GATEWAY_TIMEOUT,
            "no-answer",
            format!(
                "the agent took no notice within {} s; see `lockkeeper status` before you repeat it",
                desk.answer_timeout.as_secs()
            ),
        ),
    }
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "encoding", format!("metrics: {error}"))
        }
    }
}

async fn nothing_here() -> Response {
    refusal(StatusCode::NOT_FOUND, "no-such-path", "there is nothing at this path".to_owned())
}

fn refusal(code: StatusCode, kind: &str, error: String) -> Response {
    (code, Json(Refusal { kind: kind.to_owned(), error })).into_response()
}

// === impl Caller ===

impl Connected<IncomingStream<'_, Bounded<UnixListener>>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Bounded<UnixListener>>) -> Self {
        Self { uid: stream.io().stream().peer_cred().ok().map(|peer| peer.uid()) }
    }
}

#[cfg(test)]
#[path = "socket_noise.rs"]
mod noise;
#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
