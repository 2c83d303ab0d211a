//! One connection, and whether a grant was written to it before its caller hung up.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::listen::BoundedStream;

use super::callers::NotAllowed;

/// How far a connection has come. A clone is the same connection.
#[derive(Debug, Clone)]
pub(super) struct Line(Arc<watch::Sender<Stage>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No grant is on its way: what is written grants nothing.
    Talking,
    /// What is written next is a grant.
    Granting,
    /// The grant was written, and the caller was there.
    Written,
    /// The caller is not there any more, or nothing may be written to it.
    Gone,
}

/// A grant on its way. When it is dropped, it was written or never will be.
#[derive(Debug)]
pub(super) struct Grant(Line);

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct LineStream {
    stream: BoundedStream,
    line: Line,
    /// Why its caller may not call, and the place that it has to be told so.
    stranger: Option<(NotAllowed, OwnedSemaphorePermit)>,
}

// === impl Line ===

impl Line {
    /// From here on what is written is a grant.
    pub(super) fn grants(&self) {
        self.0.send_if_modified(|stage| {
            let talks = *stage == Stage::Talking;
            if talks {
                *stage = Stage::Granting;
            }
            talks
        });
    }

    /// Nothing more is written, unless a grant was.
    fn ends(&self) {
        self.0.send_if_modified(|stage| {
            let open = *stage != Stage::Written;
            if open {
                *stage = Stage::Gone;
            }
            open
        });
    }
}

impl Default for Line {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Stage::Talking)))
    }
}

// === impl Grant ===

impl Grant {
    pub(super) fn new(line: Line) -> Self {
        Self(line)
    }

    /// Waits until it was written or cannot be any more.
    pub(super) async fn settled(&self) {
        let mut stage = self.0.0.subscribe();
        let settled = |stage: &Stage| matches!(stage, Stage::Written | Stage::Gone);
        // The sender lives as long as we do.
        let _ = stage.wait_for(settled).await;
    }

    /// Whether it was written; if not, it never will be.
    pub(super) fn was_written(self) -> bool {
        self.0.ends();
        *self.0.0.borrow() == Stage::Written
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.0.ends();
    }
}

// === impl LineStream ===

impl LineStream {
    pub(super) fn new(
        stream: BoundedStream,
        stranger: Option<(NotAllowed, OwnedSemaphorePermit)>,
    ) -> Self {
        Self { stream, line: Line::default(), stranger }
    }

    pub(super) fn refused(&self) -> Option<&NotAllowed> {
        self.stranger.as_ref().map(|(why, _)| why)
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }
}

impl AsyncRead for LineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LineStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, line, .. } = &mut *self;
        let mut written = Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        // Under the lock of the stage: nobody takes a grant back while it is being written.
        line.0.send_if_modified(|stage| {
            let before = *stage;
            if before == Stage::Gone || (before == Stage::Granting && has_hung_up(stream)) {
                *stage = Stage::Gone;
                return before != Stage::Gone;
            }
            written = Pin::new(&mut *stream).poll_write(context, data);
            if before != Stage::Granting {
                return false;
            }
            match &written {
                Poll::Ready(Ok(count)) if *count == data.len() => *stage = Stage::Written,
                Poll::Ready(Err(_)) => *stage = Stage::Gone,
                Poll::Ready(Ok(_)) | Poll::Pending => {}
            }
            *stage != before
        });
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for LineStream {
    fn drop(&mut self) {
        self.line.ends();
    }
}

/// Whether the caller closed its side, looked at in the kernel: the runtime may not have heard of it
/// yet. One that says more than its request is no Zincati, and hides whether it hung up behind that.
fn has_hung_up(stream: &BoundedStream) -> bool {
    let mut byte = [0];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(stream.as_raw_fd(), &mut byte, flags) != Err(Errno::EAGAIN)
}
