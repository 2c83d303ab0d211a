//! Listening with bounds: so many connections, each for so long.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Why a socket cannot be listened to.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}", path.display())]
pub struct ListenError {
    /// The socket.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// A listener that takes no more than so many connections at once.
#[derive(Debug)]
pub(super) struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
    lifetime: Option<Duration>,
}

/// One connection: holds its place, and breaks when its lifetime is over.
#[derive(Debug)]
pub(super) struct Place<S> {
    stream: S,
    end: Option<Pin<Box<Sleep>>>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Binds a unix socket with exactly this mode.
///
/// It is bound under another name, given its mode, and then moved into place: nobody can connect
/// before the mode holds, and what an earlier process left behind is replaced in one go. The
/// caller must be the only one who binds here.
pub(super) fn bind(path: &Path, mode: u32) -> Result<UnixListener, ListenError> {
    let fail = |source| ListenError { path: path.to_owned(), source };
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&new).map_err(fail)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).map_err(fail)?;
    fs::rename(&new, path).map_err(fail)?;
    Ok(listener)
}

// === impl Bounded ===

impl<L> Bounded<L> {
    /// At most `connections` at once, each at most for `lifetime` (`None`: as long as it likes).
    pub(super) fn new(listener: L, connections: usize, lifetime: Option<Duration>) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections)), lifetime }
    }
}

impl<L: Listener> Listener for Bounded<L>
where
    L::Io: Unpin,
{
    type Io = Place<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; were it, the connection would go without a place.
        let permit = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = self.listener.accept().await;
        let end = self.lifetime.map(|lifetime| Box::pin(tokio::time::sleep(lifetime)));
        (Place { stream, end, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

// === impl Place ===

impl<S> Place<S> {
    /// The stream within.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    fn in_time(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let over = self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
        if over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Place<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.in_time(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Place<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.in_time(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
