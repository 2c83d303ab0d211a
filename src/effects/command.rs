//! Programs that are run: with an end, with bounded output, and never left behind.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// How much of a program's output is kept. The rest is read and dropped, so that it never blocks.
pub const OUTPUT_LENGTH: usize = 4096;

/// How long output may trickle in after the program has ended (a child of its may hold the pipe).
const TRICKLE: Duration = Duration::from_millis(500);

/// What a program needs to find others; nothing else is handed on.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The start of its standard output.
    pub output: String,
    /// The start of its standard error.
    pub errors: String,
}

/// Why there is no exit status.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("{program} cannot be run")]
    Start {
        /// Which program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It did not end in time and was killed with all its children.
    #[error("{program} did not end within {} s", after.as_secs())]
    TimedOut {
        /// Which program.
        program: String,
        /// How long it was waited for.
        after: Duration,
    },
}

// === impl Ended ===

impl Ended {
    /// How it failed, for people; `None`: it succeeded.
    pub fn failure(&self) -> Option<String> {
        if self.status.success() {
            return None;
        }
        let last = last_line(&self.errors).or_else(|| last_line(&self.output));
        Some(match last {
            Some(line) => format!("{}: {line:?}", self.status),
            None => self.status.to_string(),
        })
    }
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(256).collect())
}

/// Kills a program and all its children when it is dropped, however its future ends.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            // ESRCH: none of them is left.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Runs a program with a fixed environment and without input, and waits until it has ended.
///
/// # Errors
/// It cannot be started, or did not end in time; then it and its children were killed.
pub async fn run(
    program: &Path,
    arguments: &[&str],
    within: Duration,
) -> Result<Ended, CommandError> {
    run_keeping(program, arguments, within, OUTPUT_LENGTH).await
}

/// As [`run`], and keeps this many bytes of each output.
///
/// # Errors
/// As [`run`].
pub async fn run_keeping(
    program: &Path,
    arguments: &[&str],
    within: Duration,
    length: usize,
) -> Result<Ended, CommandError> {
    let name = program.display().to_string();
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| CommandError::Start { program: name.clone(), source })?;
    let _group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    match tokio::time::timeout(within, wait(&mut child, length)).await {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(source)) => Err(CommandError::Start { program: name, source }),
        Err(_) => Err(CommandError::TimedOut { program: name, after: within }),
    }
}

async fn wait(child: &mut Child, length: usize) -> std::io::Result<Ended> {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut reading = Box::pin(async {
        tokio::join!(keep(stdout, &mut output, length), keep(stderr, &mut errors, length))
    });
    let mut read_all = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = &mut reading, if !read_all => read_all = true,
        }
    };
    if !read_all {
        // Whatever has not come by then is not waited for.
        let _ = tokio::time::timeout(TRICKLE, &mut reading).await;
    }
    drop(reading);
    Ok(Ended {
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
        errors: String::from_utf8_lossy(&errors).into_owned(),
    })
}

/// Reads to the end and keeps the start.
async fn keep(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, length: usize) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = [0u8; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        let room = length - kept.len();
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

#[cfg(test)]
mod noise;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn shell(script: &str, within: Duration) -> Result<Ended, CommandError> {
        run(Path::new("/bin/sh"), &["-c", script], within).await
    }

    #[tokio::test]
    async fn an_end_is_told_with_the_last_line() {
        let ended = shell("echo well", Duration::from_secs(20)).await.unwrap();
        assert_eq!((ended.failure(), ended.output.as_str()), (None, "well\n"));
        let ended = shell("echo one; echo two >&2; exit 3", Duration::from_secs(20)).await.unwrap();
        assert_eq!(ended.failure().unwrap(), "exit status: 3: \"two\"");
    }

    #[tokio::test]
    async fn a_flood_of_output_neither_blocks_nor_grows() {
        let script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 1";
        let ended = shell(script, Duration::from_secs(60)).await.unwrap();
        assert_eq!(ended.output.len(), OUTPUT_LENGTH);
        assert!(ended.failure().is_some());
    }

    #[tokio::test]
    async fn a_slow_one_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let error = shell(&script, Duration::from_secs(2)).await.unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh did not end within 2 s");
        let child: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        // It ends as soon as the kernel delivers the signal; a zombie of a foreign parent counts.
        for _ in 0..200 {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{child} still runs");
    }

    #[tokio::test]
    async fn a_child_that_holds_the_pipe_is_not_waited_for() {
        let ended = shell("sleep 600 & echo done", Duration::from_secs(30)).await.unwrap();
        assert_eq!(ended.output, "done\n");
    }
}
