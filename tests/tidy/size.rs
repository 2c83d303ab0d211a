//! Files and functions that a person can hold in the head.

use crate::code::{bare, functions};
use crate::tree::{File, files};

/// Lines of a file, and of a function, at most.
const FILE_MAX: usize = 500;
const FUNCTION_MAX: usize = 70;

/// Longer ones, each with how long it may be and why: (file, function or nothing, lines, reason).
const EXCEPTIONS: [(&str, &str, usize, &str); 5] = [
    ("src/cli/config.rs", "show_tells_where_each_value_comes_from", 90, "one golden text"),
    ("src/config/tests/defaults.rs", "every_key_reaches_the_settings", 160, "one table"),
    ("src/lifecycle/waiting.rs", "fmt", 120, "one sentence for each reason"),
    ("src/schedule/window_tests.rs", "openings_over_dst", 170, "one table"),
    ("tests/lab/standin/src/daemon/mod.rs", "run", 80, "one loop over all that can wake it"),
];

fn allowed(path: &str, function: &str, usual: usize) -> usize {
    let found = EXCEPTIONS.iter().find(|(at, name, _, _)| *at == path && *name == function);
    found.map_or(usual, |(_, _, lines, _)| *lines)
}

/// What is too long in a file.
pub(crate) fn too_long(file: &File) -> Vec<String> {
    let mut broken = Vec::new();
    let lines = file.text.lines().count();
    let most = allowed(&file.path, "", FILE_MAX);
    if lines > most {
        broken.push(format!("{}: {lines} lines, at most {most}", file.path));
    }
    for (name, line, lines) in functions(&bare(&file.text)) {
        let most = allowed(&file.path, &name, FUNCTION_MAX);
        if lines > most {
            broken.push(format!("{}:{line}: fn {name}: {lines} lines, at most {most}", file.path));
        }
    }
    broken
}

#[test]
fn files_and_functions_are_short() {
    let files = files();
    let broken: Vec<String> =
        files.iter().filter(|file| file.is_rust()).flat_map(too_long).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_exception_is_needed() {
    let files = files();
    for (path, name, most, _) in EXCEPTIONS {
        let file = files.iter().find(|file| file.path == path);
        let file = file.unwrap_or_else(|| panic!("{path} is gone, its exception is not"));
        let usual = if name.is_empty() { FILE_MAX } else { FUNCTION_MAX };
        assert!(most > usual, "{path}: {most} is no exception");
        let lines = if name.is_empty() {
            Some(file.text.lines().count())
        } else {
            let functions = functions(&bare(&file.text));
            functions.into_iter().find(|(found, _, _)| *found == name).map(|(_, _, lines)| lines)
        };
        assert!(lines.is_some_and(|lines| lines > usual), "{path} {name}: no longer too long");
    }
}

#[test]
fn what_is_too_long_is_noticed() {
    let long = format!("fn short() {{}}\nfn long() {{\n{}}}\n", "    x();\n".repeat(69));
    let broken = too_long(&File::new("src/a.rs", &long));
    assert_eq!(broken, ["src/a.rs:2: fn long: 71 lines, at most 70"]);
    let broken = too_long(&File::new("src/a.rs", &"\n".repeat(501)));
    assert_eq!(broken, ["src/a.rs: 501 lines, at most 500"]);
    let fine = format!("fn long() {{\n{}}}\n", "    x();\n".repeat(68));
    assert_eq!(too_long(&File::new("src/a.rs", &fine)), Vec::<String>::new());
}
