//! What transactions do, in the order and with the texts of the real daemon.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zbus::Connection;
use zbus::wire::OwnedVariant;

use crate::console;
use crate::faults::{Faults, Kind};
use crate::files;
use crate::paths::{OSNAME, Paths};
use crate::state::{self, Deployment, System};

/// Longest wait for logind.
const LOGIND_TIMEOUT: Duration = Duration::from_secs(20);

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Finalize(Options),
    Cleanup(Vec<String>),
    Rollback,
    Nothing,
}

/// Options of FinalizeDeployment; one of a wrong type counts as missing, as in the real one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) checksum: Option<String>,
    pub(crate) allow_missing_checksum: bool,
    pub(crate) allow_unlocked: bool,
    pub(crate) command_line: Option<String>,
}

/// How work ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Here,
    Reboot,
}

/// One entry of logind's list: what, who, why, mode, uid and pid.
type Inhibitor = (String, String, String, String, u32, u32);

// === impl Options ===

impl Options {
    pub(crate) fn read(mut given: HashMap<String, OwnedVariant>) -> Self {
        let mut text = |key: &str| given.remove(key).and_then(|value| String::try_from(value).ok());
        let checksum = text("checksum");
        let command_line = text("initiating-command-line");
        let mut flag = |key: &str| {
            given.remove(key).and_then(|value| bool::try_from(value).ok()).unwrap_or_default()
        };
        Self {
            checksum,
            allow_missing_checksum: flag("allow-missing-checksum"),
            allow_unlocked: flag("allow-unlocked"),
            command_line,
        }
    }
}

pub(crate) async fn run(
    paths: Paths,
    bus: Connection,
    work: Work,
    cancelled: Arc<AtomicBool>,
) -> Result<Done> {
    let began = tokio::time::Instant::now();
    while let Some(seconds) = Faults::load(&paths)?.seconds(Kind::SlowTransaction)
        && began.elapsed() < Duration::from_secs(seconds)
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match work {
        Work::Finalize(options) => {
            finalize(&paths, &bus, &options, &cancelled).await?;
            Ok(Done::Reboot)
        }
        Work::Cleanup(parts) => cleanup(&paths, &parts).map(|()| Done::Here),
        Work::Rollback => rollback(&paths).map(|()| Done::Here),
        Work::Nothing => Ok(Done::Here),
    }
}

async fn finalize(
    paths: &Paths,
    bus: &Connection,
    options: &Options,
    cancelled: &AtomicBool,
) -> Result<()> {
    let system = System::load(paths)?;
    let Some(staged) = &system.staged else {
        bail!("No pending staged deployment found");
    };
    let target = &staged.target;
    if target.osname != OSNAME {
        bail!("Staged deployment is not for osname '{OSNAME}'");
    }
    let old = Faults::load(paths)?.is_on(Kind::OldReference);
    let found = if old { target.base_checksum() } else { target.reference() };
    match &options.checksum {
        None if !options.allow_missing_checksum => bail!("Missing expected checksum"),
        Some(expected) if expected != found => {
            bail!("Expected staged base checksum {expected}, but found {found}")
        }
        None | Some(_) => {}
    }
    check_inhibitors(bus, cancelled).await?;
    // Somebody may have changed the lock during the call.
    let Some(staged) = System::load(paths)?.staged else {
        bail!("No pending staged deployment found");
    };
    if staged.locked {
        state::set_lock(paths, false)?;
    } else if !options.allow_unlocked {
        bail!("Staged deployment already unlocked");
    }
    files::bump(paths)?;
    console::note(&format!("Finalized deployment; rebooting into {found}"));
    Ok(())
}

/// Any inhibitor of shutdown in mode `block` stops the reboot, whoever holds it.
async fn check_inhibitors(bus: &Connection, cancelled: &AtomicBool) -> Result<()> {
    if cancelled.load(Ordering::Relaxed) {
        bail!("Checking systemd inhibitor locks: Operation was cancelled");
    }
    let call = bus.call_method(
        Some("org.freedesktop.login1"),
        "/org/freedesktop/login1",
        Some("org.freedesktop.login1.Manager"),
        "ListInhibitors",
        &(),
    );
    let reply = match tokio::time::timeout(LOGIND_TIMEOUT, call).await {
        Ok(Ok(reply)) => reply,
        // A bus without logind: a test, or a host that is still small.
        Ok(Err(zbus::Error::FDO(error)))
            if matches!(
                *error,
                zbus::fdo::Error::ServiceUnknown(_) | zbus::fdo::Error::NameHasNoOwner(_)
            ) =>
        {
            return Ok(());
        }
        // The text of a bus error has its cause in it already.
        Ok(Err(error)) => bail!("Checking systemd inhibitor locks: {error}"),
        Err(_) => bail!("Checking systemd inhibitor locks: Timeout was reached"),
    };
    let all: Vec<Inhibitor> =
        reply.body().deserialize().context("Checking systemd inhibitor locks")?;
    let blocking: Vec<_> = all
        .iter()
        .filter(|(what, _, _, mode, ..)| what.contains("shutdown") && mode == "block")
        .collect();
    let Some((_, who, why, ..)) = blocking.first() else {
        return Ok(());
    };
    let mut text = format!(
        "Reboot blocked by a systemd inhibitor lock in `block` mode\nHeld by: {who}\nReason: {why}"
    );
    if blocking.len() > 1 {
        text.push_str(&format!(
            "\nand {} other blocking inhibitor lock(s)\nUse `systemd-inhibit --list` to see details",
            blocking.len() - 1
        ));
    }
    bail!("{text}")
}

fn cleanup(paths: &Paths, parts: &[String]) -> Result<()> {
    let system = System::load(paths)?;
    let booted = system.deployments.iter().position(|each| system.is_booted(each));
    let (pending, rollback) = (
        parts.iter().any(|part| part == "pending-deploy"),
        parts.iter().any(|p| p == "rollback-deploy"),
    );
    if pending {
        files::remove(&paths.staged())?;
    }
    let kept: Vec<Deployment> = system
        .deployments
        .iter()
        .enumerate()
        .filter(|(index, each)| {
            let before = booted.is_some_and(|booted| *index < booted);
            let after = booted.is_some_and(|booted| *index > booted);
            each.pinned || !((pending && before) || (rollback && after))
        })
        .map(|(_, each)| each.clone())
        .collect();
    state::write_deployments(paths, &kept)
}

fn rollback(paths: &Paths) -> Result<()> {
    let mut system = System::load(paths)?;
    if system.deployments.len() < 2 {
        bail!("Found {} deployments, at least 2 required for rollback", system.deployments.len());
    }
    files::remove(&paths.staged())?;
    system.deployments.swap(0, 1);
    state::write_deployments(paths, &system.deployments)
}
