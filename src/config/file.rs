//! Reading a file that somebody else wrote: only if it is one, and never more than a bound.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file of at most `most` bytes.
///
/// A pipe would never end and a device might not, so that neither is read, nor waited for when it
/// is opened.
///
/// # Errors
/// It cannot be opened or read, is no file ([`ErrorKind::InvalidInput`]) or is longer
/// ([`ErrorKind::FileTooLarge`]).
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "found a folder"));
    }
    if !kind.is_file() {
        let found = "found a pipe, a socket or a device";
        return Err(io::Error::new(ErrorKind::InvalidInput, found));
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let found = format!("found more than {most} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, found));
    }
    Ok(bytes)
}

/// As [`read_bounded`], and it must be UTF-8.
///
/// # Errors
/// As [`read_bounded`]; other bytes are [`ErrorKind::InvalidData`].
pub fn read_text_bounded(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read_bounded(path, most)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "found bytes that are no UTF-8"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_are_read_and_only_so_far() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("fits"), "12345678").unwrap();
        fs::write(path("long"), "123456789").unwrap();
        fs::write(path("bytes"), b"\xff\x00").unwrap();
        fs::create_dir(path("folder")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        let read = |name: &str| read_bounded(&path(name), 8).map_err(|e| e.kind());
        assert_eq!(read("fits"), Ok(b"12345678".to_vec()));
        assert_eq!(read("bytes"), Ok(b"\xff\x00".to_vec()));
        for (name, kind) in [
            ("long", ErrorKind::FileTooLarge),
            ("folder", ErrorKind::InvalidInput),
            ("pipe", ErrorKind::InvalidInput),
            ("zero", ErrorKind::InvalidInput),
            ("dangling", ErrorKind::NotFound),
            ("missing", ErrorKind::NotFound),
        ] {
            assert_eq!(read(name), Err(kind), "{name}");
        }
        assert!(read("loop").is_err() && read("socket").is_err());
        let text = read_text_bounded(&path("bytes"), 8).map_err(|e| e.kind());
        assert_eq!(text, Err(ErrorKind::InvalidData));
        assert_eq!(read_text_bounded(&path("fits"), 8).unwrap(), "12345678");
    }
}
