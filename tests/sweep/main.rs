//! Every stage of the cycle, hit by every fault, on real parts.
//!
//! `cargo test --test sweep [-- --full] [WORD...]` plays the cells of a table: a host is brought to
//! a stage and kept there, the fault hits it, and whatever it was, the same must be true in the end
//! (`check.rs`). Without `--full` each stage is hit once by SIGKILL and once by a power cut, and the
//! servers around are hit in mid-cycle. Words select cells by their names; `--list` prints those.
//! It needs root and the lab (tests/lab), as the stories of tests/cycle do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub, reason = "`pub` says what a room offers to the others")]

// What the stories have, too; they use the rest.
#[path = "../cycle/cluster.rs"]
#[allow(dead_code)]
mod cluster;
#[path = "../cycle/host.rs"]
#[allow(dead_code)]
mod host;
#[path = "../cycle/journal.rs"]
#[allow(dead_code)]
mod journal;
#[path = "../cycle/lab.rs"]
#[allow(dead_code)]
mod lab;
#[path = "../cycle/world.rs"]
#[allow(dead_code)]
mod world;

mod check;
mod fault;
mod gate;
mod place;
mod report;
mod runner;
mod station;
mod table;

fn main() -> std::process::ExitCode {
    runner::run()
}
