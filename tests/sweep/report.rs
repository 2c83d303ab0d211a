//! The matrix as a section of the report, where one is wanted.

use std::fmt::Write as _;
use std::time::Duration;

use crate::fault::Fault;
use crate::place::Place;
use crate::runner::Played;

/// Writes the section into the folder that `LOCKKEEPER_REPORT` names, if it names one.
pub fn write(played: &[Played], took: Duration) {
    let Some(folder) = std::env::var_os("LOCKKEEPER_REPORT") else { return };
    let path = std::path::PathBuf::from(folder).join("30-sweep.md");
    if let Err(error) = std::fs::write(&path, section(played, took)) {
        eprintln!("{}: {error}", path.display());
    }
}

fn section(played: &[Played], took: Duration) -> String {
    let held = played.iter().filter(|one| one.end.is_ok()).count();
    let mut text = format!(
        "## Stages x faults, in the lab\n\n{} cells in {} s, {held} held. A cell shows how the attempt \
        ended that was hit at that stage, and the seconds from the staging to the checked end: in \
        service, no slot held, no second reboot, updated or explained, no unexpected error.\n\n",
        played.len(),
        took.as_secs()
    );
    let faults: Vec<Fault> =
        Fault::ALL.into_iter().filter(|f| played.iter().any(|one| one.cell.fault == *f)).collect();
    let row = |text: &mut String, cells: &[String]| {
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes all");
    };
    let names = faults.iter().map(|fault| fault.name().to_owned());
    let head: Vec<String> =
        ["stage", "kept there by"].map(str::to_owned).into_iter().chain(names).collect();
    row(&mut text, &head);
    row(&mut text, &vec!["---".to_owned(); head.len()]);
    for place in Place::ALL {
        let of = |fault: &Fault| {
            let here = |one: &&Played| one.cell.place == place && one.cell.fault == *fault;
            played.iter().find(here).map_or_else(
                || "–".to_owned(),
                |one| {
                    let end = one.end.as_deref().unwrap_or("**failed**");
                    format!("{end} {} s", one.took.as_secs())
                },
            )
        };
        let cells = [place.name(), place.how()].map(str::to_owned).into_iter();
        let cells: Vec<String> = cells.chain(faults.iter().map(of)).collect();
        row(&mut text, &cells);
    }
    text
}
