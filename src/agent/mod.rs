//! The only loop (stands in until the room is there).
#![allow(clippy::unused_async)]

/// Runs.
pub async fn run(_config_root: std::path::PathBuf) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
