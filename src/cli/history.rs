//! The attempts as a table.

use std::io::{self, Write};

use jiff::Timestamp;

use crate::admin::{FinishedStatus, History};

use super::words::{Eyes, clean, duration};

/// Writes it, the newest attempt last, next to the prompt.
pub(super) fn write(history: &History, eyes: &Eyes, out: &mut dyn Write) -> io::Result<()> {
    if history.attempts.is_empty() {
        return writeln!(out, "There was no attempt on this node yet.");
    }
    let mut rows =
        vec![["ATTEMPT", "TARGET", "OUTCOME", "BEGAN", "TOOK", "STAGES"].map(str::to_owned)];
    rows.extend(history.attempts.iter().map(|attempt| row(attempt, eyes)));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let details = std::iter::once(None).chain(history.attempts.iter().map(|a| a.detail.as_ref()));
    for (row, detail) in rows.iter().zip(details) {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
        if let Some(detail) = detail {
            writeln!(out, "  {}", clean(detail))?;
        }
    }
    Ok(())
}

fn row(attempt: &FinishedStatus, eyes: &Eyes) -> [String; 6] {
    let end = attempt.ended.unwrap_or(eyes.now);
    let began = attempt.stages.first().map_or(end, |stage| stage.since);
    let took = end.duration_since(began).as_secs();
    [
        clean(&attempt.attempt),
        clean(attempt.target.name()),
        outcome(attempt),
        eyes.time(began),
        duration(took),
        stages(attempt, end),
    ]
}

fn outcome(attempt: &FinishedStatus) -> String {
    match attempt.outcome.as_str() {
        outcome if attempt.running && outcome != "under way" => format!("{outcome}, under way"),
        outcome => outcome.to_owned(),
    }
}

/// `waiting 5 s, draining 12 min`: each stage up to the next, the last one up to the end, or
/// to now.
fn stages(attempt: &FinishedStatus, end: Timestamp) -> String {
    let ends = attempt.stages.iter().skip(1).map(|stage| stage.since).chain([end]);
    let stages = attempt
        .stages
        .iter()
        .zip(ends)
        .map(|(stage, end)| (stage.stage.as_str(), end.duration_since(stage.since).as_secs()));
    // The stage behind the end is no part of the attempt.
    let within = stages.filter(|(stage, _)| !matches!(*stage, "idle"));
    let texts: Vec<String> =
        within.map(|(stage, seconds)| format!("{stage} {}", duration(seconds))).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use expect_test::expect;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::admin::sample;
    use crate::lifecycle::{Outcome, Record};

    fn told(record: &Record) -> String {
        let eyes = Eyes { zone: TimeZone::UTC, now: "2026-11-30T12:00:00Z".parse().unwrap() };
        let mut out = Vec::new();
        write(&History::of(record), &eyes, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn attempts_are_a_table() {
        let mut second = sample::finished();
        second.outcome = Outcome::Updated;
        second.detail = None;
        second.target.version = None;
        let record = Record { history: vec![sample::finished(), second], ..Record::default() };
        expect![[r#"
            ATTEMPT     TARGET       OUTCOME  BEGAN                    TOOK  STAGES
            3f2a9c1e-1  42.1         yielded  2026-11-30 10:30:00 UTC  1 h   waiting 5 s, requesting 5 s, draining 1 h, yielding 1 s, releasing 1 s
              shop/cart-0: disruption budget cart: needs 2, has 2
            3f2a9c1e-1  sha256:42a1  updated  2026-11-30 10:30:00 UTC  1 h   waiting 5 s, requesting 5 s, draining 1 h, yielding 1 s, releasing 1 s
        "#]].assert_eq(&told(&record));
    }

    /// A settling one says what it brings if all goes well, and that it is not there yet.
    #[test]
    fn the_one_under_way_is_the_last_row() {
        let mut record = sample::draining().state.record;
        let mut out = told(&record);
        record.ending = Some(Outcome::Updated);
        record.history.clear();
        out.push_str(&told(&record));
        expect![[r#"
            ATTEMPT     TARGET  OUTCOME    BEGAN                    TOOK    STAGES
            3f2a9c1e-1  42.1    yielded    2026-11-30 10:30:00 UTC  1 h     waiting 5 s, requesting 5 s, draining 1 h, yielding 1 s, releasing 1 s
              shop/cart-0: disruption budget cart: needs 2, has 2
            3f2a9c1e-2  42.1    under way  2026-11-30 11:45:00 UTC  15 min  waiting 5 min, requesting 30 s, draining 9 min 30 s
            ATTEMPT     TARGET  OUTCOME             BEGAN                    TOOK    STAGES
            3f2a9c1e-2  42.1    updated, under way  2026-11-30 11:45:00 UTC  15 min  waiting 5 min, requesting 30 s, draining 9 min 30 s
        "#]].assert_eq(&out);
    }

    #[test]
    fn none_is_said() {
        assert_eq!(told(&Record::default()), "There was no attempt on this node yet.\n");
    }
}
