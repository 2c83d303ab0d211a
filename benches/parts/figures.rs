//! Figures: medians, and the rows of a table that says which limits hold.

use std::fmt::Write as _;
use std::process::ExitCode;

/// A section of the report, and whether all its limits hold.
#[derive(Debug)]
pub struct Section {
    text: String,
    good: bool,
}

/// The median; `NaN` of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The largest.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Seconds between two times in microseconds.
#[allow(clippy::cast_precision_loss, reason = "far from where a float loses microseconds")]
pub fn seconds(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e6
}

// === impl Section ===

impl Section {
    /// Begins with this text.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), good: true }
    }

    /// Text, as it is.
    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    /// A row that ends with whether its limit holds: `value` is at most `limit`.
    pub fn row(&mut self, cells: &str, value: f64, limit: f64) {
        let holds = value <= limit;
        self.good &= holds;
        let word = if holds { "holds" } else { "**missed**" };
        let _ = writeln!(self.text, "| {cells} | {word} |");
    }

    /// Prints it, writes it where the report wants it, and says how it ended.
    pub fn end(self, file: &str) -> ExitCode {
        println!("{}", self.text);
        if let Some(folder) = std::env::var_os("LOCKKEEPER_REPORT") {
            std::fs::write(std::path::Path::new(&folder).join(file), &self.text).unwrap();
        }
        if self.good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
