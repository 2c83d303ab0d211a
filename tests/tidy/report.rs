//! The page of proofs and figures: it tells of every proof and benchmark that there is.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The parts of `lab report`, as it lists them.
fn parts() -> Vec<String> {
    let script = read("tests/lab/lib/report.sh");
    let line = script.lines().find_map(|line| line.strip_prefix("report_parts=("));
    let words = line.and_then(|line| line.strip_suffix(')')).expect("report_parts=(…)");
    words.split(' ').map(str::to_owned).collect()
}

#[test]
fn every_benchmark_is_part_of_the_report() {
    let manifest = read("Cargo.toml");
    let benches = manifest.split("[[bench]]").skip(1).map(|after| {
        let name = after.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name");
        name.trim_matches('"').to_owned()
    });
    let parts = parts();
    let missing: Vec<String> = benches.filter(|bench| !parts.contains(bench)).collect();
    assert!(missing.is_empty(), "not in tests/lab/lib/report.sh: {missing:?}");
}

#[test]
fn the_page_tells_of_every_part() {
    let page = read("tests/REPORT.md");
    let rows = parts().into_iter().map(|part| format!("| {part} | `"));
    let missing: Vec<String> = rows.filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "tests/REPORT.md has no {missing:?}; `lab report` writes it");
}
