//! Bounds on what the API server may do to us: how long an answer may be, and how often it may have
//! a watch begun anew.
//!
//! The client library has neither. It gathers an answer until it ends, a line of a watch until its
//! newline comes, and begins a watch that ended without an error again at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use futures::{Stream, StreamExt};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// A page of pods has some MB, one object at most the 1.5 MB that etcd takes.
pub(super) const ANSWER_BYTES_MAX: usize = 32 << 20;
/// One line of a watch is one object.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;

/// Watches that may begin in a row: an API server that hands over ends them all.
const WATCHES_AT_ONCE: u32 = 10;
/// After those, one in this time.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Puts the bounds around a client's connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    pace: Arc<Mutex<Pace>>,
}

/// A connection with the bounds around it.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    inner: S,
    pace: Arc<Mutex<Pace>>,
}

/// When watches may begin.
#[derive(Debug, Default)]
struct Pace {
    /// Every watch so far would have begun by then, had they come one by one.
    spent: Option<Instant>,
}

// === impl Pace ===

impl Pace {
    /// How long a watch that comes now has to wait.
    fn take(&mut self, now: Instant) -> Duration {
        let spent = self.spent.map_or(now, |spent| spent.max(now));
        self.spent = Some(spent + WATCH_EVERY);
        (spent - now).saturating_sub(WATCH_EVERY * (WATCHES_AT_ONCE - 1))
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded { inner, pace: self.pace.clone() }
    }
}

impl<S, Q, B> Service<Request<Q>> for Guarded<S>
where
    S: Service<Request<Q>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: axum::body::HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let is_watch = is_watch(request.uri().query().unwrap_or_default());
        let wait = if is_watch {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.take(Instant::now())
        } else {
            Duration::ZERO
        };
        // Nothing is sent before it is awaited.
        let sent = self.inner.call(request);
        Box::pin(async move {
            if !wait.is_zero() {
                tracing::debug!(?wait, "the API server ends its watches at once");
                tokio::time::sleep(wait).await;
            }
            let (head, body) = sent.await?.into_parts();
            let chunks = bounded(Body::new(body).into_data_stream(), is_watch);
            Ok(Response::from_parts(head, Body::from_stream(chunks)))
        })
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

/// The chunks of an answer, and an error in place of the one that is too much.
fn bounded(
    chunks: impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    is_watch: bool,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let (most, what) = if is_watch {
        (LINE_BYTES_MAX, "a line of its watch")
    } else {
        (ANSWER_BYTES_MAX, "its answer")
    };
    // Of the answer, or of the line that has begun.
    let mut length = 0_usize;
    chunks.map(move |chunk| {
        let chunk = chunk?;
        let mut longest = length.saturating_add(chunk.len());
        if is_watch && let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') {
            // A chunk is some kB, so that only the line that goes on may be a long one.
            let first = chunk.iter().position(|byte| *byte == b'\n').unwrap_or(end);
            longest = length.saturating_add(first);
            length = chunk.len() - end - 1;
        } else {
            length = longest;
        }
        if longest > most {
            let why = format!("the API server sends too much: {what} has more than {most} bytes");
            return Err(why.into());
        }
        Ok(chunk)
    })
}
