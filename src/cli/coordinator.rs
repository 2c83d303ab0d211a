//! The coordinator at the front desk (stands in until the room is there).
#![allow(clippy::unused_async)]

/// Runs.
pub async fn run(_settings: crate::config::CoordinatorSettings) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
