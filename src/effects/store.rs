//! The record on disk: versioned, checksummed, and written so that a power cut leaves the old one
//! or the new one, never half of either.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::file::read_bounded;
use crate::lifecycle::Record;

/// The version that this agent writes and reads. Fields may be added within it; what an older
/// agent of the same version does not know, it leaves out.
pub const RECORD_VERSION: u32 = 1;

/// A record of some years is some tens of kB; more than this is not ours.
const SIZE_MAX: u64 = 4 << 20;

const MAGIC: &str = "lockkeeper-record";
const NAME: &str = "record";
const NAME_NEW: &str = "record.new";

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("{path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is none of ours, or cut short.
    #[error("{path}: expected {expected}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        expected: &'static str,
    },
    /// A later version wrote it.
    #[error("{path}: written in version {found}, this agent reads version {RECORD_VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
    },
    /// Its content is not what was written.
    #[error("{path}: the checksum does not fit the content")]
    Checksum {
        /// The file.
        path: PathBuf,
    },
    /// Its content is no record.
    #[error("{path}: the content is no record")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// What was found at start.
#[derive(Debug)]
pub enum Loaded {
    /// No record yet.
    Fresh,
    /// The record.
    Read(Box<Record>),
    /// One that cannot be used was moved out of the way.
    SetAside {
        /// Why.
        error: RecordError,
        /// Where it lies now; `None` where it could not be moved.
        moved_to: Option<PathBuf>,
    },
}

/// The record's folder.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The store in this folder; nothing is touched yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Reads the record; one that cannot be used is set aside, so that the next start is clean.
    pub fn load(&self) -> Loaded {
        let path = self.dir.join(NAME);
        match read(&path) {
            Ok(None) => Loaded::Fresh,
            Ok(Some(record)) => Loaded::Read(Box::new(record)),
            Err(error) => Loaded::SetAside { error, moved_to: self.set_aside(&path) },
        }
    }

    /// Writes the record: to a new file, flushed, renamed over the old one, the folder flushed.
    ///
    /// # Errors
    /// Any failure of the file system; the old record is then still whole.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let body = serde_json::to_vec(record).map_err(io::Error::other)?;
        let new = self.dir.join(NAME_NEW);
        let mut file = File::create(&new)?;
        writeln!(file, "{MAGIC} {RECORD_VERSION} {}", checksum(&body))?;
        file.write_all(&body)?;
        file.sync_all()?;
        fs::rename(&new, self.dir.join(NAME))?;
        File::open(&self.dir)?.sync_all()
    }

    fn set_aside(&self, path: &Path) -> Option<PathBuf> {
        // A handful is kept for those who want to look; the oldest name is used again after that.
        let mut free = (1..=9).map(|n| self.dir.join(format!("{NAME}.unreadable-{n}")));
        let to = free.clone().find(|to| !to.exists()).or_else(|| free.next_back())?;
        fs::rename(path, &to).ok()?;
        Some(to)
    }
}

fn read(path: &Path) -> Result<Option<Record>, RecordError> {
    let fail = |source| RecordError::Read { path: path.to_owned(), source };
    match read_bounded(path, SIZE_MAX) {
        Ok(bytes) => parse(&bytes, path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(RecordError::Shape { path: path.to_owned(), expected: "at most 4 MiB" })
        }
        Err(error) => Err(fail(error)),
    }
}

/// Reads the bytes of a record; `path` is for the error only.
///
/// # Errors
/// See [`RecordError`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<Record, RecordError> {
    let path = || path.to_owned();
    let expected = "a first line `lockkeeper-record VERSION CHECKSUM`";
    let shape = || RecordError::Shape { path: path(), expected };
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(shape)?;
    let (head, body) = (&bytes[..end], &bytes[end + 1..]);
    let head = std::str::from_utf8(head).map_err(|_| shape())?;
    let mut words = head.split(' ');
    let (magic, version, sum) = (words.next(), words.next(), words.next());
    if magic != Some(MAGIC) || words.next().is_some() {
        return Err(shape());
    }
    let version: Option<u32> = version.and_then(|v| v.parse().ok());
    let version = version.filter(|version| *version > 0).ok_or_else(shape)?;
    if version > RECORD_VERSION {
        return Err(RecordError::Newer { path: path(), found: version });
    }
    if sum != Some(checksum(body).as_str()) {
        return Err(RecordError::Checksum { path: path() });
    }
    serde_json::from_slice(body).map_err(|source| RecordError::Content { path: path(), source })
}

fn checksum(body: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(body) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod noise;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::lifecycle::{Slot, Stage};

    fn sample() -> Record {
        let mut record = Record::default();
        record.core.stage = Stage::Draining;
        record.core.slot = Slot::Held { since: "2026-11-30T12:00:00Z".parse().unwrap() };
        record.tries.insert("sha256:ab".to_owned(), 2);
        record
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("deep/state"));
        assert!(matches!(store.load(), Loaded::Fresh));
        store.write(&sample()).unwrap();
        let Loaded::Read(record) = store.load() else { panic!("not read") };
        assert_eq!(*record, sample());
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        store.write(&sample()).unwrap();
        let whole = fs::read(dir.path().join(NAME)).unwrap();
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut], Path::new("record")).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(parse(&bytes, Path::new("record")).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_set_aside_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "lockkeeper-record 2 sha256:00\n{}").unwrap();
        let store = Store::new(dir.path());
        let Loaded::SetAside { error, moved_to } = store.load() else { panic!("not set aside") };
        assert!(error.to_string().ends_with("written in version 2, this agent reads version 1"));
        assert_eq!(moved_to, Some(dir.path().join("record.unreadable-1")));
        assert!(matches!(store.load(), Loaded::Fresh));
    }

    #[test]
    fn fields_of_a_later_agent_do_not_hurt() {
        let body = br#"{"stage":"idle","attempt":null,"slot":{"state":"none"},"cordon":"none","boot":null,"later":7}"#;
        let mut file = format!("{MAGIC} 1 {}\n", checksum(body)).into_bytes();
        file.extend_from_slice(body);
        assert_eq!(parse(&file, Path::new("record")).unwrap(), Record::default());
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_record() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        store.write(&sample()).unwrap();
        fs::create_dir(dir.path().join(NAME_NEW)).unwrap();
        assert!(store.write(&Record::default()).is_err());
        let Loaded::Read(record) = store.load() else { panic!("not read") };
        assert_eq!(*record, sample());
    }
}
