//! `standin`: what the lab and its people do to the stand-in.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde_json::json;

use crate::boot;
use crate::console::{self, say};
use crate::faults::{Faults, Kind, Setting};
use crate::files;
use crate::image;
use crate::paths::Paths;
use crate::stage::{self, Request};
use crate::state::{self, System};

/// The unit that fails while the booted deployment makes the node unwell.
const HEALTH_UNIT: &str = "standin-health.service";

/// Plays rpm-ostreed and ostree in the lab's hosts
#[derive(Debug, Parser)]
#[command(name = "standin")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the first deployment of a fresh root
    Init {
        version: String,
        #[command(flatten)]
        kind: KindArguments,
    },
    /// Stage VERSION in place of what is staged
    Stage {
        version: String,
        /// KIND or KIND=SECONDS, for this version; may be given more than once
        #[arg(long = "fault", value_name = "KIND")]
        faults: Vec<Setting>,
        #[command(flatten)]
        kind: KindArguments,
        /// Not finalized at a plain reboot (the default)
        #[arg(long)]
        locked: bool,
        /// Finalized at any clean reboot
        #[arg(long, conflicts_with = "locked")]
        unlocked: bool,
        /// Leave the lock file of older versions, too
        #[arg(long)]
        legacy_lock: bool,
    },
    /// Drop the staged deployment
    Unstage,
    /// What is installed, staged and booted, and which faults are on
    Status {
        #[arg(long)]
        json: bool,
    },
    /// Switch faults
    #[command(subcommand)]
    Fault(FaultCommand),
    /// Internal, early at boot: choose the deployment of this boot
    BootSelect,
    /// Internal, at boot: make true what faults do to a running system
    ApplyFaults,
    /// Internal: fail while the node is unwell
    HealthCheck,
}

#[derive(Debug, clap::Args)]
struct KindArguments {
    /// From a container image (the default)
    #[arg(long)]
    container: bool,
    /// From a branch of a remote, so that a commit is all there is
    #[arg(long, visible_alias = "commit", conflicts_with = "container")]
    branch: bool,
    /// With a package layered on top
    #[arg(long)]
    layered: bool,
}

#[derive(Debug, Subcommand)]
enum FaultCommand {
    /// Switch on; what is about a deployment binds to the next finalized one
    Set { kinds: Vec<Setting> },
    /// Switch off the given ones, or all
    Clear { kinds: Vec<Setting> },
    /// Show what is on
    List,
}

// === impl KindArguments ===

impl KindArguments {
    fn kind(&self) -> image::Kind {
        image::Kind { container: !self.branch, layered: self.layered }
    }
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Init { version, kind } => {
            if paths.deployments().exists() {
                bail!("{}: there already are deployments", paths.deployments().display());
            }
            let first = image::deployment(version, kind.kind(), &[])?;
            files::write_json(&paths.deployments(), &[&first])?;
            say(&first.id());
            Ok(())
        }
        Command::Stage { version, faults, kind, locked: _, unlocked, legacy_lock } => {
            let kind = kind.kind();
            let target =
                stage::stage(paths, &Request { version, kind, locked: !unlocked, faults })?;
            if *legacy_lock {
                files::write(&paths.legacy_lock(), b"")?;
            }
            say(&format!("staged {} {}", target.version, target.reference()));
            Ok(())
        }
        Command::Unstage => {
            say(if stage::unstage(paths)? { "unstaged" } else { "nothing was staged" });
            Ok(())
        }
        Command::Status { json } => status(paths, *json),
        Command::Fault(command) => fault(paths, command),
        Command::BootSelect => {
            let chosen = boot::select(paths)?;
            say(&format!("booted {} {}", chosen.version, chosen.id()));
            Ok(())
        }
        Command::ApplyFaults => boot::apply_faults(paths),
        Command::HealthCheck => boot::health(paths),
    }
}

fn fault(paths: &Paths, command: &FaultCommand) -> Result<()> {
    let mut faults = Faults::load(paths)?;
    let cleared_health = match command {
        FaultCommand::List => {
            faults.lines().iter().for_each(|line| say(line));
            return Ok(());
        }
        FaultCommand::Set { kinds } => {
            for setting in kinds {
                faults.set(setting, None);
            }
            false
        }
        FaultCommand::Clear { kinds } => {
            let was = faults.is_on(Kind::Unhealthy) || paths.unhealthy().exists();
            if kinds.is_empty() {
                faults = Faults::default();
            }
            for setting in kinds {
                faults.clear(setting.kind);
            }
            was && !faults.is_on(Kind::Unhealthy)
        }
    };
    faults.save(paths)?;
    boot::apply_faults(paths)?;
    if cleared_health && files::remove(&paths.unhealthy())? {
        console::systemctl(&["restart", HEALTH_UNIT]).context("making the node well again")?;
    }
    // The daemon shows wrong types at once only if somebody makes it look.
    files::bump(paths)
}

fn status(paths: &Paths, json: bool) -> Result<()> {
    let system = System::load(paths)?;
    let faults = Faults::load(paths)?;
    let rows: Vec<_> = system
        .all()
        .into_iter()
        .map(|each| {
            let staged = system.is_staged(each);
            json!({
                "id": each.id(),
                "version": each.version,
                "checksum": each.checksum,
                "base-checksum": each.base_checksum(),
                "reference": each.reference(),
                "booted": system.is_booted(each),
                "staged": staged,
                "locked": staged && system.staged.as_ref().is_some_and(|staged| staged.locked),
            })
        })
        .collect();
    if json {
        let whole = json!({
            "deployments": rows,
            "faults": faults.lines(),
            "boot-id": state::boot_id(&paths.boot_id())?,
            "unhealthy": paths.unhealthy().exists(),
        });
        say(&serde_json::to_string_pretty(&whole)?);
        return Ok(());
    }
    for each in system.all() {
        let mut notes = Vec::new();
        if system.is_booted(each) {
            notes.push("booted");
        }
        if system.is_staged(each) {
            let locked = system.staged.as_ref().is_some_and(|staged| staged.locked);
            notes.push(if locked { "staged, locked" } else { "staged, unlocked" });
        }
        say(&format!("{} {} {}", each.version, each.reference(), notes.join(", ")));
    }
    for line in faults.lines() {
        say(&format!("fault {line}"));
    }
    Ok(())
}
