//! The cycle on real parts: a real control plane and hosts that really reboot.
//!
//! `cargo test --test cycle [-- WORD...]` tells every story, or those whose name holds a WORD. It
//! needs root and brings a lab of three hosts up for the whole run (tests/lab); one that is up
//! already is used with the agent as it is built now, and left up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub, reason = "`pub` says what a room offers to the others")]

mod cluster;
mod host;
mod journal;
mod lab;
mod runner;
mod stories;
#[path = "../durability/trace.rs"]
mod trace;
mod world;

fn main() -> std::process::ExitCode {
    runner::run(stories::ALL)
}
