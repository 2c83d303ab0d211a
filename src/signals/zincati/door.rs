//! The way in: a bounded number of connections at a bounded pace, and who each of them is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::listen::BoundedListener;

use super::Bounds;
use super::callers::{Callers, NotAllowed};
use super::line::{Line, LineStream};

/// Takes connections in, one after another. Who comes too fast waits in the kernel's queue, where
/// everybody's turn comes.
#[derive(Debug)]
pub(super) struct Door {
    listener: BoundedListener,
    address: SocketAddr,
    callers: Callers,
    pace: Interval,
    strangers: Arc<Semaphore>,
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// Why it may not call, if it may not.
    pub(super) refused: Option<NotAllowed>,
    /// Its connection.
    pub(super) line: Line,
}

// === impl Door ===

impl Door {
    pub(super) fn new(
        listener: TcpListener,
        callers: Callers,
        bounds: &Bounds,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let listener = BoundedListener::new(listener, bounds.connections, bounds.lifetime());
        let listener = listener.with_head_within(bounds.head_within);
        let mut pace = interval(bounds.pace);
        // After a rest there is no crowd that may come in at once.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let strangers = Arc::new(Semaphore::new(bounds.strangers));
        Ok(Self { listener, address, callers, pace, strangers })
    }
}

impl Listener for Door {
    type Io = LineStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            self.pace.tick().await;
            let (stream, from) = self.listener.accept().await;
            let refused = self.callers.check(from, self.address).await.err();
            let place = match &refused {
                None => None,
                Some(_) => match Arc::clone(&self.strangers).try_acquire_owned() {
                    Ok(place) => Some(place),
                    // So many are being told already that they may not; this one is hung up on.
                    Err(_) => continue,
                },
            };
            return (LineStream::new(stream, refused.zip(place)), from);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

impl Connected<IncomingStream<'_, Door>> for Caller {
    fn connect_info(incoming: IncomingStream<'_, Door>) -> Self {
        let stream = incoming.io();
        Self { refused: stream.refused().cloned(), line: stream.line().clone() }
    }
}
