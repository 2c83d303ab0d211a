//! What can be wrong with a configuration. Every error names its file, its key and what was expected.

use std::fmt;
use std::path::PathBuf;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file or folder cannot be read.
    #[error("{}: {why}", .file.display())]
    Unreadable {
        /// The file or folder.
        file: PathBuf,
        /// Why, and what was expected.
        why: String,
    },
    /// A file that would be ignored although somebody put it there.
    #[error(
        "{}: expected a name that ends in .toml, or the file would be ignored: rename it or take it away",
        .file.display()
    )]
    WrongName {
        /// The file.
        file: PathBuf,
    },
    /// The text is no TOML.
    #[error("{place}: expected TOML: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says, on one line.
        message: String,
    },
    /// A key that does not exist, most likely a slip of the pen.
    #[error("{place}: unknown key {key}{}", suggestion(.nearest.as_deref()))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// The known key that it looks like.
        nearest: Option<String>,
    },
    /// A value that its key cannot have.
    #[error("{place}: {key}: expected {expected}, found {found}")]
    WrongValue {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// What it should be.
        expected: String,
        /// What was found; secrets are not shown.
        found: String,
    },
    /// A value that does not go together with another.
    #[error("{}{key}: expected {expected}", place_prefix(.place.as_ref()))]
    Conflict {
        /// Where; `None` if the value is a default or missing.
        place: Option<Place>,
        /// The key.
        key: &'static str,
        /// What it should be, and because of what.
        expected: String,
    },
    /// A file has more errors than are told.
    #[error("{}: and more errors than the {shown} above", .file.display())]
    TooMany {
        /// The file.
        file: PathBuf,
        /// How many were told.
        shown: usize,
    },
    /// A key has no value although it should have a default: a fault of the program.
    #[error("{key}: has no default; this is a fault in lockkeeper")]
    NoDefault {
        /// The key.
        key: &'static str,
    },
}

/// Everything that is wrong; never empty. Printed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

// === impl ConfigError ===

impl ConfigError {
    /// Whether it may be about how a well node is known: in a file that cannot be read, everything may.
    pub(super) fn may_be_about_settling(&self) -> bool {
        match self {
            Self::UnknownKey { key, .. } | Self::WrongValue { key, .. } => {
                key.starts_with("settle")
            }
            Self::Conflict { key, .. } | Self::NoDefault { key } => key.starts_with("settle"),
            Self::Unreadable { .. } | Self::Syntax { .. } | Self::TooMany { .. } => true,
            Self::WrongName { .. } => false,
        }
    }

    /// The line that it is about.
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::Syntax { place, .. }
            | Self::UnknownKey { place, .. }
            | Self::WrongValue { place, .. } => Some(place.line),
            Self::Conflict { place, .. } => place.as_ref().map(|place| place.line),
            Self::Unreadable { .. }
            | Self::WrongName { .. }
            | Self::TooMany { .. }
            | Self::NoDefault { .. } => None,
        }
    }
}

// === impl ConfigErrors ===

impl ConfigErrors {
    /// These errors; `Ok` if there are none.
    pub(super) fn none_or(errors: Vec<ConfigError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self(errors)) }
    }

    /// Each of them: those about whole files first, then file by file in the order of lines, those
    /// about several keys last.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// The first of them, and how many more there are: for one line of a log or a status.
    pub fn brief(&self) -> String {
        let first = self.0.first().map(ToString::to_string).unwrap_or_default();
        match self.0.len().saturating_sub(1) {
            0 => first,
            more => format!("{first} (and {more} more)"),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            let between = if n == 0 { "" } else { "\n" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The end of the sentence about an unknown key.
fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; `lockkeeper config default` lists all keys".to_owned(),
        |nearest| format!("; did you mean {nearest}?"),
    )
}

/// The place and a colon, if there is one.
fn place_prefix(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| format!("{place}: "))
}
