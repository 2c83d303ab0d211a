//! /etc/rpm-ostreed.conf.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::paths::Paths;

/// As the real default.
const IDLE_EXIT_SECONDS: u64 = 60;
/// The real daemon adds up to so many seconds at random.
const IDLE_EXIT_SPREAD_SECONDS: u64 = 5;

/// The value of `key` in `[Daemon]`.
pub(crate) fn value(text: &str, key: &str) -> Option<String> {
    let mut here = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            here = line == "[Daemon]";
        } else if here
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

fn read(paths: &Paths) -> Result<String> {
    match fs::read_to_string(paths.daemon_config()) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).context("reading rpm-ostreed.conf"),
    }
}

/// How long to stay when idle; `None` is for ever.
pub(crate) fn idle_exit(paths: &Paths) -> Result<Option<Duration>> {
    let seconds = match value(&read(paths)?, "IdleExitTimeout") {
        Some(text) => text
            .parse()
            .with_context(|| format!("IdleExitTimeout: expected seconds, found {text:?}"))?,
        None => IDLE_EXIT_SECONDS,
    };
    // The process id is random enough to keep hosts apart.
    let spread = u64::from(std::process::id()) % IDLE_EXIT_SPREAD_SECONDS;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds + spread)))
}

/// The policy shown on the bus.
pub(crate) fn automatic_update_policy(paths: &Paths) -> Result<String> {
    let policy = value(&read(paths)?, "AutomaticUpdatePolicy");
    Ok(policy.unwrap_or_else(|| "none".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn only_the_daemon_section_counts() {
        let text =
            "[Other]\nIdleExitTimeout=1\n[Daemon]\n#IdleExitTimeout=2\nIdleExitTimeout = 3\n";
        assert_eq!(value(text, "IdleExitTimeout").as_deref(), Some("3"));
        assert_eq!(value("", "IdleExitTimeout"), None);
    }
}
