//! Connections with an end: at most so many, and none longer than it takes.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// How long to wait after the system had no file or memory for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

/// How long a request's head may take to arrive: one network round trip, and patience. Hundreds of
/// connections that say nothing must not keep those that do out for their whole lifetime.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection keeps its place for another request once its answer has gone: long enough
/// for a client that works on, and for a proxy under load; one that comes back in minutes connects
/// anew.
const NEXT_WITHIN: Duration = Duration::from_secs(1);

/// A listener that accepts no more connections than a bound, and ends each after a time: a short
/// one until it has sent the head of its request, a longer one until its answer has gone, and a very
/// short one until the next request begins, where the answer does not close the connection.
///
/// A connection that is fed byte by byte, or whose answer is not fetched, does not keep its place.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    lifetime: Duration,
    head_within: Duration,
    /// The last accept failed, and that has been said.
    troubled: bool,
}

/// One connection; its place is free again when it is dropped.
#[derive(Debug)]
pub struct BoundedStream {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    lifetime: Duration,
    /// When it ends once it has sent its head.
    last: Instant,
    head: Head,
    /// Part of an answer is on its way.
    answering: bool,
    _place: OwnedSemaphorePermit,
}

/// How far the head of a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Nothing, or empty lines, which a server skips.
    Nothing,
    /// In mid-line.
    InLine,
    /// At the beginning of a line; an empty one ends the head.
    LineBegins,
    /// It is here.
    Whole,
}

// === impl BoundedListener ===

impl BoundedListener {
    /// Bounds a listener to `connections` at once, each of at most `lifetime`.
    pub fn new(listener: TcpListener, connections: usize, lifetime: Duration) -> Self {
        let places = Arc::new(Semaphore::new(connections));
        Self { listener, places, lifetime, head_within: HEAD_WITHIN, troubled: false }
    }

    /// Another bound on the time until the head of the request is there.
    #[must_use]
    pub fn with_head_within(self, head_within: Duration) -> Self {
        Self { head_within, ..self }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.troubled = false;
                    let lifetime = self.lifetime;
                    let stream = BoundedStream {
                        stream,
                        end: Box::pin(sleep(lifetime.min(self.head_within))),
                        lifetime,
                        last: Instant::now() + lifetime,
                        head: Head::Nothing,
                        answering: false,
                        _place: place,
                    };
                    return (stream, address);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if !self.troubled {
                        tracing::warn!(%error, "no further connection can be accepted");
                    }
                    self.troubled = true;
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

// === impl Head ===

impl Head {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Whole, _) | (Self::LineBegins, b'\n') => Self::Whole,
            (Self::Nothing, b'\r' | b'\n') => Self::Nothing,
            (Self::InLine, b'\n') | (Self::LineBegins, b'\r') => Self::LineBegins,
            (Self::Nothing | Self::InLine | Self::LineBegins, _) => Self::InLine,
        }
    }
}

// === impl BoundedStream ===

impl BoundedStream {
    /// Looks for the end of the head in what came.
    fn note(&mut self, bytes: &[u8]) {
        if self.head == Head::Whole {
            return;
        }
        self.head = bytes.iter().fold(self.head, |head, byte| head.after(*byte));
        if self.head == Head::Whole {
            let last = self.last;
            self.end.as_mut().reset(last);
        }
    }

    /// The answer has gone, as far as it was written: what comes next is another request.
    fn note_answered(&mut self) {
        if self.answering {
            self.answering = false;
            self.head = Head::Nothing;
            let now = Instant::now();
            self.last = now + self.lifetime;
            self.end.as_mut().reset(now + NEXT_WITHIN.min(self.lifetime));
        }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsRawFd for BoundedStream {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        // What has come counts, also if we are late to look.
        self.note(buffer.filled().get(before..).unwrap_or_default());
        self.check(context)?;
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        if !self.answering {
            // Also what is written after a flush belongs to an answer, which has its time.
            self.answering = true;
            let last = self.last;
            self.end.as_mut().reset(last);
        }
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.note_answered();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
