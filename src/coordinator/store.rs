//! Where the slots are kept.

pub mod file;

use std::io;
use std::path::PathBuf;

use super::slots::{HeldTwice, Slots};

/// Keeps the whole state; when [`Store::write`] returns, it survives a power loss.
pub trait Store: Send + 'static {
    /// Replaces what is kept. Blocks.
    ///
    /// # Errors
    /// It may be kept or not; the one before or this one is, and nothing in between.
    fn write(&mut self, slots: &Slots) -> Result<(), StoreError>;
}

/// What went wrong with the store. Each names its file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it.
    #[error("{file}: another coordinator holds this lock; two of them would grant twice")]
    InUse {
        /// The lock file.
        file: PathBuf,
    },
    /// A file operation failed.
    #[error("{file}: {doing}")]
    File {
        /// The file.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// It was read, but is not what was written.
    #[error(
        "{file}: {because}; not starting, since slots that are forgotten would be granted twice. \
         Put a good copy back, or move it away once no node is down"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        because: String,
    },
    /// A newer coordinator wrote it.
    #[error(
        "{file}: expected version {expected} or older, found {found}: a newer lockkeeper wrote it"
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The newest version that this one reads.
        expected: u32,
        /// The version that was found.
        found: u32,
    },
    /// It says what cannot be.
    #[error("{file}")]
    Impossible {
        /// The file.
        file: PathBuf,
        /// What cannot be.
        source: HeldTwice,
    },
}
