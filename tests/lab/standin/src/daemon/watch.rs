//! Notices that others changed the deployments: the attributes of the deploy folder.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe::Receiver;

use crate::paths::Paths;

/// Room for the events of one reading; what they say does not matter.
const BUFFER_BYTES: usize = 4096;

/// A watch of the deploy folder.
#[derive(Debug)]
pub(crate) struct Watch {
    // Tokio has no safe type for any descriptor but this one, which reads like inotify's.
    events: Receiver,
}

// === impl Watch ===

impl Watch {
    pub(crate) fn new(paths: &Paths) -> Result<Self> {
        let folder = paths.deploy();
        fs::create_dir_all(&folder)?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        inotify
            .add_watch(&folder, AddWatchFlags::IN_ATTRIB)
            .with_context(|| format!("watching {}", folder.display()))?;
        Ok(Self { events: Receiver::from_owned_fd_unchecked(inotify.into())? })
    }

    /// Waits for changes; several at once count as one.
    pub(crate) async fn next(&mut self) -> Result<()> {
        loop {
            self.events.readable().await?;
            let mut buffer = [0; BUFFER_BYTES];
            match self.events.try_read(&mut buffer) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("reading changes"),
            }
        }
    }
}
