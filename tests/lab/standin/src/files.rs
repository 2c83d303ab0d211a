//! Files that survive a power cut: whole or not at all.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::paths::Paths;

/// Longest wait for somebody else's lock of the system root.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Writes a file beside its place, syncs it, renames it and syncs the folder.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file needs a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let name = path.file_name().context("a file needs a name")?.to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let mut file =
        File::create(&temporary).with_context(|| format!("creating {}", temporary.display()))?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // The half file must not use up what little space there is.
        let _ = fs::remove_file(&temporary);
        return Err(error).with_context(|| format!("writing {}", path.display()));
    }
    fs::rename(&temporary, path).with_context(|| format!("renaming to {}", path.display()))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("syncing {}", folder.display()))
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write(path, &text)
}

/// Reads a JSON file; a missing one is `None`.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .with_context(|| format!("reading {}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Removes a file; says whether there was one.
pub(crate) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
    }
}

/// Tells watchers of the deploy folder that something changed, as libostree does.
pub(crate) fn bump(paths: &Paths) -> Result<()> {
    let folder = paths.deploy();
    let file = File::open(&folder).with_context(|| format!("opening {}", folder.display()))?;
    futimens(&file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)
        .with_context(|| format!("touching {}", folder.display()))
}

/// Takes the lock of the system root if it is free.
pub(crate) fn try_lock(paths: &Paths) -> Result<Option<File>> {
    let path = paths.lock();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("locking {}", path.display()))
        }
    }
}

/// Takes the lock of the system root, waiting for a transaction that holds it.
pub(crate) fn lock(paths: &Paths) -> Result<File> {
    let tries = LOCK_WAIT.as_millis() / LOCK_RETRY.as_millis();
    for _ in 0..tries {
        if let Some(file) = try_lock(paths)? {
            return Ok(file);
        }
        std::thread::sleep(LOCK_RETRY);
    }
    bail!("the lock of the system root was not free within {LOCK_WAIT:?}")
}
