//! Fragments laid over one another, key by key; where each value came from is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use super::build;
use super::error::{ConfigError, ConfigErrors, Place};
use super::folder::{Files, Masked};
use super::fragment;
use super::keys::KEYS;
use super::reading::Reading;
use super::settings::Settings;

/// The shipped file: every key, its default, what it is for.
pub(super) const DEFAULT: &str = include_str!("default.toml");

/// A configuration that has been understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// Every key in the order of the default file.
    pub values: Vec<Value>,
    /// The files that were read, in this order.
    pub files: Vec<PathBuf>,
    /// The files that were not, since a later folder has one of the same name.
    pub masked: Vec<Masked>,
}

/// The value of a key, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The key, with dots.
    pub key: &'static str,
    /// The value in TOML, secrets replaced by `***`; `None`: not set.
    pub text: Option<String>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of a file.
    File(Place),
}

/// The keys of all files, merged.
#[derive(Debug, Default)]
pub(super) struct Merged {
    values: BTreeMap<&'static str, (Reading, Origin)>,
    /// Keys that some file sets to something wrong: nothing is concluded from their values.
    pub(super) broken: BTreeSet<&'static str>,
}

/// What is wrong with a configuration that is used as far as it is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// All of it.
    pub errors: ConfigErrors,
    /// It may say how a well node is known, so that none can be called well.
    pub settle_unknown: bool,
}

/// Reads, merges and understands the files.
pub(super) fn load(files: Files) -> Result<Loaded, ConfigErrors> {
    match load_in_part(files)? {
        (loaded, None) => Ok(loaded),
        (_, Some(wrong)) => Err(wrong.errors),
    }
}

/// As [`load`]; what is wrong counts for nothing, and what is right does.
pub(super) fn load_in_part(files: Files) -> Result<(Loaded, Option<Wrong>), ConfigErrors> {
    let mut merged = Merged::default();
    let shipped = fragment::parse(Path::new("(default)"), DEFAULT);
    let mut errors = shipped.errors;
    for entry in shipped.entries {
        merged.values.insert(entry.key, (entry.reading, Origin::Default));
    }
    errors.extend(files.errors);
    for (file, text) in &files.texts {
        let fragment = fragment::parse(file, text);
        errors.extend(fragment.errors);
        merged.broken.extend(fragment.broken);
        for entry in fragment.entries {
            let place = Place { file: file.clone(), line: entry.line };
            merged.values.insert(entry.key, (entry.reading, Origin::File(place)));
        }
    }
    errors.extend(build::conflicts(&merged));
    let settle_unknown = errors.iter().any(ConfigError::may_be_about_settling);
    let wrong = ConfigErrors::none_or(errors).err();
    let wrong = wrong.map(|errors| Wrong { errors, settle_unknown });
    let settings = match (build::settings(&merged), &wrong) {
        (Ok(settings), _) => settings,
        // It follows from what is wrong already.
        (Err(_), Some(wrong)) => return Err(wrong.errors.clone()),
        (Err(error), None) => return Err(error.into()),
    };
    let loaded = Loaded {
        settings,
        values: merged.values(),
        files: files.texts.into_iter().map(|(file, _)| file).collect(),
        masked: files.masked,
    };
    Ok((loaded, wrong))
}

// === impl Merged ===

impl Merged {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Reading> {
        self.values.get(key).map(|(reading, _)| reading)
    }

    /// Where a file sets a key.
    pub(super) fn place(&self, key: &str) -> Option<Place> {
        match self.values.get(key) {
            Some((_, Origin::File(place))) => Some(place.clone()),
            Some((_, Origin::Default)) | None => None,
        }
    }

    /// Every key for people.
    fn values(&self) -> Vec<Value> {
        let value = |key: &'static str| match self.values.get(key) {
            Some((reading, origin)) => {
                Value { key, text: Some(reading.to_string()), origin: origin.clone() }
            }
            None => Value { key, text: None, origin: Origin::Default },
        };
        KEYS.iter().map(|key| value(key.name)).collect()
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => place.fmt(f),
        }
    }
}
