//! Times and texts for people.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What a person sees the world by: the zone of the terminal and the moment of the answer.
#[derive(Debug, Clone)]
pub(super) struct Eyes {
    /// Zone that times are written in.
    pub(super) zone: TimeZone,
    /// The moment from which ages are counted.
    pub(super) now: Timestamp,
}

/// Name of a line, padded; then its text.
pub(super) fn line(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{name:<9}{}", clean(text))
}

/// A line that belongs to the one before.
pub(super) fn more(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "           {}", clean(text))
}

/// Without control characters: texts of servers and of persons go to a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `9 s`, `9 min 30 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (large, large_unit, small, small_unit) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => (seconds / 60, "min", seconds % 60, "s"),
        3600..86400 => (seconds / 3600, "h", seconds % 3600 / 60, "min"),
        86400.. => (seconds / 86400, "d", seconds % 86400 / 3600, "h"),
        ..0 => return "0 s".to_owned(),
    };
    if small == 0 {
        return format!("{large} {large_unit}");
    }
    format!("{large} {large_unit} {small} {small_unit}")
}

// === impl Eyes ===

impl Eyes {
    /// The terminal's zone, now.
    pub(super) fn open() -> Self {
        Self { zone: TimeZone::system(), now: crate::signals::clock::now().wall }
    }

    /// `2026-11-30 12:00:00 CET`.
    pub(super) fn time(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// `12:00:00`.
    pub(super) fn clock(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string()
    }

    /// `9 min 30 s`, from `time` to now.
    pub(super) fn age(&self, time: Timestamp) -> String {
        duration(self.now.duration_since(time).as_secs())
    }

    /// `in 4 min 30 s`, from now to `time`; `None` once it has come.
    pub(super) fn until(&self, time: Timestamp) -> Option<String> {
        let seconds = time.duration_since(self.now).as_secs();
        (seconds > 0).then(|| format!("in {}", duration(seconds)))
    }

    /// `2026-11-30 12:00:00 CET (9 min 30 s ago)`.
    pub(super) fn since(&self, time: Timestamp) -> String {
        format!("{} ({} ago)", self.time(time), self.age(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, expected) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (570, "9 min 30 s"),
            (7500, "2 h 5 min"),
            (86400, "1 d"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(clean("a\u{1b}[31mb\r\nc"), "a [31mb  c");
    }
}
