//! Fragments, merged with their origin, read into settings that cannot say a wrong thing.
//!
//! ```text
//! folder: which files count ─► fragment: text → keys with lines ─► merge: later over earlier
//!                                   keys, reading, rules: what a value may be     │
//!                                                              build: ─► Settings ┘
//! ```
//! Nothing stops at the first error: all are collected, each with its file, line and key.

mod build;
mod error;
pub mod file;
mod folder;
mod fragment;
mod keys;
mod merge;
mod reading;
mod rules;
mod settings;

use std::path::{Path, PathBuf};

pub(crate) use build::ever_fits;
pub use error::{ConfigError, ConfigErrors, Place};
pub use folder::Masked;
pub use merge::{Loaded, Origin, Value, Wrong};
pub(crate) use rules::without_secret;
pub use settings::{
    AgentSettings, CoordinatorSettings, Credentials, DrainSettings, EmptyDir, GroupSettings,
    HealthSettings, MetricsSettings, NodeSettings, RebootSettings, Settings, SlotBackend,
    SlotServer, UnmanagedPods, UpdateSettings, ZincatiSettings,
};

/// Loads the configuration of a host: `{/usr/lib,/run,/etc}/lockkeeper/config.d/*.toml` under
/// `root`, which is `/` except in tests. Folders need not exist.
///
/// # Errors
/// Everything that is wrong with any file, not only the first thing.
pub fn load(root: &Path) -> Result<Loaded, ConfigErrors> {
    merge::load(folder::collect(root))
}

/// As [`load`]; a key that is wrong has its default, and files that cannot be read say nothing. With
/// that a node finds its way home, and goes nowhere else.
///
/// # Errors
/// What is right is no configuration by itself.
pub fn load_in_part(root: &Path) -> Result<(Loaded, Option<Wrong>), ConfigErrors> {
    merge::load_in_part(folder::collect(root))
}

/// Loads files that a person named, in this order, on top of the defaults and of nothing else; a
/// folder stands for its `*.toml`, in the order of their names.
///
/// # Errors
/// As [`load`]; here a file that does not exist is an error too.
pub fn load_files(paths: &[PathBuf]) -> Result<Loaded, ConfigErrors> {
    merge::load(folder::collect_named(paths))
}

/// Loads one text on top of the defaults and of nothing else; `name` stands for its file in errors.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_text(name: &Path, text: &str) -> Result<Loaded, ConfigErrors> {
    let texts = vec![(name.to_owned(), text.to_owned())];
    merge::load(folder::Files { texts, ..folder::Files::default() })
}

/// Whether there is a key of this name.
pub(crate) fn known(key: &str) -> bool {
    keys::find(key).is_some()
}

/// What a key may be, if it cannot be this TOML literal; completes "expected …". `None`: it can.
pub(crate) fn expected(key: &str, literal: &str) -> Option<String> {
    let fragment = fragment::parse(Path::new(""), &format!("{key} = {literal}\n"));
    fragment.errors.into_iter().next().map(|error| match error {
        ConfigError::WrongValue { expected, .. } | ConfigError::Conflict { expected, .. } => {
            expected
        }
        ConfigError::Unreadable { .. }
        | ConfigError::WrongName { .. }
        | ConfigError::Syntax { .. }
        | ConfigError::UnknownKey { .. }
        | ConfigError::TooMany { .. }
        | ConfigError::NoDefault { .. } => "something else".to_owned(),
    })
}

/// The shipped file: every key with its default and what it is for.
pub fn default_toml() -> String {
    merge::DEFAULT.to_owned()
}

#[cfg(test)]
pub(crate) mod tests;
