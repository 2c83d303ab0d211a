//! This boot, and what it says about the one before it.

use std::time::Duration;

use tokio::time::Instant;

use super::command;
use crate::lifecycle::{BootEvidence, BootMark};
use crate::model::{BootId, IdError};
use crate::signals::bus::retry::Retry;
use crate::signals::bus::systemd::Systemd;
use crate::signals::bus::{BusError, Host};

/// Fails in the first boot after a finalization that failed.
const BOOT_COMPLETE: &str = "ostree-boot-complete.service";

/// How long the journal may take: on a slow disk it is searched.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long systemd is asked again while it does not answer: a node whose systemd is silent is not
/// well in any case, and a guess would tell a failed finalization as something else.
const EVIDENCE_PATIENCE: Duration = Duration::from_secs(300);

/// Longest text of a failure that is kept, in characters.
const FAILURE_LENGTH: usize = 512;

/// Unit names under which a kubelet runs, alone or within a distribution.
const KUBELET_UNITS: [&str; 4] =
    ["kubelet.service", "k3s*.service", "rke2*.service", "k0s*.service"];

/// Why this boot cannot be told from others.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The kernel's boot id cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no boot id.
    #[error(transparent)]
    Odd(#[from] IdError),
}

/// The boot that runs. The count of soft reboots is 0 where systemd does not say.
///
/// # Errors
/// The kernel's boot id cannot be read.
pub async fn mark(host: &Host) -> Result<BootMark, BootError> {
    let path = host.path("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(&path)
        .map_err(|source| BootError::Unreadable { path: path.display().to_string(), source })?;
    let id = BootId::parse(&text)?;
    let soft_reboots = match soft_reboots(host).await {
        Ok(count) => count,
        Err(error) => {
            tracing::warn!(error = error.text(), "soft reboots cannot be counted");
            0
        }
    };
    Ok(BootMark { id, soft_reboots })
}

async fn soft_reboots(host: &Host) -> Result<u32, BusError> {
    let link = host.bus.connect().await?;
    Systemd::new(&link).soft_reboots().await
}

/// What this boot says about the one before it. The stamp in /boot is deleted by the unit that reads
/// it, so that its result is looked at.
pub async fn evidence(host: &Host) -> BootEvidence {
    let mut retry = Retry::default();
    let began = Instant::now();
    let mut failed = finalize_failed(host).await;
    while failed.is_err() && began.elapsed() < EVIDENCE_PATIENCE {
        tokio::time::sleep(retry.failed()).await;
        failed = finalize_failed(host).await;
    }
    match failed {
        Ok(false) => BootEvidence::default(),
        Ok(true) => BootEvidence { finalize_failure: Some(failure_text(host).await) },
        Err(error) => {
            tracing::warn!(error = error.text(), "the result of the last finalization is unknown");
            BootEvidence::default()
        }
    }
}

async fn finalize_failed(host: &Host) -> Result<bool, BusError> {
    let link = host.bus.connect().await?;
    Ok(Systemd::new(&link).unit(BOOT_COMPLETE).await?.active == "failed")
}

async fn failure_text(host: &Host) -> String {
    let program = host.path("/usr/bin/journalctl");
    let arguments = ["--no-pager", "-q", "-u", BOOT_COMPLETE, "-b", "-o", "cat", "-n", "5"];
    let text = match command::run(&program, &arguments, JOURNAL_TIMEOUT).await {
        Ok(ended) if ended.status.success() => ended.output,
        Ok(_) | Err(_) => String::new(),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return format!("{BOOT_COMPLETE} failed; its journal says nothing");
    }
    line.chars().filter(|c| !c.is_control()).take(FAILURE_LENGTH).collect()
}

/// Whether the host has a unit in which a kubelet runs.
///
/// # Errors
/// systemd does not answer; then nobody may take the host for one without Kubernetes.
pub async fn kubelet_unit_exists(host: &Host) -> Result<bool, BusError> {
    let link = host.bus.connect().await?;
    let systemd = Systemd::new(&link);
    if !systemd.unit_files(&KUBELET_UNITS).await?.is_empty() {
        return Ok(true);
    }
    // A transient or generated unit has no file in the list.
    Ok(systemd.unit("kubelet.service").await?.load != "not-found")
}
