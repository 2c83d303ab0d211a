//! Whether files changed, and waiting until they do.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// Where inotify cannot be had (its instances are limited), the files are looked at this often: a
/// rotated certificate stays valid for hours beside its successor.
const LOOK_WITHOUT_INOTIFY: Duration = Duration::from_secs(30);
/// Symbolic links followed by hand, as many as a kernel would before it gives up.
const LINKS: usize = 40;

/// Files and what they looked like at one moment. Equal stamps mean unchanged files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// What tells one state of a file from the next: kubelet writes a new certificate beside the old
/// one and renames a link, others rewrite a file in place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    resolved: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamps {
    /// Looks at these files now.
    pub(super) fn take(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut stamps = Self::default();
        stamps.extend(paths);
        stamps
    }

    /// Looks at more files now.
    pub(super) fn extend(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.0.extend(paths.into_iter().map(|path| {
            let stamp = stamp(&path).ok();
            (path, stamp)
        }));
    }

    /// Whether any file looks different now.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|(path, then)| stamp(path).ok() != *then)
    }

    /// Comes back once any file looks different.
    pub(super) async fn wait(&self) {
        if let Err(error) = self.wait_by_inotify().await {
            tracing::warn!(%error, "inotify is not to be had; looking at the credential's files by time");
            while !self.changed() {
                tokio::time::sleep(LOOK_WITHOUT_INOTIFY).await;
            }
        }
    }

    async fn wait_by_inotify(&self) -> io::Result<()> {
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        let descriptor = Descriptor(Inotify::init(flags)?);
        #[expect(
            deprecated,
            reason = "its successor is unsafe; the descriptor stays open as long as its owner, \
                      which moves in here"
        )]
        let inotify = AsyncFd::new(descriptor)?;
        loop {
            self.watch_directories(&inotify.get_ref().0)?;
            // Looked at after the watches are in place: nothing slips in between.
            if self.changed() {
                return Ok(());
            }
            let mut ready = inotify.readable().await?;
            match inotify.get_ref().0.read_events() {
                Ok(_) => {}
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Watches every directory through which a file is reached. One that appears while the others
    /// are being added (a folder that did not exist) is seen by going round again.
    fn watch_directories(&self, inotify: &Inotify) -> io::Result<()> {
        let mask = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let mut watched = BTreeSet::new();
        loop {
            let wanted = self.directories();
            let mut fresh = wanted.difference(&watched).cloned().collect::<Vec<_>>();
            if fresh.is_empty() {
                return Ok(());
            }
            for directory in fresh.drain(..) {
                match inotify.add_watch(&directory, mask) {
                    Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                watched.insert(directory);
            }
        }
    }

    fn directories(&self) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for (path, _) in &self.0 {
            let mut path = path.clone();
            for _ in 0..LINKS {
                let Some(parent) = path.parent() else { break };
                directories.extend(nearest_directory(parent));
                let linked = path.ancestors().skip(1).filter(|folder| folder.is_symlink());
                directories.extend(linked.filter_map(Path::parent).map(Path::to_owned));
                match std::fs::read_link(&path) {
                    Ok(target) => path = parent.join(target),
                    Err(_) => break,
                }
            }
        }
        directories
    }
}

/// inotify's descriptor in the shape that tokio asks for.
#[derive(Debug)]
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let resolved = path.canonicalize()?;
    let meta = std::fs::metadata(&resolved)?;
    Ok(Stamp {
        resolved,
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
    })
}

/// `path`, or what exists of the way to it.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.ancestors().find(|p| p.is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Waits for a change while `change` is made, and fails if it is not seen.
    async fn seen(paths: &[PathBuf], change: impl FnOnce() + Send + 'static) {
        let stamps = Stamps::take(paths.iter().cloned());
        let waiting = tokio::spawn({
            let stamps = stamps.clone();
            async move { stamps.wait().await }
        });
        // Lets the task come to its inotify: a change before that would be seen without it.
        tokio::task::yield_now().await;
        assert!(!stamps.changed());
        change();
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_renamed_link_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().to_owned();
        fs::write(dir.join("a.pem"), "same").unwrap();
        fs::write(dir.join("b.pem"), "same").unwrap();
        symlink("a.pem", dir.join("current.pem")).unwrap();
        seen(&[dir.join("current.pem")], move || {
            symlink("b.pem", dir.join("next")).unwrap();
            fs::rename(dir.join("next"), dir.join("current.pem")).unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_file_in_a_folder_that_is_yet_to_be_made_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/kubernetes/kubelet.conf");
        seen(std::slice::from_ref(&path.clone()), move || {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_file_rewritten_behind_a_linked_folder_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("kubeconfig"), "a").unwrap();
        symlink(&real, dir.path().join("link")).unwrap();
        seen(&[dir.path().join("link/kubeconfig")], move || {
            fs::write(real.join("kubeconfig"), "abc").unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_file_rewritten_behind_its_link_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let links = dir.path().join("links");
        fs::create_dir(&real).unwrap();
        fs::create_dir(&links).unwrap();
        fs::write(real.join("kubeconfig"), "a").unwrap();
        symlink("../real/kubeconfig", links.join("kubeconfig")).unwrap();
        seen(&[links.join("kubeconfig")], move || {
            fs::write(real.join("kubeconfig"), "abc").unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_linked_folder_that_is_swapped_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().to_owned();
        for version in ["v1", "v2"] {
            fs::create_dir(dir.join(version)).unwrap();
            fs::write(dir.join(version).join("kubeconfig"), version).unwrap();
        }
        symlink("v1", dir.join("current")).unwrap();
        seen(&[dir.join("current/kubeconfig")], move || {
            symlink("v2", dir.join("next")).unwrap();
            fs::rename(dir.join("next"), dir.join("current")).unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn other_files_are_no_change() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kubeconfig"), "a").unwrap();
        let stamps = Stamps::take([dir.path().join("kubeconfig")]);
        fs::write(dir.path().join("other"), "a").unwrap();
        assert!(!stamps.changed());
        let waited = tokio::time::timeout(Duration::from_millis(200), stamps.wait()).await;
        assert!(waited.is_err(), "a change was seen where there was none");
    }
}
