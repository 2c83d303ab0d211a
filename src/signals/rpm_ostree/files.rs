//! Files that change when a deployment is staged while rpm-ostreed does not run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::daemon::Trouble;
use crate::signals::bus::below;
use crate::signals::inotify::{AddWatchFlags, Happened, WatchDescriptor, Watcher};

/// Watches `/ostree/deploy`, whose time changes with every change of the deployments, and
/// `/run/ostree`, where the staged one lies; `/run` as long as that folder does not exist.
#[derive(Debug)]
pub(crate) struct Files {
    watcher: Watcher,
    run: PathBuf,
    run_ostree: PathBuf,
    deploy_watch: Option<WatchDescriptor>,
    staged: Staged,
}

#[derive(Debug, Clone, Copy)]
enum Staged {
    /// `/run/ostree` is watched.
    Folder(WatchDescriptor),
    /// It does not exist: `/run` is watched for it.
    Parent(WatchDescriptor),
    /// Not even that.
    Nothing,
}

// === impl Files ===

impl Files {
    pub(crate) fn new(root: &Path) -> Result<Self, Trouble> {
        let deploy = below(root, "ostree/deploy");
        let watcher = Watcher::new().map_err(|source| trouble(&deploy, source))?;
        let deploy_watch = watcher
            .add(&deploy, AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_ONLYDIR)
            .map_err(|source| trouble(&deploy, source))?;
        let mut files = Self {
            watcher,
            run: below(root, "run"),
            run_ostree: below(root, "run/ostree"),
            deploy_watch,
            staged: Staged::Nothing,
        };
        files.watch_staged()?;
        Ok(files)
    }

    /// Waits until something happened that may mean another list of deployments. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> Result<(), Trouble> {
        loop {
            let happened =
                self.watcher.next().await.map_err(|source| trouble(&self.run_ostree, source))?;
            let mut relevant = false;
            for event in &happened {
                relevant |= self.understand(event)?;
            }
            if relevant {
                return Ok(());
            }
        }
    }

    fn understand(&mut self, event: &Happened) -> Result<bool, Trouble> {
        // Events were lost: anything may have happened.
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return Ok(true);
        }
        if Some(event.watch) == self.deploy_watch {
            return Ok(event.name.is_none() && event.mask.contains(AddWatchFlags::IN_ATTRIB));
        }
        match self.staged {
            Staged::Folder(watch) if watch == event.watch => {
                if event.name.is_none() {
                    self.watcher.remove(watch);
                    self.watch_staged()?;
                }
                Ok(true)
            }
            Staged::Parent(watch) if watch == event.watch => {
                if event.name.as_deref() != Some(OsStr::new("ostree")) {
                    return Ok(false);
                }
                self.watcher.remove(watch);
                self.watch_staged()?;
                Ok(true)
            }
            Staged::Folder(_) | Staged::Parent(_) | Staged::Nothing => Ok(false),
        }
    }

    fn watch_staged(&mut self) -> Result<(), Trouble> {
        let folder = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let parent =
            AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        let add = |path: &Path, mask| {
            self.watcher.add(path, mask).map_err(|source| trouble(path, source))
        };
        self.staged = match add(&self.run_ostree, folder)? {
            Some(watch) => Staged::Folder(watch),
            None => match add(&self.run, parent)? {
                None => Staged::Nothing,
                // It may have come between the two looks.
                Some(above) => match add(&self.run_ostree, folder)? {
                    Some(watch) => {
                        self.watcher.remove(above);
                        Staged::Folder(watch)
                    }
                    None => Staged::Parent(above),
                },
            },
        };
        Ok(())
    }
}

fn trouble(path: &Path, source: std::io::Error) -> Trouble {
    Trouble::Files { path: path.display().to_string(), source }
}
