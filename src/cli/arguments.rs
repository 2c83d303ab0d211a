//! What can be typed. The help is a golden file: tests/golden/help.txt.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

/// Reboots this node into its operating-system updates, in turn with the others.
///
/// An agent on each node waits for an update, asks for a reboot slot, drains the node, reboots it,
/// and gives the slot back once the node is well. `lockkeeper status` shows what it does now,
/// `lockkeeper why` what it waits for.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, verbatim_doc_comment, disable_help_subcommand = true)]
pub(super) struct Arguments {
    /// Folder that stands for / where the configuration is read
    #[arg(long, global = true, default_value = "/", value_name = "DIR", hide = true)]
    pub(super) root: PathBuf,
    /// Folder of the sockets [default: as configured, else /run/lockkeeper]
    #[arg(
        long,
        global = true,
        env = "LOCKKEEPER_RUN_DIR",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub(super) run_dir: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show what the agent of this node does, and what it waits for
    ///
    /// State, reason, since when, what comes next; the pods that hold a drain up and their
    /// disruption budgets; slot, attempt and update.
    #[command(verbatim_doc_comment)]
    Status {
        /// Print JSON in a versioned schema (one line for each change with --watch)
        #[arg(long)]
        json: bool,
        /// Stay, and follow the drain on one line
        #[arg(long)]
        watch: bool,
    },
    /// Explain what the agent waits for, what would end it and which command helps
    Why {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the last attempts: when, how long each stage took, how they ended
    History {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep this node as it is: no drain, no reboot, until you say `resume`
    ///
    /// An attempt that has drained the node but not rebooted it is given up. A node that is down
    /// stays down.
    #[command(verbatim_doc_comment)]
    Hold {
        /// Why, for those who read the status
        #[arg(required = true, value_name = "REASON")]
        reason: Vec<String>,
    },
    /// End a hold, or the halt after an update that fell back
    Resume,
    /// Try now: forget the pause, the number of tries and the denial of the update that waits
    Retry,
    /// Reboot this node without an update: slot, drain and proof as for one
    ///
    /// It is asked for until a boot fulfils it. Node annotation lockkeeper.dev/reboot asks for the same.
    #[command(verbatim_doc_comment)]
    Reboot {
        /// Why, for those who read the status
        #[arg(long, value_name = "TEXT", required_unless_present = "cancel")]
        reason: Option<String>,
        /// Take it back, as long as the node has not gone down
        #[arg(long, conflicts_with = "reason")]
        cancel: bool,
    },
    /// Check, show or print configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the configuration that does what another tool's does
    ///
    /// What has no equal here stands in it as a comment, with what to do instead. Nothing on this host
    /// is changed: look through it, put it into /etc/lockkeeper/config.d, and say `config check`.
    #[command(subcommand, verbatim_doc_comment)]
    Import(ImportCommand),
    /// See and free the slots of the coordinator that runs on this machine
    Slots {
        /// The coordinator's configuration, as it was given to it; it says where its socket is
        #[arg(long, global = true, value_name = "PATH")]
        config: Vec<PathBuf>,
        #[command(subcommand)]
        command: SlotsCommand,
    },
    /// Run the agent (systemd does: lockkeeper.service)
    Agent(Daemon),
    /// Run the coordinator, which hands out slots (systemd does: lockkeeper-coordinator.service)
    Coordinator {
        /// Configuration to use instead of the host's, a file or a folder; may be given again
        #[arg(long, value_name = "PATH")]
        config: Vec<PathBuf>,
        #[command(flatten)]
        daemon: Daemon,
    },
}

/// What both daemons take.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    /// How much to log
    #[arg(long, env = "LOCKKEEPER_LOG", hide_env_values = true, value_enum, default_value_t)]
    pub(super) log_level: LogLevel,
}

/// How much to log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    /// Only what somebody would be woken for
    Warn,
    /// Each stage and each reason to wait
    #[default]
    Info,
    /// What is asked and answered as well
    Debug,
    /// Everything
    Trace,
}

/// What to do with configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Find everything that is wrong with these files, or with the configuration of this host
    Check {
        /// Files or folders [default: the configuration of this host]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print each value and the file that it came from
    Show,
    /// Print a file with every key, its default and what it is for
    Default,
}

/// Whose configuration is translated.
#[derive(Debug, Subcommand)]
pub(super) enum ImportCommand {
    /// From the fragments of Zincati on this host
    Zincati,
    /// From the variables of locksmith on this host
    Locksmith {
        /// Files with variables, the stronger behind the weaker [default: update.conf of this host
        /// and the drop-ins of locksmithd.service]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// From a manifest with the DaemonSet of kured
    Kured {
        /// YAML or JSON, as of `helm template` or `kubectl get --output yaml`; - is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// From manifests with the operator and the agent of FLUO or CLUO
    Fluo {
        /// YAML or JSON, both in one file; - is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// What to do with slots.
#[derive(Debug, Subcommand)]
pub(super) enum SlotsCommand {
    /// List who holds which slot since when
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free a slot by hand: only if its node will not come back to free it itself
    Release {
        /// The group
        group: String,
        /// The id that holds the slot, or its node's name, as `slots list` prints them
        id: String,
        /// Do not ask whether it is meant
        #[arg(long)]
        yes: bool,
    },
}

// === impl LogLevel ===

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use clap::CommandFactory;

    use super::*;

    fn all_help(mut command: clap::Command, path: &str, out: &mut String) {
        let path = format!("{path} {}", command.get_name()).trim_start().to_owned();
        out.push_str(&format!("$ {path} --help\n{}\n", command.render_long_help()));
        for sub in command.get_subcommands() {
            all_help(sub.clone(), &path, out);
        }
    }

    /// What a new user reads. `UPDATE_EXPECT=1` writes it anew.
    #[test]
    fn help_is_the_golden_one() {
        let mut command = Arguments::command();
        command.build();
        let mut help = String::new();
        all_help(command, "", &mut help);
        expect_test::expect_file!["../../tests/golden/help.txt"].assert_eq(&help);
    }

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_use_is_told_apart_from_failure() {
        for wrong in [
            vec!["lockkeeper"],
            vec!["lockkeeper", "hold"],
            vec!["lockkeeper", "slots", "release", "workers"],
            vec!["lockkeeper", "agent", "--log-level", "loud"],
        ] {
            let error = Arguments::try_parse_from(&wrong).expect_err("wrong use");
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }
}
