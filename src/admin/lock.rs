//! One agent a host: a lock in the run folder that a unit and a DaemonSet both respect.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Name of the lock's file in the run folder.
const FILE_NAME: &str = "agent.lock";

/// A pid has at most 7 digits; more than this is not ours.
const HOLDER_BYTES_MAX: u64 = 32;

/// The proof that this process is the host's only agent. The kernel drops it with the process.
#[derive(Debug)]
pub struct AgentLock {
    _file: Flock<File>,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent runs on this host.
    #[error("another agent holds {} ({holder}); only one may run on a host", path.display())]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// Who holds it, in its own words.
        holder: String,
    },
    /// The file cannot be made, opened or written.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

// === impl AgentLock ===

impl AgentLock {
    /// Takes the lock in `run_dir`, which must exist, and writes our pid into it.
    ///
    /// # Errors
    /// [`LockError::Held`] names the process that has it. Nothing is waited for.
    pub fn take(run_dir: &Path) -> Result<Self, LockError> {
        let path = run_dir.join(FILE_NAME);
        let io = |source| LockError::Io { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                file.set_len(0).map_err(io)?;
                file.rewind().map_err(io)?;
                writeln!(*file, "pid {}", std::process::id()).map_err(io)?;
                Ok(Self { _file: file })
            }
            Err((file, Errno::EWOULDBLOCK)) => {
                Err(LockError::Held { path: path.clone(), holder: holder(file) })
            }
            Err((_, errno)) => Err(io(errno.into())),
        }
    }
}

/// What the holder wrote about itself.
fn holder(file: File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let text = text.trim();
    if read.is_err() || text.is_empty() { "unknown process".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_second_agent_learns_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let first = AgentLock::take(dir.path()).unwrap();
        let error = AgentLock::take(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
        drop(first);
        AgentLock::take(dir.path()).unwrap();
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = AgentLock::take(Path::new("/nonexistent/run")).unwrap_err().to_string();
        assert_eq!(error, "cannot lock /nonexistent/run/agent.lock");
    }
}
