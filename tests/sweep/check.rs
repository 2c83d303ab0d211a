//! What is true in the end of every cell.

use serde_json::Value;

use crate::fault::Fault;
use crate::host::text;
use crate::lab::until;
use crate::station::Station;
use crate::table::Cell;

/// MESSAGE_ID of the stand-in: which deployment this boot runs. One entry a boot.
const BOOTED: &str = "MESSAGE_ID=7170336a73ba4601bad31af888aa0df7";

/// How things were when a cell began.
pub struct Before {
    /// The last attempt in the history.
    last: Value,
    /// The version that ran.
    version: String,
}

// === impl Before ===

impl Before {
    /// A cell begins.
    pub fn new(station: &Station<'_>) -> Self {
        station.host.begin();
        let status = station.host.status().expect("the agent answers");
        Self { last: status["last"].clone(), version: station.host.version() }
    }

    /// Waits for the end of the attempt that this cell began, and of its release.
    pub fn end(&self, station: &Station<'_>) -> Value {
        until(180, &format!("the attempt of {} has ended", station.host.name), || {
            let status = station.host.status()?;
            // One that a gate sent back, since a server was away, is followed by the next.
            let ended = !status["last"].is_null()
                && status["last"]["attempt"] != self.last["attempt"]
                && !status["last"]["ended"].is_null()
                && status["last"]["outcome"] != "yielded"
                && status["slot"]["state"] == "none";
            ended.then(|| status["last"].clone())
        })
    }

    /// Everything that must hold, whatever stage was hit by whatever fault.
    pub fn check(&self, station: &Station<'_>, cell: Cell, version: &str, last: &Value) {
        let host = station.host;
        let outcome = text(&last["outcome"]);
        let ends = cell.place.ends(cell.fault);
        assert!(ends.contains(&outcome), "it ended {outcome}, and not {ends:?}: {last}");

        // In service, and no slot leaked.
        assert_eq!(station.cordon(), (false, None), "the Node is in service, without our mark");
        assert!(station.holders().is_empty(), "a slot leaked: {:?}", station.holders());

        // No second reboot for one attempt, and none for those that a gate sent back before.
        let attempts = self.attempts(station);
        let (ended, sent_back) = attempts.split_last().expect("an attempt in the history");
        assert_eq!(ended["attempt"], last["attempt"], "the last one: {attempts:?}");
        for attempt in sent_back {
            let stages = attempt["stages"].as_array().expect("its stages");
            let rebooted = stages.iter().any(|stage| stage["stage"] == "rebooting");
            assert!(attempt["outcome"] == "yielded" && !rebooted, "it was sent back: {attempt}");
        }
        let cuts = usize::from(cell.fault == Fault::Cut);
        let boots = boots(station);
        let ordered = usize::from(matches!(outcome, "updated" | "fell-back"));
        assert_eq!(boots, ordered + cuts, "boots of an attempt that ended {outcome}, {cuts} cut");

        // Updated, or explained.
        let runs = host.version();
        if outcome == "updated" {
            assert_eq!(runs, version, "the target is booted");
        } else {
            assert_eq!(runs, self.version, "what ran before runs");
            assert!(!text(&last["detail"]).is_empty() || outcome == "withdrawn", "why? {last}");
        }

        // Said in order, and written in order.
        assert_eq!(host.errors(), Vec::<String>::new(), "errors that nobody expected");
        let kept = host.sh("ls /var/lib/lockkeeper");
        assert!(!kept.contains("unreadable"), "the record could not be read: {kept}");
    }

    /// The attempts of this cell, as the history tells them.
    fn attempts(&self, station: &Station<'_>) -> Vec<Value> {
        let history: Value = serde_json::from_str(&station.host.sh("lockkeeper history --json"))
            .expect("the history is JSON");
        let attempts = history["attempts"].as_array().cloned().unwrap_or_default();
        let old = attempts.iter().position(|one| one["attempt"] == self.last["attempt"]);
        let new = attempts[old.map_or(0, |at| at + 1)..].iter();
        // After one that came to nothing the next one waits.
        new.filter(|one| one["running"] == false).cloned().collect()
    }
}

/// How many boots began in this cell.
fn boots(station: &Station<'_>) -> usize {
    let entries = station.host.journal(&[BOOTED]);
    let ids: std::collections::BTreeSet<&str> =
        entries.iter().map(|entry| entry.field("_BOOT_ID")).collect();
    assert_eq!(ids.len(), entries.len(), "the stand-in tells of each boot once");
    ids.len()
}
