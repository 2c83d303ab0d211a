//! A stand-in for rpm-ostreed, ostree and Zincati, for hosts of the lab and for tests of the agent.
//!
//! One binary that acts by the name it is called with: `rpm-ostree`, `ostree`, `rpm-ostreed`,
//! `zincati` or `standin`; the first argument of `standin` may be one of these names, too. Everything lies
//! below one root, `/` or what `--root DIR` in front or `STANDIN_ROOT` says.

mod admin;
mod boot;
mod console;
mod daemon;
mod dictionary;
mod faults;
mod files;
mod finalize;
mod image;
mod journal;
mod ostree;
mod paths;
mod rpm_ostree;
mod stage;
mod state;
mod zincati;
mod zincati_program;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use paths::Paths;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            console::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let mut root = std::env::var_os("STANDIN_ROOT").unwrap_or_else(|| "/".into());
    if arguments.get(1).is_some_and(|first| first == "--root") {
        root = arguments.get(2).context("--root: expected a folder")?.clone();
        arguments.drain(1..3);
    }
    let paths = Paths::new(root);
    let mut name = called(arguments.first());
    if name == "standin"
        && let Some(role) = arguments.get(1).and_then(|role| role.to_str())
        && matches!(role, "ostree" | "rpm-ostree" | "rpm-ostreed" | "zincati")
    {
        name = role.to_owned();
        arguments.remove(0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match name.as_str() {
        "rpm-ostreed" => runtime.block_on(daemon::run(paths))?,
        "ostree" => match ostree::Arguments::try_parse_from(&arguments) {
            Ok(arguments) => ostree::run(&paths, &arguments)?,
            Err(error) => return usage(&error),
        },
        "rpm-ostree" => match rpm_ostree::Arguments::try_parse_from(&arguments) {
            Ok(arguments) => runtime.block_on(rpm_ostree::run(&paths, &arguments))?,
            Err(error) => return usage(&error),
        },
        "zincati" => match zincati_program::Arguments::try_parse_from(&arguments) {
            Ok(arguments) => runtime.block_on(zincati_program::run(&paths, &arguments))?,
            Err(error) => return usage(&error),
        },
        _ => match admin::Arguments::try_parse_from(&arguments) {
            Ok(arguments) => admin::run(&paths, &arguments)?,
            Err(error) => return usage(&error),
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// The last part of what we were called.
fn called(first: Option<&OsString>) -> String {
    first
        .and_then(|first| Path::new(first).file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn usage(error: &clap::Error) -> Result<ExitCode> {
    error.print()?;
    Ok(if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}
