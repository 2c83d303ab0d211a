//! The files of the house.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::code::{bare, without_tests};

/// One text file, its path seen from the top.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What may lie at the top beside dot files.
const TOP: [&str; 12] = [
    "Cargo.toml",
    "Cargo.lock",
    "src",
    "systemd",
    "ignition",
    "tests",
    "packaging",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "benches",
];

/// What is no part of the house: what the build leaves behind.
const NOT_OURS: [&str; 2] = ["target", ".git"];

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file, sorted by its path.
pub(crate) fn files() -> Vec<File> {
    let mut found = Vec::new();
    walk(top(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

fn walk(folder: &Path, found: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let short = path.strip_prefix(top()).expect("below the top");
            found.push(File { path: short.to_string_lossy().into_owned(), text });
        }
    }
}

/// Names at the top that nobody looks for there.
pub(crate) fn strangers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known =
        |name: &str| name.starts_with('.') || TOP.contains(&name) || NOT_OURS.contains(&name);
    let strange: BTreeSet<&str> = names.filter(|name| !known(name)).collect();
    strange.into_iter().map(|name| format!("{name}: is not meant to lie at the top")).collect()
}

/// Files below `src` that are compiled for tests only: a `#[cfg(test)] mod …;` names them.
pub(crate) fn test_files(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let (_, modules) = without_tests(&bare(&file.text));
        for module in modules {
            let given = given_path(&file.text, &module);
            let single = given.unwrap_or_else(|| format!("{module}.rs"));
            let beside = Path::new(&file.path).with_file_name(&single);
            let below = home(&file.path);
            let names =
                [below.join(&single), beside].map(|path| path.to_string_lossy().into_owned());
            let folder = format!("{}/", below.join(&module).to_string_lossy());
            let belongs =
                |path: &&File| names.contains(&path.path) || path.path.starts_with(&folder);
            found.extend(files.iter().filter(belongs).map(|file| file.path.clone()));
        }
    }
    found
}

/// The folder in which the modules of a file live.
fn home(path: &str) -> PathBuf {
    let path = Path::new(path);
    let stem = path.file_stem().unwrap_or_default();
    if ["mod", "lib", "main"].iter().any(|name| stem == *name) {
        path.parent().unwrap_or(path).to_owned()
    } else {
        path.with_extension("")
    }
}

/// The value of a `#[path = "…"]` in front of this module.
fn given_path(text: &str, module: &str) -> Option<String> {
    let (before, _) = text.split_once(&format!("mod {module};"))?;
    let last: Vec<&str> = before.lines().rev().take(3).collect();
    let line = last.iter().find(|line| line.trim().starts_with("#[path = \""))?;
    line.split('"').nth(1).map(str::to_owned)
}

#[test]
fn nothing_strange_lies_at_the_top() {
    let names: Vec<String> = std::fs::read_dir(top())
        .expect("the top")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let strange = strangers(names.iter().map(String::as_str));
    assert!(strange.is_empty(), "{}", strange.join("\n"));
}

#[test]
fn a_stranger_at_the_top_is_noticed() {
    let names = ["src", ".rustfmt.toml", "target", "docs", "Makefile"];
    let strange = strangers(names.into_iter());
    assert_eq!(strange.len(), 2, "{strange:?}");
    assert!(strange[0].contains("Makefile") && strange[1].contains("docs"), "{strange:?}");
}

#[test]
fn test_files_are_found_by_their_declaration() {
    let files = [
        File::new("src/a/mod.rs", "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod fake;"),
        File::new("src/a/tests.rs", ""),
        File::new("src/a/fake.rs", ""),
        File::new("src/a/b.rs", "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;"),
        File::new("src/a/b_tests.rs", ""),
        File::new("src/a/c.rs", "#[cfg(test)]\nmod tests;"),
        File::new("src/a/c/tests.rs", ""),
        File::new("src/d/mod.rs", "#[cfg(test)]\nmod tests;"),
        File::new("src/d/tests/mod.rs", ""),
        File::new("src/d/tests/wrong.rs", ""),
    ];
    let found: Vec<String> = test_files(&files).into_iter().collect();
    let expected = [
        "src/a/b_tests.rs",
        "src/a/c/tests.rs",
        "src/a/fake.rs",
        "src/a/tests.rs",
        "src/d/tests/mod.rs",
        "src/d/tests/wrong.rs",
    ];
    assert_eq!(found, expected);
}
