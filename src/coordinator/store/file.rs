//! The slots in one file: the embedded default, for one process.
//!
//! Two lines of JSON: a head with format, version and the SHA-256 of the second, then the state.
//! Written beside, synced, renamed over the old one, and the folder synced, so that a kill or a
//! power loss leaves the old one or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::slots::Slots;
use super::{Store, StoreError};
use crate::config::file::read_bounded;

#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;

/// What the head calls itself.
const FORMAT: &str = "lockkeeper-slots";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
/// A holder is about 150 bytes; this is room for a hundred thousand.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A store in a folder: `slots.json`, and `lock` against a second process.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    file: PathBuf,
    /// Held as long as the store lives; the kernel lets go of it with the process.
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    #[serde(default)]
    sha256: String,
}

// === impl FileStore ===

impl FileStore {
    /// Opens the store and reads what it keeps; a store without a file keeps nothing. Blocks.
    ///
    /// # Errors
    /// Another process has it, or the file is there but cannot be read: never silently empty.
    pub fn open(folder: &Path) -> Result<(Self, Slots), StoreError> {
        make_folder(folder)?;
        let lock_file = folder.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_file)
            .map_err(|e| failed(&lock_file, "opening it", e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { file: lock_file }),
            Err(TryLockError::Error(e)) => return Err(failed(&lock_file, "locking it", e)),
        }
        let file = folder.join("slots.json");
        let slots = read(&file)?;
        Ok((Self { folder: folder.to_owned(), file, _lock: lock }, slots))
    }
}

impl Store for FileStore {
    fn write(&mut self, slots: &Slots) -> Result<(), StoreError> {
        let text = format(slots).map_err(|e| failed(&self.file, "writing it as JSON", e.into()))?;
        let beside = self.folder.join("slots.json.new");
        let mut new = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&beside)
            .map_err(|e| failed(&beside, "creating it", e))?;
        new.write_all(text.as_bytes()).map_err(|e| failed(&beside, "writing it", e))?;
        new.sync_all().map_err(|e| failed(&beside, "syncing it", e))?;
        fs::rename(&beside, &self.file).map_err(|e| failed(&self.file, "replacing it", e))?;
        sync_folder(&self.folder)
    }
}

/// Makes the folder so that it survives a power loss as surely as what is written into it.
fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let new: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| failed(folder, "making the folder", e))?;
    for parent in new.iter().filter_map(|path| path.parent()) {
        // A relative path ends in an empty one.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        sync_folder(parent)?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|open| open.sync_all())
        .map_err(|e| failed(folder, "syncing the folder", e))
}

fn read(file: &Path) -> Result<Slots, StoreError> {
    let text = match read_bounded(file, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Slots::default()),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            let because = format!("it is longer than {FILE_BYTES_MAX} bytes");
            return Err(StoreError::Damaged { file: file.to_owned(), because });
        }
        Err(e) => return Err(failed(file, "reading it", e)),
    };
    let slots = parse(&text).map_err(|trouble| match trouble {
        Unreadable::Damaged(because) => StoreError::Damaged { file: file.to_owned(), because },
        Unreadable::Newer(found) => {
            StoreError::Newer { file: file.to_owned(), expected: VERSION, found }
        }
    })?;
    slots.check().map_err(|source| StoreError::Impossible { file: file.to_owned(), source })?;
    Ok(slots)
}

fn format(slots: &Slots) -> Result<String, serde_json::Error> {
    let state = serde_json::to_string(slots)?;
    let head = Head { format: FORMAT.to_owned(), version: VERSION, sha256: checksum(&state) };
    Ok(format!("{}\n{state}\n", serde_json::to_string(&head)?))
}

enum Unreadable {
    Damaged(String),
    Newer(u32),
}

fn parse(text: &[u8]) -> Result<Slots, Unreadable> {
    let damaged = |because: &str| Unreadable::Damaged(because.to_owned());
    let text = std::str::from_utf8(text).map_err(|_| damaged("it is not UTF-8"))?;
    let (head, state) = text.split_once('\n').ok_or_else(|| damaged("it ends in its head"))?;
    let head: Head = serde_json::from_str(head)
        .map_err(|e| Unreadable::Damaged(format!("its first line is no head: {e}")))?;
    if head.format != FORMAT {
        let found: String = head.format.chars().take(64).collect();
        return Err(Unreadable::Damaged(format!("expected format {FORMAT:?}, found {found:?}")));
    }
    if head.version == 0 {
        return Err(damaged("there never was a version 0"));
    }
    if head.version > VERSION {
        return Err(Unreadable::Newer(head.version));
    }
    let state = state.strip_suffix('\n').ok_or_else(|| damaged("its end is missing"))?;
    if checksum(state) != head.sha256 {
        return Err(damaged("its checksum does not fit: it was cut or changed"));
    }
    serde_json::from_str(state)
        .map_err(|e| Unreadable::Damaged(format!("its second line is no state: {e}")))
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn failed(file: &Path, doing: &'static str, source: io::Error) -> StoreError {
    StoreError::File { file: file.to_owned(), doing, source }
}
