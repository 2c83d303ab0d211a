//! The door.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper::cli::run(std::env::args_os())
}
