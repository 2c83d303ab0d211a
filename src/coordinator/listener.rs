//! Connections with an end: at most so many, and none longer than it takes.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// How long to wait after the system had no file or memory for another connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);

/// A listener that accepts no more connections than a bound, and ends each after a time.
///
/// Our answers close their connection, so that a connection carries one request; one that is fed
/// byte by byte, or whose answer is not fetched, does not keep its place.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    lifetime: Duration,
    /// The last accept failed, and that has been said.
    troubled: bool,
}

/// One connection; its place is free again when it is dropped.
#[derive(Debug)]
pub struct BoundedStream {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

// === impl BoundedListener ===

impl BoundedListener {
    /// Bounds a listener to `connections` at once, each of at most `lifetime`.
    pub fn new(listener: TcpListener, connections: usize, lifetime: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections)), lifetime, troubled: false }
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
                    let end = Box::pin(sleep(self.lifetime));
                    return (BoundedStream { stream, end, _place: place }, address);
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

// === impl BoundedStream ===

impl BoundedStream {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
