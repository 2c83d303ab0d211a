//! The cases of the field: each is held by tests that exist, or waits for something that is named.

use crate::tree::{File, files};

/// What is wrong with the page that says which test holds which case.
pub(crate) fn unheld(page: &str, all: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut awaited = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let mut complain = |what: String| broken.push(format!("line {}: {what}", index + 1));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["", first, ..] if first.starts_with("---") || *first == "where" => {}
            ["", word, _, ""] => awaited.push(*word),
            ["", place, _, _, held, ""] => {
                if !place.contains('#') && !place.contains('/') && *place != "ours" {
                    complain(format!("{place:?} is no place of a tracker"));
                }
                let (tests, waits) = held.split_once("waits for: ").unwrap_or((held, ""));
                let mut words = waits.split(", ").filter(|word| !word.is_empty());
                if let Some(unknown) = words.find(|word| !awaited.contains(word)) {
                    complain(format!("nothing is called {unknown:?}"));
                }
                let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
                if named.is_empty() && waits.is_empty() {
                    complain(format!("{place} is not held and waits for nothing"));
                }
                for name in named.into_iter().filter(|name| !exists(name, all)) {
                    complain(format!("there is no test {name}"));
                }
            }
            [_] => {}
            _ => complain("expected where, fault, right, held by".to_owned()),
        }
    }
    broken
}

/// Whether there is such a test: `path.rs::function`, `stories/name` or `cycle::name`.
fn exists(name: &str, all: &[File]) -> bool {
    let file = |path: &str| all.iter().find(|file| file.path == path);
    if let Some(story) = name.strip_prefix("stories/") {
        return file(&format!("tests/stories/{story}.txt")).is_some();
    }
    let Some((path, function)) = name.split_once("::") else { return false };
    if path == "cycle" {
        let told = file("tests/cycle/stories/mod.rs").map_or("", |file| file.text.as_str());
        let mut words = told.split(|c: char| !c.is_alphanumeric() && c != '_');
        return words.any(|word| word == function);
    }
    file(path).is_some_and(|file| is_test(&file.text, function))
}

/// Whether the text has a test of this name: its attribute stands right above it.
fn is_test(text: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = |line: &&str| line.strip_prefix("async ").unwrap_or(line).starts_with(&head);
    let Some(at) = lines.iter().position(declared) else { return false };
    let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with('#'));
    above.any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
}

/// How many cases there are, and how they are held: a section of the report.
fn counted(page: &str) -> String {
    let (mut held, mut partly, mut waiting) = (0, 0, 0);
    let mut tests = std::collections::BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", place, _, _, by, ""] = cells.as_slice() else { continue };
        if *place == "where" || place.starts_with("---") {
            continue;
        }
        let named: Vec<&str> = by.split('`').skip(1).step_by(2).collect();
        match (named.is_empty(), by.contains("waits for: ")) {
            (false, false) => held += 1,
            (false, true) => partly += 1,
            (true, _) => waiting += 1,
        }
        tests.extend(named);
    }
    format!(
        "## Cases of the field\n\n| cases | held by tests | held, and wait for more | only wait | \
         tests that hold them |\n|---|---|---|---|---|\n| {} | {held} | {partly} | {waiting} | {} |\n",
        held + partly + waiting,
        tests.len()
    )
}

#[test]
fn every_case_is_held_or_waits_for_something() {
    let page = include_str!("../CASES.md");
    let broken = unheld(page, &files());
    assert!(broken.is_empty(), "tests/CASES.md:\n{}", broken.join("\n"));
    if let Some(folder) = std::env::var_os("LOCKKEEPER_REPORT") {
        std::fs::write(std::path::Path::new(&folder).join("60-cases.md"), counted(page)).unwrap();
    }
}

#[test]
fn cases_are_counted() {
    let page = "| where | the fault | right is | held by |\n|---|---|---|---|\n\
                | a#1 | x | y | `one`, `two` |\n| b#2 | x | y | `two`; waits for: rain |\n\
                | c#3 | x | y | waits for: rain |\n| rain | later |\n";
    assert!(counted(page).ends_with("| 3 | 1 | 1 | 1 | 2 |\n"), "{}", counted(page));
}

#[test]
fn a_case_that_nothing_holds_is_noticed() {
    let all = [
        File::new("src/a.rs", "    #[test]\n    fn one() {}\nfn helper() {}"),
        File::new("src/b.rs", "#[tokio::test]\n#[allow(x)]\nasync fn two() {}"),
        File::new("tests/stories/told.txt", ""),
        File::new("tests/cycle/stories/mod.rs", "stories! { room: lived_through; }"),
    ];
    let page = |held: &str| {
        format!("| bootc | later |\n|---|---|\n| a tool#1 | fault | right | {held} |\n")
    };
    for (held, wrong) in [
        ("`src/a.rs::one`, `src/b.rs::two`", ""),
        ("`stories/told`; waits for: bootc", ""),
        ("`cycle::lived_through`", ""),
        ("waits for: bootc", ""),
        ("", "is not held"),
        ("soon", "is not held"),
        ("waits for: rain", "nothing is called \"rain\""),
        ("`src/a.rs::helper`", "there is no test src/a.rs::helper"),
        ("`src/a.rs::on`", "there is no test"),
        ("`src/c.rs::one`", "there is no test"),
        ("`stories/untold`", "there is no test"),
        ("`cycle::lived`", "there is no test"),
        ("`src/a.rs::one`, `one`", "there is no test one"),
        ("`src/a.rs::one` | more", "expected where"),
    ] {
        let broken = unheld(&page(held), &all).join("\n");
        let fits = if wrong.is_empty() { broken.is_empty() } else { broken.contains(wrong) };
        assert!(fits, "{held}: {broken}");
    }
    let nowhere = "| somewhere | fault | right | `src/a.rs::one` |";
    assert!(unheld(nowhere, &all)[0].contains("no place"));
}
