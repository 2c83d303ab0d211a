//! What a configuration may say, and the words for everything that it may not.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod defaults;
mod folders;
mod noise;
mod wrong;

use std::fs;
use std::path::Path;

use super::{ConfigErrors, Loaded, Settings, load};

/// A host that has these files, by path below its root.
pub(crate) fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = root.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    root
}

/// Loads one file on top of the defaults.
fn load_text(text: &str) -> Result<Loaded, ConfigErrors> {
    let root = host(&[("etc/lockkeeper/config.d/a.toml", text)]);
    load(root.path())
}

/// The settings of one good file.
fn settings(text: &str) -> Settings {
    load_text(text).unwrap_or_else(|errors| panic!("{text}\n{errors}")).settings
}

/// The errors, one a line, the root of the host taken out.
fn errors(root: &Path) -> String {
    load(root).map(|_| ()).unwrap_err().to_string().replace(root.to_str().unwrap(), "")
}
