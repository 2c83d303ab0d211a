//! inotify on tokio.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
pub use nix::sys::inotify::{AddWatchFlags, WatchDescriptor};
use nix::sys::inotify::{InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// One inotify instance.
#[derive(Debug)]
pub struct Watcher {
    descriptor: AsyncFd<Descriptor>,
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Happened {
    /// Which watch.
    pub watch: WatchDescriptor,
    /// What.
    pub mask: AddWatchFlags,
    /// The entry of the folder; `None`: the watched thing itself.
    pub name: Option<OsString>,
}

#[derive(Debug)]
struct Descriptor(Inotify);

impl Watcher {
    /// Opens an instance.
    ///
    /// # Errors
    /// The limit of instances or of descriptors is reached.
    pub fn new() -> std::io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        // Its successor is unsafe, which is forbidden here. The instance keeps its one descriptor
        // until the AsyncFd is dropped, which is what that one asks for.
        #[allow(deprecated)]
        let descriptor = AsyncFd::new(Descriptor(inotify))?;
        Ok(Self { descriptor })
    }

    /// Watches a path; `None` where there is none.
    ///
    /// # Errors
    /// No right, or the limit of watches is reached.
    pub fn add(
        &self,
        path: &Path,
        mask: AddWatchFlags,
    ) -> std::io::Result<Option<WatchDescriptor>> {
        match self.descriptor.get_ref().0.add_watch(path, mask) {
            Ok(watch) => Ok(Some(watch)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a watch; one that ended by itself is no error.
    pub fn remove(&self, watch: WatchDescriptor) {
        // EINVAL: the kernel removed it when the folder went away.
        let _ = self.descriptor.get_ref().0.rm_watch(watch);
    }

    /// Waits for what happens next. Cancel-safe.
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub async fn next(&mut self) -> std::io::Result<Vec<Happened>> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            match ready.get_inner().0.read_events() {
                Ok(events) => {
                    return Ok(events
                        .into_iter()
                        .map(|event| Happened {
                            watch: event.wd,
                            mask: event.mask,
                            name: event.name,
                        })
                        .collect());
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
