//! The API server's audit log: who asked for what.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// When it came, microseconds since the epoch.
    pub at: u64,
    /// As in `create pods/eviction`.
    pub what: String,
    /// Status of the answer.
    pub code: u64,
    /// It makes a Node unschedulable.
    pub cordons: bool,
    /// Path and query.
    pub uri: String,
}

/// The log, from some point on.
#[derive(Debug)]
pub struct Audit {
    file: PathBuf,
    from: u64,
}

// === impl Audit ===

impl Audit {
    /// What is asked from now on.
    pub fn from_now(folder: &Path) -> Self {
        let file = folder.join("audit.log");
        let from = file.metadata().unwrap().len();
        Self { file, from }
    }

    /// The requests of this user agent (how it begins) and user (empty: any), oldest first. A watch is
    /// logged when it begins and when it ends, and is one request.
    pub fn requests(&self, agent: &str, user: &str) -> Vec<Request> {
        let mut file = File::open(&self.file).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        let mut text = Vec::new();
        file.read_to_end(&mut text).unwrap();
        let mut found = BTreeMap::new();
        for line in String::from_utf8_lossy(&text).lines() {
            // The line that is being written now may be cut short.
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let ours = word(&entry["userAgent"]).starts_with(agent)
                && (user.is_empty() || word(&entry["user"]["username"]) == user);
            if !ours {
                continue;
            }
            let object = &entry["objectRef"];
            let mut what = format!("{} {}", word(&entry["verb"]), word(&object["resource"]));
            if let Some(sub) = object["subresource"].as_str() {
                what.push_str(&format!("/{sub}"));
            }
            let at: Timestamp = word(&entry["requestReceivedTimestamp"]).parse().unwrap();
            let request = Request {
                at: u64::try_from(at.as_microsecond()).unwrap(),
                what,
                code: entry["responseStatus"]["code"].as_u64().unwrap_or(0),
                cordons: entry["requestObject"]["spec"]["unschedulable"] == true,
                uri: word(&entry["requestURI"]),
            };
            found.insert(word(&entry["auditID"]), request);
        }
        let mut all: Vec<Request> = found.into_values().collect();
        all.sort_by_key(|request| request.at);
        all
    }
}

/// How often what was asked, as in `30 create pods/eviction, 1 list pods`.
pub fn counted(requests: &[Request]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        *counts.entry(&request.what).or_default() += 1;
    }
    let words: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
    words.join(", ")
}
