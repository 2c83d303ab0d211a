//! One file's text: its keys with their lines, or everything that is wrong with it.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place};
use super::keys::{self, KEYS, TABLES};
use super::reading::{ERRORS_MAX, Fault, Reading, Wrong, found, nearest, printable, read};

/// What one file sets.
#[derive(Debug, Default)]
pub(super) struct Fragment {
    /// Keys that were understood.
    pub(super) entries: Vec<Entry>,
    /// Keys that were not, so that nothing more is concluded from them.
    pub(super) broken: Vec<&'static str>,
    /// What is wrong.
    pub(super) errors: Vec<ConfigError>,
}

/// A key that a file sets.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: &'static str,
    pub(super) reading: Reading,
    pub(super) line: usize,
}

/// Reads a file's text; `file` is for the errors.
pub(super) fn parse(file: &Path, text: &str) -> Fragment {
    let mut fragment = Fragment::default();
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut faults = Vec::new();
    if syntax.is_empty() {
        for (name, value) in document.get_ref() {
            table(text, name.get_ref(), name.span().start, value, &mut fragment, &mut faults);
        }
        faults.sort_by_key(|fault| fault.at);
    }
    // Cut before the lines are counted, which goes through the text for each of them.
    let total = syntax.len().max(faults.len());
    let syntax = syntax.iter().take(ERRORS_MAX).map(|error| ConfigError::Syntax {
        place: place(file, text, error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join("; "),
    });
    fragment.errors.extend(syntax);
    // Behind its first error in a line, the parser only guesses.
    fragment.errors.sort_by_key(ConfigError::line);
    fragment.errors.dedup_by_key(|error| error.line());
    let faults = faults.into_iter().take(ERRORS_MAX).map(|fault| error(file, text, fault));
    fragment.errors.extend(faults);
    if total > ERRORS_MAX {
        fragment.errors.push(ConfigError::TooMany { file: file.to_owned(), shown: ERRORS_MAX });
    }
    fragment
}

/// Reads what stands at the top of a file: a table of keys, or `windows`.
fn table(
    text: &str,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    fragment: &mut Fragment,
    faults: &mut Vec<Fault>,
) {
    if keys::find(name).is_some() {
        return key(text, name, at, value, fragment, faults);
    }
    if !TABLES.contains(&name) {
        let nearest = nearest(name, TABLES.iter().copied().chain(names()), faults.len());
        return faults.push(Fault { at, key: printable(name), what: Wrong::Unknown { nearest } });
    }
    let Some(table) = value.get_ref().as_table() else {
        let what = Wrong::Value { expected: format!("a table [{name}]"), found: found(value) };
        return faults.push(Fault { at, key: name.to_owned(), what });
    };
    for (inner, value) in table {
        let full = format!("{name}.{}", printable(inner.get_ref()));
        key(text, &full, inner.span().start, value, fragment, faults);
    }
}

/// Reads one key.
fn key(
    text: &str,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    fragment: &mut Fragment,
    faults: &mut Vec<Fault>,
) {
    let Some(key) = keys::find(name) else {
        let nearest = nearest(name, names(), faults.len());
        return faults.push(Fault { at, key: name.to_owned(), what: Wrong::Unknown { nearest } });
    };
    match read(key.name, &key.shape, value, faults) {
        Some(reading) => {
            let line = line(text, at);
            fragment.entries.push(Entry { key: key.name, reading, line });
        }
        None => fragment.broken.push(key.name),
    }
}

/// The names of all keys.
fn names() -> impl Iterator<Item = &'static str> + Clone {
    KEYS.iter().map(|key| key.name)
}

/// The error for a fault.
fn error(file: &Path, text: &str, fault: Fault) -> ConfigError {
    let place = place(file, text, fault.at);
    let key = fault.key;
    match fault.what {
        Wrong::Unknown { nearest } => ConfigError::UnknownKey { place, key, nearest },
        Wrong::Value { expected, found } => ConfigError::WrongValue { place, key, expected, found },
    }
}

/// The place of a byte.
fn place(file: &Path, text: &str, at: usize) -> Place {
    Place { file: PathBuf::from(file), line: line(text, at) }
}

/// The line of a byte, from 1 on.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}
