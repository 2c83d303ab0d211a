//! What a host's journal says of the agent, read from the host's disk: also while it is off, and over
//! reboots, at which a journalctl that follows loses the thread.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// An entry of the agent.
#[derive(Debug, Clone)]
pub struct Entry {
    /// All its fields.
    fields: Value,
}

// === impl Entry ===

impl Entry {
    /// A field; empty when it is not there.
    pub fn field(&self, name: &str) -> &str {
        self.fields[name].as_str().unwrap_or_default()
    }

    /// `LOCKKEEPER_FROM`, `_TO`, ... by the end of their name.
    pub fn told(&self, name: &str) -> &str {
        self.fields[format!("LOCKKEEPER_{name}")].as_str().unwrap_or_default()
    }

    /// Whether it tells of a change of stage.
    pub fn is_transition(&self) -> bool {
        !self.told("TO").is_empty()
    }

    /// Microseconds since the epoch.
    pub fn at(&self) -> u64 {
        self.field("__REALTIME_TIMESTAMP").parse().unwrap_or_default()
    }

    /// For a person.
    pub fn line(&self) -> String {
        let (seconds, rest) = (self.at() / 1_000_000, self.at() / 100_000 % 10);
        let clock = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let mut line = format!("{:02}:{:02}:{:02}.{rest}", clock.0, clock.1, clock.2);
        line.push_str(&format!(" <{}> {}", self.field("PRIORITY"), self.field("MESSAGE")));
        for name in ["ERROR", "ERRORS", "BECAUSE"] {
            if !self.field(name).is_empty() {
                line.push_str(&format!(" {}={}", name.to_lowercase(), self.field(name)));
            }
        }
        line
    }
}

/// Entries in `folder` since this time (microseconds), with these other arguments.
pub fn entries(folder: &Path, since: u64, arguments: &[&str]) -> Vec<Entry> {
    let output = Command::new("journalctl")
        .args(["--quiet", "--all", "--output", "json", "--directory"])
        .arg(folder)
        .arg(format!("--since=@{}.{:06}", since / 1_000_000, since % 1_000_000))
        .args(arguments)
        .output()
        .expect("journalctl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // The line that is being written now may be cut short.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .map(|fields| Entry { fields })
        .collect()
}
