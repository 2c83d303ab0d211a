//! Flatcar's file that says who coordinates the reboots of a host.
//!
//! Its login message tells of "No Reboots" unless somebody holds a lock on this file, and locksmithd
//! does not start while somebody else does. So the lock makes the message true and keeps a second
//! rebooter away.
//!
//! The lock belongs to a file, not to its name. A new text comes as a new file that is locked before it
//! takes the name, and the lock on the file before it is kept until the next one: who opened that file
//! under the name a moment ago finds it locked, too.

#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::config::file::read_bounded;
use crate::signals::bus::{one_line, plain};

/// The folder of the file; update_engine has other things there.
const FOLDER: &str = "run/update-engine";

/// The file in it.
const FILE_NAME: &str = "coordinator.conf";

/// The next file, until it takes the name. Only who holds the lock writes it.
const NEXT_NAME: &str = ".coordinator.conf.lockkeeper";

/// Everybody who logs in reads the file.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// Longest word in the file, in characters.
const WORD_LENGTH: usize = 64;

/// Longest file of somebody else that is read for a name, in bytes.
const FILE_MAX: u64 = 4 << 10;

/// How often a file that was replaced between the opening and the locking is opened again: who
/// replaces it holds its lock, so that the second time decides.
const TRIES: usize = 5;

/// What the host is told of us; for its login message the first two are quiet, the others are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoordinatorState {
    /// Nothing is known yet.
    Starting,
    /// All is well.
    Running,
    /// An update waits for its turn.
    RebootPlanned,
    /// The host goes down.
    Rebooting,
}

/// Our place as the one who coordinates the reboots of this host. Given up when it is dropped, by
/// the kernel if need be.
#[derive(Debug)]
pub struct UpdateCoordinator {
    folder: PathBuf,
    strategy: String,
    place: Option<Place>,
}

/// The place that is held.
#[derive(Debug)]
struct Place {
    state: Option<CoordinatorState>,
    /// The file that has the name.
    file: Flock<File>,
    /// The one that had it before.
    before: Option<Flock<File>>,
}

/// Why the host is not told.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// Flatcar's own rebooter runs: there would be two.
    #[error(
        "locksmithd runs and would reboot this host by itself; \
         `systemctl mask --now locksmithd` leaves that to lockkeeper"
    )]
    Locksmithd,
    /// Somebody else coordinates the reboots of this host.
    #[error("{holder} coordinates the reboots of this host already: it holds {}", path.display())]
    Held {
        /// Its own name for itself.
        holder: String,
        /// The locked file.
        path: PathBuf,
    },
    /// The file cannot be made, locked or replaced.
    #[error("cannot write {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

// === impl CoordinatorState ===

impl CoordinatorState {
    fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::RebootPlanned => "reboot-planned",
            Self::Rebooting => "rebooting",
        }
    }
}

// === impl UpdateCoordinator ===

impl UpdateCoordinator {
    /// Takes no lock yet. The strategy is a word for how it is decided: the kind of slot server.
    pub fn new(root: &Path, strategy: &str) -> Self {
        Self { folder: root.join(FOLDER), strategy: word(strategy), place: None }
    }

    /// Says how things are, and takes the place if it is not ours yet or no more. Costs next to
    /// nothing if nothing is new; waits for nobody.
    ///
    /// # Errors
    /// Another one has the place; or the file cannot be written, and the place may be lost.
    pub fn say(&mut self, state: CoordinatorState) -> Result<(), CoordinatorError> {
        let path = self.folder.join(FILE_NAME);
        let is_ours = match &self.place {
            Some(place) => is_at(&place.file, &path).map_err(|source| io(&path, source))?,
            None => false,
        };
        if !is_ours {
            self.place = None;
            self.place = Some(Place { state: None, file: self.take(&path)?, before: None });
        }
        let Some(place) = &mut self.place else { return Ok(()) };
        if place.state != Some(state) {
            let text = text(&self.strategy, state);
            let next = next_file(&self.folder.join(NEXT_NAME), &text, &path)?;
            place.before = Some(std::mem::replace(&mut place.file, next));
            place.state = Some(state);
        }
        Ok(())
    }

    /// Locks the file that has the name.
    fn take(&self, path: &Path) -> Result<Flock<File>, CoordinatorError> {
        make_folder(&self.folder).map_err(|source| io(&self.folder, source))?;
        for _ in 0..TRIES {
            let file = open(path).map_err(|source| io(path, source))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => {
                    if is_at(&file, path).map_err(|source| io(path, source))? {
                        return Ok(file);
                    }
                }
                Err((_, Errno::EWOULDBLOCK)) => return Err(held(path)),
                Err((_, errno)) => return Err(io(path, errno.into())),
            }
        }
        Err(held(path))
    }
}

/// Writes a file under another name, locks it and gives it the name; what had the name before must be
/// ours.
fn next_file(next: &Path, text: &str, path: &Path) -> Result<Flock<File>, CoordinatorError> {
    let at = |source| io(next, source);
    match fs::remove_file(next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(error)),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(next).map_err(at)?;
    // Whatever the umask is.
    file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(at)?;
    file.write_all(text.as_bytes()).map_err(at)?;
    let file = Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| io(next, errno.into()))?;
    fs::rename(next, path).map_err(|source| io(path, source))?;
    Ok(file)
}

/// The folder, readable by all whatever the umask is. One that is there already stays as it is.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))
}

/// Opens the file, or makes it. A pipe is not waited for, and only a file is taken.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY | nix::libc::O_NOFOLLOW)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "expected a file"))
    }
}

/// Whether the open file is the one that has the name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who holds the lock, by what it wrote.
fn held(path: &Path) -> CoordinatorError {
    let bytes = read_bounded(path, FILE_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let name = text.lines().filter_map(|line| line.strip_prefix("NAME=")).next_back();
    match name.map(|name| plain(name.trim().trim_matches(['"', '\'']))) {
        Some(name) if name == "locksmithd" => CoordinatorError::Locksmithd,
        Some(holder) if !holder.is_empty() => {
            CoordinatorError::Held { holder, path: path.to_owned() }
        }
        Some(_) | None => {
            CoordinatorError::Held { holder: "another process".to_owned(), path: path.to_owned() }
        }
    }
}

/// What the file says.
fn text(strategy: &str, state: CoordinatorState) -> String {
    format!("NAME=lockkeeper\nSTRATEGY={strategy}\nSTATE={}\n", state.word())
}

/// A word that a shell takes for one: the shells of all who log in run this file.
fn word(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    text.chars().map(plain).take(WORD_LENGTH).collect()
}

fn io(path: &Path, source: io::Error) -> CoordinatorError {
    CoordinatorError::Io { path: path.to_owned(), source }
}

// === impl CoordinatorError ===

impl CoordinatorError {
    /// The whole story in one line, for people.
    pub fn text(&self) -> String {
        one_line(self)
    }
}
