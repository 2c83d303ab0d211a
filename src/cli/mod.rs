//! The front desk: what a person types, and what the person gets to read.

mod arguments;
pub mod config;
pub mod coordinator;
mod history;
mod import;
mod people;
pub mod slots;
mod status;
mod watch;
mod words;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::signals::unix::{UnixSignal, UnixSignals};
use crate::telemetry;

use arguments::{Arguments, Command, ConfigCommand, Daemon, SlotsCommand};

/// Where the sockets are if neither the caller nor the configuration says otherwise.
const RUN_DIR: &str = "/run/lockkeeper";

/// How long calls that block may still take once all is done.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Runs the program with these arguments, its name first. 0: done, 1: failed, 2: used wrongly.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(usage) => {
            // Nobody to tell if this fails too.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let prints = !matches!(arguments.command, Command::Agent(_) | Command::Coordinator { .. });
    match desk(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // `lockkeeper history | head` has read what it wanted.
        Err(error) if prints && is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Several errors are several lines, each of which says whose it is.
            for line in format!("{error:#}").lines() {
                let _ = writeln!(io::stderr(), "lockkeeper: {}", words::clean(line));
            }
            ExitCode::FAILURE
        }
    }
}

fn desk(arguments: Arguments) -> anyhow::Result<()> {
    // One thread is enough for a program that waits most of its life.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let done = serve(&runtime, arguments, &mut io::stdout().lock());
    // A call into a disk that hangs must not keep a process that was told to stop.
    runtime.shutdown_timeout(STOP_WITHIN);
    done
}

/// Does what was asked for, to its end.
fn serve(runtime: &Runtime, arguments: Arguments, out: &mut dyn Write) -> anyhow::Result<()> {
    let Arguments { root, run_dir, command } = arguments;
    match command {
        Command::Agent(daemon) => runtime.block_on(agent(root, daemon)),
        Command::Coordinator { config, daemon } => {
            runtime.block_on(coordinator(root, config, daemon))
        }
        Command::Status { json, watch: false } => {
            runtime.block_on(people::status(&run_dir_or(run_dir, &root), json, out))
        }
        Command::Status { json, watch: true } => {
            runtime.block_on(watch::watch(&run_dir_or(run_dir, &root), json, out))
        }
        Command::Why { json } => {
            runtime.block_on(people::why(&run_dir_or(run_dir, &root), json, out))
        }
        Command::History { json } => {
            runtime.block_on(people::history(&run_dir_or(run_dir, &root), json, out))
        }
        Command::Hold { reason } => {
            runtime.block_on(people::hold(&run_dir_or(run_dir, &root), &reason.join(" "), out))
        }
        Command::Resume => runtime.block_on(people::resume(&run_dir_or(run_dir, &root), out)),
        Command::Retry => runtime.block_on(people::retry(&run_dir_or(run_dir, &root), out)),
        Command::Reboot { cancel: true, .. } => {
            runtime.block_on(people::cancel_reboot(&run_dir_or(run_dir, &root), out))
        }
        Command::Reboot { reason, cancel: false } => {
            let run_dir = run_dir_or(run_dir, &root);
            runtime.block_on(people::reboot(&run_dir, &reason.unwrap_or_default(), out))
        }
        Command::Config(command) => configuration(&root, command, out),
        Command::Import(command) => {
            let text = import::import(&root, &command, &mut io::stdin().lock())?;
            Ok(out.write_all(text.as_bytes())?)
        }
        Command::Slots { config, command } => {
            let run_dir = if config.is_empty() {
                coordinator_run_dir_or(run_dir, &root)
            } else {
                crate::config::load_files(&config)?.settings.coordinator.run_dir
            };
            runtime.block_on(slots(&run_dir, command, out))
        }
    }
}

async fn agent(root: PathBuf, daemon: Daemon) -> anyhow::Result<()> {
    let uid = nix::unistd::geteuid();
    anyhow::ensure!(
        uid.is_root(),
        "the agent must run as root, you are uid {uid}; systemd starts it: \
         `systemctl start lockkeeper`"
    );
    prepare(&daemon)?;
    Box::pin(crate::agent::run(root)).await
}

async fn coordinator(root: PathBuf, files: Vec<PathBuf>, daemon: Daemon) -> anyhow::Result<()> {
    prepare(&daemon)?;
    let loaded = if files.is_empty() {
        crate::config::load(&root)?
    } else {
        crate::config::load_files(&files)?
    };
    let mut signals = UnixSignals::new().context("cannot listen to signals")?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let told = async move {
        loop {
            match signals.next().await {
                UnixSignal::Stop => stop.cancel(),
                UnixSignal::Abort => anyhow::bail!("told twice to stop"),
                UnixSignal::Reload => {
                    tracing::warn!("the coordinator takes a new configuration at its next start");
                }
            }
        }
    };
    tokio::select! {
        ended = Box::pin(coordinator::run(loaded.settings.coordinator, shutdown)) => ended,
        aborted = told => aborted,
    }
}

/// What both daemons need before they begin.
fn prepare(daemon: &Daemon) -> anyhow::Result<()> {
    telemetry::init(telemetry::stderr_is_journal(), daemon.log_level.into())?;
    // Fails only where one is installed already, and there is only this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(())
}

fn configuration(root: &Path, command: ConfigCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check { files } => Ok(config::check(root, &files, out)?),
        ConfigCommand::Show => Ok(config::show(root, crate::signals::clock::now().wall, out)?),
        ConfigCommand::Default => Ok(config::default(out)?),
    }
}

async fn slots(run_dir: &Path, command: SlotsCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        SlotsCommand::List { json } => write!(out, "{}", slots::list(run_dir, json).await?)?,
        SlotsCommand::Release { group, id, yes } => {
            let ask = |text: &str| {
                if yes {
                    return Ok(true);
                }
                slots::ask_yes_or_no(text, &mut io::stdin().lock(), &mut io::stderr())
            };
            writeln!(out, "{}", slots::release(run_dir, &group, &id, ask).await?)?;
        }
    }
    Ok(())
}

/// A configuration that cannot be read must not keep a person from the status: then the usual
/// folder is tried.
fn run_dir_or(run_dir: Option<PathBuf>, root: &Path) -> PathBuf {
    let configured = || Some(crate::config::load(root).ok()?.settings.agent.run_dir);
    run_dir.or_else(configured).unwrap_or_else(|| PathBuf::from(RUN_DIR))
}

fn coordinator_run_dir_or(run_dir: Option<PathBuf>, root: &Path) -> PathBuf {
    let configured = || Some(crate::config::load(root).ok()?.settings.coordinator.run_dir);
    run_dir.or_else(configured).unwrap_or_else(|| PathBuf::from(RUN_DIR))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // Only our own writing fails with the bare error; a socket's has a room's error around it.
    error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
}
