//! Names and the words behind them: modules say what they are, and nothing is a drawer for rest.

use crate::code::bare;
use crate::tree::{File, files};

/// Names that say nothing.
const EMPTY: [&str; 2] = ["utils", "manager"];

/// Declarations whose name says nothing.
pub(crate) fn empty_names(file: &File) -> Vec<String> {
    let mut broken = Vec::new();
    let stem = file.path.rsplit('/').next().unwrap_or_default().to_lowercase();
    for empty in EMPTY.iter().filter(|empty| stem.contains(*empty)) {
        broken.push(format!("{}: {empty} says nothing", file.path));
    }
    if !file.is_rust() {
        return broken;
    }
    for (index, line) in bare(&file.text).lines().enumerate() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for pair in words.windows(2) {
            let declares = ["struct", "enum", "trait", "mod", "fn", "type"].contains(&pair[0]);
            let name = pair[1].to_lowercase();
            if declares && EMPTY.iter().any(|empty| name.contains(empty)) {
                broken.push(format!("{}:{}: {} says nothing", file.path, index + 1, pair[1]));
            }
        }
    }
    broken
}

/// Modules that others can see and that do not say what they are for.
pub(crate) fn silent_modules(file: &File, all: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for line in bare(&file.text).lines() {
        let line = line.trim();
        let Some((visible, name)) = line.split_once("mod ") else { continue };
        let Some(name) = name.strip_suffix(';') else { continue };
        if !visible.starts_with("pub") {
            continue;
        }
        let folder = match file.path.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder.to_owned(),
            _ => file.path.trim_end_matches(".rs").to_owned(),
        };
        let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        let found = all.iter().find(|file| places.contains(&file.path));
        if !found.is_some_and(|file| file.text.starts_with("//!")) {
            broken.push(format!("{}: mod {name} does not begin with //!", file.path));
        }
    }
    broken
}

/// Reasons to wait for which the front desk has no advice.
pub(crate) fn without_advice(waiting: &str, advice: &str) -> Vec<String> {
    let bare = bare(waiting);
    let (_, list) = bare.split_once("pub enum Waiting {").expect("the reasons");
    let (list, _) = list.split_once("\n}").expect("their end");
    let names = list.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let end = line.find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len());
        line.starts_with(char::is_uppercase).then(|| &line[..end])
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 5 || waiting.len() < 200, "the reasons were not understood: {names:?}");
    let advised = |name: &str| {
        advice.match_indices(&format!("Waiting::{name}")).any(|(at, word)| {
            !advice[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    };
    names
        .into_iter()
        .filter(|name| !advised(name))
        .map(|name| format!("{name}: no advice"))
        .collect()
}

#[test]
fn names_say_something_and_modules_what_they_are_for() {
    let files = files();
    let names = files.iter().filter(|file| !file.path.starts_with('.')).flat_map(empty_names);
    let rust = files.iter().filter(|file| file.is_rust() && !file.path.starts_with("tests/tidy/"));
    let silent = rust.flat_map(|file| silent_modules(file, &files));
    let broken: Vec<String> = names.chain(silent).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_reason_to_wait_has_advice() {
    let waiting = include_str!("../../src/lifecycle/waiting.rs");
    let advice = bare(include_str!("../../src/admin/advice.rs"));
    let broken = without_advice(waiting, &advice);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn empty_names_are_noticed() {
    let table = [
        ("src/utils.rs", ""),
        ("src/slot_manager.rs", ""),
        ("src/a.rs", "pub struct SlotManager { x: u8 }"),
        ("src/a.rs", "mod string_utils;"),
    ];
    for (path, text) in table {
        assert_eq!(empty_names(&File::new(path, text)).len(), 1, "{path}: {text}");
    }
    let fine = File::new("src/a.rs", "// a manager\nlet x = \"org.freedesktop.login1.Manager\";");
    assert_eq!(empty_names(&fine), Vec::<String>::new());
}

#[test]
fn silent_modules_are_noticed() {
    let lib = File::new("src/lib.rs", "pub mod a;\npub(crate) mod b;\nmod c;\npub mod d {}");
    let all = [
        File::new("src/a.rs", "//! What it is for."),
        File::new("src/b/mod.rs", "use x;"),
        File::new("src/c.rs", ""),
    ];
    let broken = silent_modules(&lib, &all);
    assert_eq!(broken, ["src/lib.rs: mod b does not begin with //!"]);
}

#[test]
fn a_reason_without_advice_is_noticed() {
    let waiting = "pub enum Waiting {\n    /// A.\n    Held,\n    HeldLong(u8),\n    Node {\n        x: u8,\n    },\n}\n";
    let advice = "Waiting::HeldLong(_) => X, Waiting::Node { .. } => Y,";
    assert_eq!(without_advice(waiting, advice), ["Held: no advice"]);
}
