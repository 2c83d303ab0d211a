//! The part of the `ostree` command that an agent and its people use.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use crate::boot;
use crate::console::say;
use crate::files;
use crate::finalize;
use crate::paths::Paths;
use crate::stage;
use crate::state::{self, Origin, System};

/// Stand-in for ostree
#[derive(Debug, Parser)]
#[command(name = "ostree")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Commands for the host system
    #[command(subcommand)]
    Admin(Admin),
}

#[derive(Debug, Subcommand)]
enum Admin {
    /// List deployments
    Status {
        #[arg(long)]
        json: bool,
        /// Say whether the booted deployment is the default
        #[arg(short = 'D', long)]
        is_default: bool,
    },
    /// Change the finalization locking state of the staged deployment
    LockFinalization {
        #[arg(short, long)]
        unlock: bool,
    },
    /// Internal: finalize the staged deployment at shutdown
    FinalizeStaged,
    /// Delete the deployment INDEX
    Undeploy { index: usize },
    /// Internal: end of the boot
    BootComplete,
    /// Pin the deployment INDEX, or unpin it
    Pin {
        index: usize,
        #[arg(short, long)]
        unpin: bool,
    },
    /// Prepare the deployment INDEX for a soft reboot (no root is mounted here)
    PrepareSoftReboot {
        index: Option<usize>,
        #[arg(long)]
        reset: bool,
    },
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<()> {
    let Command::Admin(command) = &arguments.command;
    match command {
        Admin::Status { json, is_default } => status(paths, *json, *is_default),
        Admin::LockFinalization { unlock } => {
            let _lock = files::lock(paths)?;
            let changed = state::set_lock(paths, !unlock)?;
            say(match (changed, unlock) {
                (true, true) => "Staged deployment is now unlocked",
                (true, false) => "Staged deployment is now locked",
                (false, true) => "Staged deployment is already prepared for finalization",
                (false, false) => "Staged deployment is already locked",
            });
            Ok(())
        }
        Admin::FinalizeStaged => finalize::finalize_staged(paths),
        Admin::Undeploy { index } => {
            let gone = stage::undeploy(paths, *index)?;
            say(&format!("Deleted deployment {}.{}", gone.checksum, gone.serial));
            Ok(())
        }
        Admin::BootComplete => boot::complete(paths),
        Admin::Pin { index, unpin } => pin(paths, *index, !unpin),
        Admin::PrepareSoftReboot { index, reset } => prepare(paths, *index, *reset),
    }
}

fn status(paths: &Paths, json: bool, is_default: bool) -> Result<()> {
    let system = System::load(paths)?;
    if is_default {
        let first = system.deployments.first();
        let default = first.is_some_and(|first| system.is_booted(first));
        say(if default { "default" } else { "not-default" });
        return Ok(());
    }
    let rows = rows(&system);
    if json {
        say(&serde_json::to_string_pretty(&json!({ "deployments": rows }))?);
        return Ok(());
    }
    for (deployment, row) in system.all().into_iter().zip(&rows) {
        let star = if system.is_booted(deployment) { '*' } else { ' ' };
        let mut notes = String::new();
        for key in ["staged", "pending", "rollback", "pinned", "finalization-locked"] {
            if row.get(key) == Some(&Value::Bool(true)) {
                notes.push_str(&format!(" ({key})"));
            }
        }
        say(&format!(
            "{star} {} {}.{}{notes}\n    Version: {}",
            deployment.osname, deployment.checksum, deployment.serial, deployment.version
        ));
    }
    Ok(())
}

/// The JSON of `ostree admin status`, where the lock is told truly.
fn rows(system: &System) -> Vec<Value> {
    let all = system.all();
    let booted = all.iter().position(|each| system.is_booted(each));
    let locked = system.staged.as_ref().is_some_and(|staged| staged.locked);
    all.iter()
        .enumerate()
        .map(|(index, each)| {
            let staged = system.is_staged(each);
            let refspec = match &each.origin {
                Origin::Branch { refspec } => json!(refspec),
                Origin::Container { .. } => Value::Null,
            };
            json!({
                "checksum": each.checksum,
                "stateroot": each.osname,
                "refspec": refspec,
                "serial": each.serial,
                "index": index,
                "booted": system.is_booted(each),
                "pending": booted.is_some_and(|booted| index < booted),
                "rollback": system.rollback() == Some(*each),
                "finalization-locked": staged && locked,
                "soft-reboot-target": false,
                "staged": staged,
                "pinned": each.pinned,
                "unlocked": "none",
                "version": each.version,
                "source-title": Value::Null,
            })
        })
        .collect()
}

fn pin(paths: &Paths, index: usize, pinned: bool) -> Result<()> {
    let _lock = files::lock(paths)?;
    let mut system = System::load(paths)?;
    let staged = usize::from(system.staged.is_some());
    let Some(deployment) =
        index.checked_sub(staged).and_then(|index| system.deployments.get_mut(index))
    else {
        bail!("Cannot pin deployment {index}");
    };
    deployment.pinned = pinned;
    state::write_deployments(paths, &system.deployments)
}

fn prepare(paths: &Paths, index: Option<usize>, reset: bool) -> Result<()> {
    let _lock = files::lock(paths)?;
    if reset {
        files::remove(&paths.next_root())?;
        return Ok(());
    }
    let system = System::load(paths)?;
    let Some(target) = index.and_then(|index| system.all().get(index).copied()) else {
        bail!("Out of range deployment index, expected < {}", system.all().len());
    };
    if system.is_staged(target) {
        // Preparing finalizes a staged deployment, so that there is a root to switch to.
        state::set_lock(paths, false)?;
        finalize::finalize_staged_locked(paths)?;
    } else {
        files::remove(&paths.staged())?;
    }
    files::write(&paths.next_root(), target.id().as_bytes())
}
