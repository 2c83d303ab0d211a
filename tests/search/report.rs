//! What the search found, as tables: printed, and written where `LOCKKEEPER_REPORT` names a folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use lockkeeper::lifecycle::Outcome;

use crate::engine::Found;
use crate::rules::Rules;

static WORLDS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
static HEARTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Attempts that ended so on the way, with at least so many faults.
pub(crate) fn ended(found: &Found, outcome: Outcome, faults: u8) -> usize {
    let these = found.ended.iter().filter(|((how, used), _)| *how == outcome && *used >= faults);
    these.map(|(_, count)| count).sum()
}

/// One world's row.
pub(crate) fn world(rules: &Rules, found: &Found) {
    let faults = rules.faults.iter().map(u8::to_string).collect::<Vec<_>>().join(" + ");
    let far = if found.all { "all states".to_owned() } else { format!("{} steps", found.deepest) };
    let (rounds, most) = (
        ended(found, Outcome::Updated, 0),
        ended(found, Outcome::Updated, rules.faults.iter().sum()),
    );
    let time = if rules.prompt { "when nothing else can happen" } else { "at any time" };
    let key = format!("{} {faults} {time}", rules.name);
    let row = format!(
        "| {} | {time} | {} | {far} | {} | {faults} | {rounds} | {most} | {} |",
        rules.name, found.states, found.deepest, found.all_round
    );
    println!("{row}");
    WORLDS.lock().expect("no panic").insert(key, row);
    write();
}

/// The rows of the broken hearts.
pub(crate) fn hearts(rows: Vec<String>) {
    for row in &rows {
        println!("{row}");
    }
    *HEARTS.lock().expect("no panic") = rows;
    write();
}

fn write() {
    let Some(folder) = std::env::var_os("LOCKKEEPER_REPORT") else { return };
    let mut text = String::from(
        "## Exhaustive search of the heart\n\n\
         Every order of events in small worlds, the promises checked in every state. \"all states\": the \
         state space is exhausted, cycles of any number included; else every order up to that many steps.\n\n\
         | world | time passes | states | covered | deepest | faults a path | steps that end a full cycle | of these \
         with every fault used | states in which every node has gone round |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in WORLDS.lock().expect("no panic").values() {
        writeln!(text, "{row}").expect("memory");
    }
    text.push_str("\n| promise | broken heart: the one that … | found after | in words |\n|---|---|---|---|\n");
    for row in HEARTS.lock().expect("no panic").iter() {
        writeln!(text, "{row}").expect("memory");
    }
    std::fs::write(std::path::Path::new(&folder).join("10-search.md"), text)
        .expect("the report is written");
}
