//! The hold file: while it lies there, the node is held; its text says why.

use std::convert::Infallible;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc::Sender;

use crate::lifecycle::Event;
use crate::signals::bus::retry::Retry;
use crate::signals::inotify::{AddWatchFlags, Watcher};

/// Longest text that is kept, in characters: it goes into a status line and onto the Node.
const TEXT_LENGTH: usize = 512;

/// Tells the hold file's text at the start and whenever it changes. Returns only when nobody
/// listens any more.
pub async fn watch(file: PathBuf, events: Sender<Event>) {
    let mut retry = Retry::default();
    let mut told = None;
    let mut trouble: Option<String> = None;
    loop {
        let end = tokio::select! {
            () = events.closed() => return,
            end = session(&file, &events, &mut told, &mut retry) => end,
        };
        let Err(error) = end;
        let text = error.to_string();
        if trouble.as_ref() != Some(&text) {
            tracing::warn!(error = text, path = %file.display(), "the hold file is only looked at");
            trouble = Some(text);
        }
        // Without a watch it is looked at from time to time.
        tokio::select! {
            () = events.closed() => return,
            () = tokio::time::sleep(retry.failed()) => {}
        }
    }
}

/// Looks, waits for a change, and looks again.
async fn session(
    file: &Path,
    events: &Sender<Event>,
    told: &mut Option<Option<String>>,
    retry: &mut Retry,
) -> std::io::Result<Infallible> {
    loop {
        // A new instance each time: changes are rare, and no old event can be taken for a new one.
        // The watch comes before the look, so that nothing falls between them.
        let watcher = watch_nearest(file);
        let text = read(file);
        if told.as_ref() != Some(&text) {
            *told = Some(text.clone());
            // Nobody listens any more: the caller sees it too.
            let _ = events.send(Event::HoldFile(text)).await;
        }
        let mut watcher = watcher?;
        retry.succeeded();
        watcher.next().await?;
    }
}

/// Watches the file's folder, or the nearest one above it that exists.
fn watch_nearest(file: &Path) -> std::io::Result<Watcher> {
    let watcher = Watcher::new()?;
    let mask = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    let mut below: Option<&Path> = None;
    for folder in file.ancestors().skip(1) {
        if watcher.add(folder, mask)?.is_some() {
            // The folder below may have come between the two looks.
            return match below {
                Some(below) if below.is_dir() => watch_nearest(file),
                Some(_) | None => Ok(watcher),
            };
        }
        below = Some(folder);
    }
    Err(std::io::Error::new(ErrorKind::NotFound, "no folder above it exists"))
}

/// The file's text; `None`: there is none. A file that cannot be read holds as well.
fn read(file: &Path) -> Option<String> {
    let text = match read_start(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A link to nowhere was still put there by somebody.
            file.symlink_metadata().ok()?;
            "the hold file leads nowhere".to_owned()
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => return None,
        Err(error) => format!("the hold file cannot be read: {error}"),
    };
    let line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some(line.chars().take(TEXT_LENGTH).collect())
}

/// As many bytes as may be needed; never waits for the other end of a pipe.
fn read_start(file: &Path) -> std::io::Result<String> {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC)
        .open(file)?;
    let mut bytes = Vec::new();
    opened.take(4 * TEXT_LENGTH as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

    use std::fs;
    use std::time::Duration;

    use super::*;

    async fn next(heard: &mut tokio::sync::mpsc::Receiver<Event>) -> Option<String> {
        let event = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.unwrap();
        match event.unwrap() {
            Event::HoldFile(text) => text,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_file_comes_changes_and_goes_with_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/lockkeeper");
        let file = folder.join("hold");
        let (events, mut heard) = tokio::sync::mpsc::channel(8);
        let watch = tokio::spawn(watch(file.clone(), events));
        assert_eq!(next(&mut heard).await, None);
        fs::create_dir_all(&folder).unwrap();
        fs::write(root.path().join("new"), "disk is being replaced\n").unwrap();
        fs::rename(root.path().join("new"), &file).unwrap();
        assert_eq!(next(&mut heard).await.as_deref(), Some("disk is being replaced"));
        fs::write(root.path().join("new"), "x".repeat(100_000)).unwrap();
        fs::rename(root.path().join("new"), &file).unwrap();
        assert_eq!(next(&mut heard).await.unwrap().len(), TEXT_LENGTH);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(next(&mut heard).await, None);
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &file).unwrap();
        assert_eq!(next(&mut heard).await.as_deref(), Some("the hold file leads nowhere"));
        drop(heard);
        tokio::time::timeout(Duration::from_secs(20), watch).await.unwrap().unwrap();
    }

    #[test]
    fn whatever_lies_there_holds() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("hold");
        assert_eq!(read(&file), None);
        assert_eq!(read(&file.join("below")), None);
        fs::write(&file, "").unwrap();
        assert_eq!(read(&file).as_deref(), Some(""));
        fs::write(&file, b"two\nlines \xff\x07!").unwrap();
        assert_eq!(read(&file).as_deref(), Some("two lines \u{fffd} !"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(read(&file).unwrap().starts_with("the hold file cannot be read"));
        fs::remove_dir(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(&file).as_deref(), Some(""));
    }
}
