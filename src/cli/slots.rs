//! Slots at the front desk (stands in until the room is there).
#![allow(clippy::unused_async)]

use std::io::Write;
use std::path::Path;

/// Lists.
pub async fn list(_run_dir: &Path, _json: bool, _out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}

/// Releases.
pub async fn release(
    _run_dir: &Path,
    _group: &str,
    _id: &str,
    _out: &mut dyn Write,
) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
