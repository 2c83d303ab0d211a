//! Configuration at the front desk (stands in until the room is there).

use std::io::Write;
use std::path::{Path, PathBuf};

/// Checks.
pub fn check(_root: &Path, _files: &[PathBuf], _out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}

/// Shows.
pub fn show(_root: &Path, _out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}

/// Prints the defaults.
pub fn default(_out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
