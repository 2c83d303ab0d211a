//! Words that must not be there: what is unfinished, what sleeps, what belongs to one machine.

use crate::code::{bare, only_tests};
use crate::tree::{File, files, test_files};

/// Tests that are run by another test only, each with the reason: (file, reason).
const IGNORED: [(&str, &str); 2] = [
    ("src/effects/slot/tls_tests.rs", "runs in a process of its own that another test starts"),
    ("src/coordinator/store/file/tests.rs", "runs in a process that another test kills"),
];

/// Test files that sleep, each with the reason: (file or folder, reason). A single sleep can also
/// say its reason in a comment right above it: `// Sleeps: …`.
const SLEEPERS: [(&str, &str); 11] = [
    ("tests/lab/standin/src/", "a program of its own, whose slowness is what it plays"),
    ("tests/lab/standin/tests/", "waits for another process and looks at it meanwhile"),
    ("src/cluster/fake.rs", "looks at a server on a thread of its own, bounded"),
    ("src/effects/command.rs", "waits for a process that the kernel ends, bounded"),
    ("src/effects/announce/tests.rs", "that nothing more is written shows only after a while"),
    ("src/signals/rpm_ostree/tests.rs", "that nothing more is read shows only after a while"),
    ("src/signals/logind/tests.rs", "that nothing more is told shows only after a while"),
    ("src/signals/node/tests.rs", "a rest must have grown long before it is cut short"),
    ("src/effects/evict/fake.rs", "plays a server and pods that take their time"),
    ("src/effects/evict/tests.rs", "an outage takes its time"),
    ("tests/host/", "waits for other processes and looks at them meanwhile"),
];

/// Absolute paths of one machine that are meant: (file or folder, path, reason).
const PATHS: [(&str, &str, &str); 0] = [];

fn complain(file: &File, index: usize, what: &str) -> String {
    format!("{}:{}: {what}", file.path, index + 1)
}

/// What was left for later.
pub(crate) fn unfinished(file: &File) -> Vec<String> {
    let mut broken = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in [concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimple", "mented!(")] {
            if line.contains(word) {
                broken.push(complain(file, index, &format!("{word} is unfinished work")));
            }
        }
        let ignored = line.trim().starts_with(concat!("#[", "ignore"));
        if ignored && !IGNORED.iter().any(|(path, _)| *path == file.path) {
            broken.push(complain(file, index, "a test that is ignored proves nothing"));
        }
    }
    broken
}

/// Sleeps in tests: an event can be awaited instead. `all`: the whole file is a test.
pub(crate) fn sleeps(file: &File, all: bool) -> Vec<String> {
    if SLEEPERS.iter().any(|(path, _)| file.path.starts_with(path)) {
        return Vec::new();
    }
    let code = bare(&file.text);
    let tests = if all { code.clone() } else { only_tests(&code) };
    if !tests.contains("sleep(") {
        return Vec::new();
    }
    let said: Vec<&str> = file.text.lines().collect();
    let test_lines: Vec<&str> = tests.lines().collect();
    let mut broken = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let reason = index.checked_sub(1).and_then(|above| said.get(above));
        let excused = reason.is_some_and(|line| line.trim().starts_with("// Sleeps: "));
        if line.contains("sleep(") && test_lines.contains(&line) && !excused {
            broken.push(complain(file, index, "a test sleeps; await an event, or say why"));
        }
    }
    broken
}

/// Paths that exist on one machine only.
pub(crate) fn machine_paths(file: &File) -> Vec<String> {
    let mut broken = Vec::new();
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    for (index, line) in file.text.lines().enumerate() {
        for path in machine {
            let meant =
                PATHS.iter().any(|(at, what, _)| file.path.starts_with(at) && *what == path);
            // Behind a name or a variable it is a folder of somewhere else.
            let absolute = line.match_indices(path).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-}])*".contains(c))
            });
            if absolute && !meant {
                broken.push(complain(file, index, &format!("{path} exists on one machine only")));
            }
        }
    }
    broken
}

/// Settings that name the registry or proxy of one place.
pub(crate) fn registries(file: &File) -> Vec<String> {
    let words = [
        concat!("spar", "se+"),
        concat!("replace", "-with"),
        concat!("index", "-url"),
        concat!("GOPROXY", "=", "http"),
        concat!("GOPROXY", ": http"),
    ];
    let usual = concat!("regis", "try+https://github.com/rust-lang/crates.io-index");
    let mut broken = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let other = line.contains(concat!("regis", "try+")) && !line.contains(usual);
        if other || words.iter().any(|word| line.contains(word)) {
            broken.push(complain(file, index, "names a registry of one place"));
        }
    }
    broken
}

#[test]
fn nothing_is_left_unfinished() {
    let broken: Vec<String> = files().iter().flat_map(unfinished).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_test_sleeps_without_a_reason() {
    let files = files();
    let tests = test_files(&files);
    let rust = files.iter().filter(|file| file.is_rust() && !file.path.starts_with("tests/tidy/"));
    let broken: Vec<String> = rust
        .flat_map(|file| {
            sleeps(file, file.path.starts_with("tests/") || tests.contains(&file.path))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn nothing_belongs_to_one_machine() {
    let broken: Vec<String> =
        files().iter().flat_map(|f| machine_paths(f).into_iter().chain(registries(f))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn unfinished_work_is_noticed() {
    let table = [
        (concat!("to", "do!()"), "unfinished"),
        (concat!("x => unimple", "mented!(\"y\")"), "unfinished"),
        (concat!("# FIX", "ME later"), "unfinished"),
        (concat!("    #[", "ignore]"), "proves nothing"),
        (concat!("#[", "ignore = \"slow\"]"), "proves nothing"),
    ];
    for (text, expected) in table {
        let broken = unfinished(&File::new("src/a.rs", &format!("\n{text}\n"))).join("\n");
        assert!(
            broken.starts_with("src/a.rs:2: ") && broken.contains(expected),
            "{text}: {broken}"
        );
    }
    assert_eq!(
        unfinished(&File::new("a.md", "Nothing to do! It is ignored.")),
        Vec::<String>::new()
    );
}

#[test]
fn sleeping_tests_are_noticed() {
    let text = "fn a() { sleep(1); }\n#[cfg(test)]\nmod tests {\n    thread::sleep(ONE);\n}";
    let file = File::new("src/a.rs", text);
    assert_eq!(sleeps(&file, false), ["src/a.rs:4: a test sleeps; await an event, or say why"]);
    assert_eq!(sleeps(&file, true).len(), 2, "a file that is a test as a whole");
    let excused = "// Sleeps: nothing can be awaited here.\ntokio::time::sleep(ONE).await;";
    assert_eq!(sleeps(&File::new("tests/a.rs", excused), true), Vec::<String>::new());
    let standin = File::new("tests/lab/standin/src/a.rs", "sleep(1);");
    assert_eq!(sleeps(&standin, true), Vec::<String>::new());
}

#[test]
fn paths_and_registries_of_one_machine_are_noticed() {
    for text in [
        concat!("cd /wo", "rk/main"),
        concat!("x=\"/ro", "ot/.cargo\""),
        concat!("/ho", "me/ada/x"),
    ] {
        assert_eq!(machine_paths(&File::new("a.sh", text)).len(), 1, "{text}");
    }
    for text in
        [concat!("$state/wo", "rk/"), concat!("/var/ho", "me/core"), concat!("${dir}/ro", "ot/x")]
    {
        assert_eq!(machine_paths(&File::new("a.sh", text)), Vec::<String>::new(), "{text}");
    }
    for text in [
        concat!("index = \"spar", "se+https://crates.example/\""),
        concat!("source = \"regis", "try+https://crates.example/index\""),
        concat!("replace", "-with = \"mirror\""),
        concat!("GOPROXY", "=", "https://proxy.example go build"),
    ] {
        assert_eq!(registries(&File::new("x", text)).len(), 1, "{text}");
    }
    let usual = concat!("source = \"regis", "try+https://github.com/rust-lang/crates.io-index\"");
    assert_eq!(registries(&File::new("Cargo.lock", usual)), Vec::<String>::new());
}
