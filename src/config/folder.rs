//! Which files count: three folders, a file name once, masks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::ConfigError;

/// Folders, from the vendor's to the administrator's: a later one replaces files of the same name.
pub(super) const FOLDERS: [&str; 3] =
    ["usr/lib/lockkeeper/config.d", "run/lockkeeper/config.d", "etc/lockkeeper/config.d"];

/// Longest file that is read; a real one has a few kilobytes.
const LENGTH_MAX: u64 = 1 << 20;

/// A file that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked {
    /// The file.
    pub file: PathBuf,
    /// The file of the same name in a later folder: a mask if it is a link to `/dev/null` or
    /// empty, else the one that is read in its place.
    pub by: PathBuf,
}

/// The files that count.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Those to read, with their text, in the order of their names.
    pub(super) texts: Vec<(PathBuf, String)>,
    /// Those that a later folder masks or replaces.
    pub(super) masked: Vec<Masked>,
    /// What is wrong with files as such.
    pub(super) errors: Vec<ConfigError>,
}

/// Collects the files of the three folders under `root`.
pub(super) fn collect(root: &Path) -> Files {
    let mut files = Files::default();
    let mut chosen: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        match list(&folder, &mut files.errors) {
            Ok(names) => {
                for name in names {
                    let file = folder.join(&name);
                    if let Some(before) = chosen.insert(name, file.clone()) {
                        files.masked.push(Masked { file: before, by: file });
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = reason(&error, "a folder");
                files.errors.push(ConfigError::Unreadable { file: folder, why });
            }
        }
    }
    for file in chosen.into_values() {
        read_into(&mut files, file);
    }
    files
}

/// Collects files that a person named; of a folder, its fragments in the order of their names.
pub(super) fn collect_named(paths: &[PathBuf]) -> Files {
    let mut files = Files::default();
    for path in paths {
        if !path.is_dir() {
            read_into(&mut files, path.clone());
            continue;
        }
        match list(path, &mut files.errors) {
            Ok(names) => names.into_iter().for_each(|name| read_into(&mut files, path.join(name))),
            Err(error) => {
                let why = reason(&error, "a folder");
                files.errors.push(ConfigError::Unreadable { file: path.clone(), why });
            }
        }
    }
    files
}

/// The names of a folder's fragments, sorted. A name that would be ignored is an error, since
/// somebody put the file there in the belief that it counts.
fn list(folder: &Path, errors: &mut Vec<ConfigError>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if name.starts_with('.') || name.ends_with('~') => {}
            Some(name) if name == "README" || name.starts_with("README.") => {}
            Some(name) if name.ends_with(".toml") => names.push(name.to_owned()),
            Some(_) | None => wrong.push(entry.path()),
        }
    }
    names.sort();
    wrong.sort();
    errors.extend(wrong.into_iter().map(|file| ConfigError::WrongName { file }));
    Ok(names)
}

/// Reads a file, unless it is a mask.
fn read_into(files: &mut Files, file: PathBuf) {
    match read(&file) {
        Ok(text) if text.is_empty() => {}
        Ok(text) => files.texts.push((file, text)),
        Err(why) => files.errors.push(ConfigError::Unreadable { file, why }),
    }
}

/// The text of a file; empty for a mask.
fn read(file: &Path) -> Result<String, String> {
    let null = Path::new("/dev/null");
    // By what the link says too: under another root there may be no /dev.
    if [fs::canonicalize(file), fs::read_link(file)].iter().flatten().any(|path| path == null) {
        return Ok(String::new());
    }
    let plain = fs::metadata(file).map_err(|error| reason(&error, "a file"))?;
    if plain.is_dir() {
        return Err("expected a file, found a folder".to_owned());
    }
    // A pipe would never end, a device might not.
    if !plain.is_file() {
        return Err("expected a file, found a pipe, a socket or a device".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(LENGTH_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| reason(&error, "a file"))?;
    if bytes.len() as u64 > LENGTH_MAX {
        return Err("expected at most 1 MiB, found more".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().iter().take(good);
        let line = 1 + before.filter(|b| **b == b'\n').count();
        format!("expected UTF-8 text, found a byte that is none in line {line}")
    })
}

/// Why something cannot be read, in people's words.
fn reason(error: &io::Error, expected: &str) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        format!("expected {expected}, found nothing (or a link to nothing)")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("expected {expected} that you may read: permission denied; try as root")
    } else if kind == io::ErrorKind::NotADirectory {
        format!("expected {expected}, found a file where a folder must be")
    } else {
        format!("expected {expected} that can be read: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root reads every file, so a test cannot make one that is refused to it everywhere.
    #[test]
    fn a_refusal_of_the_system_is_said_in_words() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            reason(&error, "a file"),
            "expected a file that you may read: permission denied; try as root"
        );
    }
}
