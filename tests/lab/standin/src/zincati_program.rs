//! `zincati`: the agent as a program of the host, with its commands behind it.

use std::process::Output;

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::Value;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::console;
use crate::paths::Paths;
use crate::zincati::config;
use crate::zincati::machine::{Fault, Host, Killed, Machine};

/// Stand-in for Zincati: stages nothing, and finalizes what lies staged
#[derive(Debug, Parser)]
#[command(name = "zincati")]
pub(crate) struct Arguments {
    /// How many times faster than the real one its clock runs: rests and timeouts
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = speed)]
    speed: f64,
    /// What goes wrong; may be given more than once
    #[arg(long = "fault", value_name = "KIND")]
    faults: Vec<Fault>,
}

/// The host by its commands, as Zincati calls them.
#[derive(Debug)]
struct Commands;

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    (0.001..=1e6).contains(&speed).then_some(speed).ok_or("expected 0.001 to 1000000".to_owned())
}

/// Runs until it is told to stop; nothing is given back then.
pub(crate) async fn run(paths: &Paths, arguments: &Arguments) -> Result<()> {
    let config = config::load(paths.root())?;
    let tell = |line: &str| {
        console::note(line);
        if let Some(state) = line.strip_prefix("state: ") {
            console::notify(&format!("READY=1\nSTATUS={state}"));
        }
    };
    let mut machine = Machine::new(config, Commands, arguments.speed, &arguments.faults, tell)?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        Killed = machine.run() => {
            console::note("killed, as it was told to be");
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
            bail!("SIGKILL did not end it")
        }
        _ = terminate.recv() => {
            console::notify("STOPPING=1");
            Ok(())
        }
    }
}

impl Host for Commands {
    async fn staged(&mut self) -> Result<Option<String>, String> {
        let output = output("rpm-ostree", &["status", "--json"]).await?;
        let status: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        let deployments = status["deployments"].as_array();
        let staged = deployments.into_iter().flatten().find(|each| each["staged"] == true);
        Ok(staged.and_then(|staged| {
            let keys = ["container-image-reference-digest", "base-checksum", "checksum"];
            keys.iter().find_map(|key| staged[key].as_str()).map(str::to_owned)
        }))
    }

    /// If it cannot be found out, nobody is.
    async fn has_users(&mut self) -> bool {
        let Ok(output) = output("loginctl", &["list-sessions", "--json=short"]).await else {
            return false;
        };
        let sessions: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let sessions = sessions.as_array();
        sessions.into_iter().flatten().any(|session| session["tty"].is_string())
    }

    async fn finalize(&mut self, release: &str) -> Result<(), String> {
        output("rpm-ostree", &["finalize-deployment", release]).await.map(|_| ())
    }
}

async fn output(command: &str, arguments: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(command);
    command.args(arguments).env("RPMOSTREE_CLIENT_ID", "zincati").kill_on_drop(true);
    let output = command.output().await.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output);
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
