//! The part of the `rpm-ostree` command that an agent and its people use.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use futures::StreamExt;
use serde_json::{Value, json};
use zbus::wire::Variant;
use zbus::{Connection, MessageStream};

use crate::console::say;
use crate::daemon;
use crate::dictionary;
use crate::paths::Paths;
use crate::state::System;

/// The real client waits as long for the daemon to come up.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// Stand-in for rpm-ostree
#[derive(Debug, Parser)]
#[command(name = "rpm-ostree")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get the version of the booted system
    Status {
        #[arg(long)]
        json: bool,
        /// Only the booted deployment
        #[arg(short, long)]
        booted: bool,
    },
    /// Unset the finalization locking state of the staged deployment and reboot
    FinalizeDeployment {
        checksum: Option<String>,
        #[arg(long)]
        allow_unlocked: bool,
        #[arg(long)]
        allow_missing_checksum: bool,
    },
    /// Internal: run the daemon
    StartDaemon,
}

pub(crate) async fn run(paths: &Paths, arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Command::Status { json, booted } => status(paths, *json, *booted),
        Command::FinalizeDeployment { checksum, allow_unlocked, allow_missing_checksum } => {
            let mut options = HashMap::from([
                ("allow-unlocked", Variant::from(*allow_unlocked)),
                ("allow-missing-checksum", Variant::from(*allow_missing_checksum)),
                ("initiating-command-line", Variant::from("rpm-ostree finalize-deployment")),
            ]);
            if let Some(checksum) = checksum {
                options.insert("checksum", Variant::from(checksum.clone()));
            }
            finalize(&options).await
        }
        Command::StartDaemon => daemon::run(paths.clone()).await,
    }
}

/// Read from the files and not from the daemon, so that it also works while that misbehaves.
fn status(paths: &Paths, json: bool, booted: bool) -> Result<()> {
    let system = System::load(paths)?;
    let shown: Vec<_> =
        system.all().into_iter().filter(|each| !booted || system.is_booted(each)).collect();
    if json {
        let tables: Vec<Value> = shown
            .iter()
            .map(|each| dictionary::table_to_json(&dictionary::of_deployment(&system, each)))
            .collect();
        let whole = json!({
            "deployments": tables,
            "transaction": Value::Null,
            "cached-update": Value::Null,
            "update-driver": Value::Null,
        });
        say(&serde_json::to_string_pretty(&whole)?);
        return Ok(());
    }
    say("State: idle\nDeployments:");
    for each in shown {
        let mark = if system.is_booted(each) { '*' } else { ' ' };
        let staged = if system.is_staged(each) { " (staged)" } else { "" };
        say(&format!("{mark} {}{staged}", each.reference()));
        say(&format!("                   Version: {}", each.version));
        say(&format!("                    Commit: {}", each.checksum));
    }
    Ok(())
}

async fn finalize(options: &HashMap<&str, Variant<'_>>) -> Result<()> {
    let bus = zbus::connection::Builder::system().method_timeout(CLIENT_TIMEOUT).build().await?;
    let name = Some(daemon::NAME);
    let sysroot = "/org/projectatomic/rpmostree1/Sysroot";
    let interface = "org.projectatomic.rpmostree1.Sysroot";
    let reply = bus.call_method(name, sysroot, Some(interface), "GetOS", &"").await?;
    let path: zbus::wire::OwnedObjectPath = reply.body().deserialize()?;
    let interface = "org.projectatomic.rpmostree1.OS";
    let reply =
        bus.call_method(name, &path, Some(interface), "FinalizeDeployment", options).await?;
    let address: String = reply.body().deserialize()?;
    let peer: Connection =
        zbus::connection::Builder::address(address.as_str()).p2p().build().await?;
    let mut messages = MessageStream::from(&peer);
    let transaction = "org.projectatomic.rpmostree1.Transaction";
    let nobody = None::<zbus::names::BusName<'_>>;
    peer.call_method(nobody, "/", Some(transaction), "Start", &()).await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        if message.header().member().is_some_and(|member| member == "Finished") {
            let (success, text): (bool, String) = message.body().deserialize()?;
            if !success {
                bail!("{text}");
            }
            return Ok(());
        }
    }
    None.context("the transaction ended without an answer")
}
