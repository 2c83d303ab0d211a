//! Golden stories of the lifecycle.
//!
//! Each file of this folder begins with a paragraph that names the promise it tells of, then
//! script lines (`> …`) with the verdict of the heart behind each. `UPDATE_EXPECT=1` writes the
//! verdicts anew; what changed is then a difference that a person can read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod coverage;
mod events;
mod policy;
mod script;
mod teller;
mod well;
mod words;

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use lockkeeper::lifecycle;
use teller::{Shown, tell};

/// The stories, in the order of their names.
fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let entries = std::fs::read_dir(&folder).expect("the folder of the stories");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    paths.sort();
    paths
}

/// Tells every story; those that cannot be told come back as errors that name file and line.
fn tell_all(shown: &mut Shown) -> (Vec<(PathBuf, String)>, Vec<String>) {
    let (mut told, mut errors) = (Vec::new(), Vec::new());
    for path in stories() {
        let script = std::fs::read_to_string(&path).expect("a story");
        match tell(lifecycle::step, &script, shown) {
            Ok(text) => told.push((path, text)),
            Err(error) => {
                errors.push(format!("{}: {error}", path.file_name().unwrap_or_default().display()));
            }
        }
    }
    (told, errors)
}

#[test]
fn every_story_is_told_as_it_was_written_down() {
    let (told, errors) = tell_all(&mut Shown::default());
    assert!(!told.is_empty(), "no story was found");
    for (path, text) in told {
        expect_file![path].assert_eq(&text);
    }
    assert!(errors.is_empty(), "{}", errors.join("\n\n"));
}
