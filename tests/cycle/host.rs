//! One host of the lab: what it is told to do, and what its agent says and does.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use serde_json::Value;

use crate::journal::{self, Entry};
use crate::lab::{Said, lab, lab_with, until};

/// The fragment of configuration that a story may write.
pub const FRAGMENT: &str = "/etc/lockkeeper/config.d/99-story.toml";

/// A host.
pub struct Host {
    /// `n1`, ...
    pub name: String,
    /// Its root file system, seen from the machine.
    root: PathBuf,
    /// When the story began, microseconds since the epoch.
    began: AtomicU64,
    /// How many of the story's transitions were told already.
    told: AtomicUsize,
}

// === impl Host ===

impl Host {
    /// The host of this name.
    pub fn new(folder: &Path, name: &str) -> Self {
        let root = folder.join("hosts").join(name);
        Self { name: name.to_owned(), root, began: AtomicU64::new(0), told: AtomicUsize::new(0) }
    }

    /// A story begins: what the journal says from here on is part of it.
    pub fn begin(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.began.store(u64::try_from(now.unwrap().as_micros()).unwrap(), SeqCst);
        self.told.store(0, SeqCst);
    }

    // === Orders ===

    /// A command of the lab for this host; it must go well.
    #[track_caller]
    pub fn lab(&self, command: &str, arguments: &[&str]) {
        lab(&[&[command, self.name.as_str()], arguments].concat()).good();
    }

    /// Runs a command in the host.
    pub fn exec(&self, command: &[&str]) -> Said {
        lab(&[&["exec", self.name.as_str()], command].concat())
    }

    /// Runs a piece of shell in the host; it must go well. The result is its output.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.exec(&["sh", "-ec", script]).good()
    }

    /// Writes a file in the host and the folders above it.
    #[track_caller]
    pub fn write(&self, path: &str, text: &str) {
        let script = format!("mkdir -p \"$(dirname {path})\"; cat >{path}");
        lab_with(&["exec", &self.name, "sh", "-ec", &script], text).good();
    }

    /// A path in the host, seen from the machine; what is mounted there is not seen.
    pub fn disk(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Stages an update; its identity. `arguments` as those of `lab stage`.
    #[track_caller]
    pub fn stage(&self, version: &str, arguments: &[&str]) {
        self.lab("stage", &[&[version], arguments].concat());
    }

    /// Has the agent take this configuration on top of the lab's, at once. `[node]` and `[agent]`
    /// want a restart.
    #[track_caller]
    pub fn configure(&self, text: &str) {
        self.write(FRAGMENT, text);
        self.sh("systemctl reload lockkeeper");
    }

    /// Takes it back. An agent that is down, or goes down with its host, needs no reload.
    pub fn configure_no_more(&self) {
        let script = format!("rm -f {FRAGMENT}; systemctl reload lockkeeper");
        self.exec(&["sh", "-c", &script]);
    }

    // === What is ===

    /// For a person: what there is to see when a story failed.
    pub fn report(&self) {
        let said = self.exec(&["lockkeeper", "status"]);
        println!("--- {}\n{}{}", self.name, said.out, said.err);
        print!("{}", self.exec(&["lockkeeper", "why"]).out);
        for entry in self.entries().iter().rev().take(20).rev() {
            println!("  {}", entry.line());
        }
        println!("  node: {:?}", lab(&["kubectl", "get", "node", &self.name]).out);
    }

    /// Whether it is turned on.
    pub fn is_on(&self) -> bool {
        self.exec(&["true"]).status == 0
    }

    /// The kernel's id of the boot that runs.
    #[track_caller]
    pub fn boot_id(&self) -> String {
        self.sh("cat /proc/sys/kernel/random/boot_id").trim().to_owned()
    }

    /// How many boots began in this story.
    pub fn boots(&self) -> usize {
        let entries = self.journal(&["SYSLOG_IDENTIFIER=lockkeeper"]);
        let boots: std::collections::BTreeSet<_> =
            entries.iter().map(|entry| entry.field("_BOOT_ID").to_owned()).collect();
        boots.len().saturating_sub(1)
    }

    /// The version of the system that runs.
    #[track_caller]
    pub fn version(&self) -> String {
        self.sh(". /etc/os-release; echo \"$OSTREE_VERSION\"").trim().to_owned()
    }

    /// What `lockkeeper status --json` says; `None` while no agent answers.
    pub fn status(&self) -> Option<Value> {
        let said = self.exec(&["lockkeeper", "status", "--json"]);
        (said.status == 0).then(|| serde_json::from_str(&said.out).expect("the status is JSON"))
    }

    /// The reason that it tells now, by its code.
    pub fn reason(&self) -> String {
        self.status().map_or_else(String::new, |s| text(&s["reason"]["code"]).to_owned())
    }

    /// Entries of the agent in this story.
    pub fn entries(&self) -> Vec<Entry> {
        self.journal(&["SYSLOG_IDENTIFIER=lockkeeper"])
    }

    /// Entries of the journal in this story.
    pub fn journal(&self, arguments: &[&str]) -> Vec<Entry> {
        journal::entries(&self.disk("/var/log/journal"), self.began.load(SeqCst), arguments)
    }

    /// The story's changes of stage.
    pub fn transitions(&self) -> Vec<Entry> {
        self.entries().into_iter().filter(Entry::is_transition).collect()
    }

    /// The stages that it came to in this story.
    pub fn stages(&self) -> Vec<String> {
        self.transitions().iter().map(|entry| entry.told("TO").to_owned()).collect()
    }

    /// What the agent said with priority ERROR in this story, and whether it panicked.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.journal(&["--priority=err", "SYSLOG_IDENTIFIER=lockkeeper"]);
        let panics = self.journal(&["_SYSTEMD_UNIT=lockkeeper.service", "--grep=panicked at"]);
        errors.iter().chain(&panics).map(Entry::line).collect()
    }

    // === What comes ===

    /// The next change to this stage that this story has not told yet; those before it are skipped.
    #[track_caller]
    pub fn comes_to(&self, stage: &str, seconds: u64) -> Entry {
        until(seconds, &format!("{} is {stage}", self.name), || {
            let all = self.transitions();
            let at = (self.told.load(SeqCst)..all.len()).find(|n| all[*n].told("TO") == stage)?;
            self.told.store(at + 1, SeqCst);
            Some(all[at].clone())
        })
    }

    /// The status, once it tells this reason.
    #[track_caller]
    pub fn waits_for(&self, code: &str, seconds: u64) -> Value {
        until(seconds, &format!("{} waits for {code}", self.name), || {
            self.status().filter(|status| status["reason"]["code"] == code)
        })
    }

    /// Waits for the end of an attempt and of its release; it must end so.
    #[track_caller]
    pub fn ends(&self, outcome: &str, seconds: u64) -> Value {
        let what = format!("{} ends an attempt", self.name);
        let entry = until(seconds, &what, || {
            let all = self.transitions();
            let at = (self.told.load(SeqCst)..all.len())
                .find(|n| !all[*n].told("OUTCOME").is_empty())?;
            self.told.store(at + 1, SeqCst);
            Some(all[at].clone())
        });
        assert_eq!(entry.told("OUTCOME"), outcome, "{}: {}", self.name, entry.line());
        until(10, &format!("{} tells of that end", self.name), || {
            let last = self.status()?["last"].clone();
            (last["attempt"] == entry.told("ATTEMPT")).then_some(last)
        })
    }
}

/// What the stand-in for rpm-ostree says of itself.
#[track_caller]
pub fn standin(host: &Host) -> Value {
    let said = host.sh("/usr/lib/standin/standin status --json");
    serde_json::from_str(&said).expect("JSON from the stand-in")
}

/// The text of a value; empty for anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
