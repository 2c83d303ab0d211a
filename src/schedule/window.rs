//! Weekly reboot windows in a named zone, right over DST.
//!
//! Each occurrence begins at a local time of its zone and lasts a real, elapsed length:
//! - a local start that the clock skips becomes the first instant after the gap;
//! - a local start that comes twice opens once, at the first;
//! - windows that overlap or touch count as one, so that back-to-back windows leave no seam.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::duration::{DURATION_EXPECTED, duration_text, parse_duration};

/// One weekly window: on these days, from this local time on, for this long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Days on which it opens, Monday first, none twice; never empty.
    days: Vec<Weekday>,
    /// Local time at which it opens, whole minutes.
    start: Time,
    /// How long it stays open, elapsed time; between a minute and [`LENGTH_MAX`].
    length: Duration,
    /// Whose local time.
    zone: TimeZone,
}

/// All windows; none at all means: always.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Windows(Vec<Window>);

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}, found {found:?}")]
pub struct WindowError {
    /// The key that is wrong: `days`, `start`, `length` or `zone`.
    pub key: &'static str,
    /// What it should be.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

/// What the windows say of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// Open, and the attempt fits.
    Open {
        /// Until when at least; `None`: for ever (no windows).
        until: Option<Timestamp>,
    },
    /// Not open, or what is left is too short.
    Closed {
        /// When the next one opens into which it fits; `None`: never.
        opens: Option<Timestamp>,
        /// One is open, but what is left of it is too short.
        too_short: bool,
    },
}

/// Longest window: a weekly one that never closes.
pub const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Shortest window; less is a slip of the pen (`2s` for `2h`).
const LENGTH_MIN: Duration = Duration::from_secs(60);

/// Days to look back for an occurrence that is still open: the longest length, a day of zone
/// offset and a day that a zone may skip.
const DAYS_BACK: i64 = 9;

/// Days to look ahead at first: two weeks hold the next occurrence of every day, whatever DST does.
const DAYS_AHEAD: i64 = 15;

/// Days to look ahead at last. Weeks differ only where DST changes, which repeats every year: what
/// does not open within a year and a week never opens.
const DAYS_AHEAD_MAX: i64 = 373;

/// A stretch of open time, its end outside.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    start: Timestamp,
    end: Timestamp,
}

// === impl Window ===

impl Window {
    /// Reads a window from its four texts.
    ///
    /// `days`: `mon` … `sun`, their English names, `daily`, `weekdays`, `weekends`; `start`:
    /// `HH:MM`; `length`: a duration; `zone`: an IANA name.
    ///
    /// # Errors
    /// Names the first key that is wrong.
    pub fn new(
        days: &[impl AsRef<str>],
        start: &str,
        length: &str,
        zone: &str,
    ) -> Result<Self, WindowError> {
        Ok(Self {
            days: parse_days(days)?,
            start: parse_start(start)?,
            length: parse_length(length)?,
            zone: parse_zone(zone)?,
        })
    }

    /// How long it stays open.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Days on which it opens, as the configuration writes them.
    pub fn days(&self) -> impl Iterator<Item = &'static str> {
        self.days.iter().copied().map(short_name)
    }

    /// Local time at which it opens, `HH:MM`.
    pub fn start(&self) -> String {
        format!("{:02}:{:02}", self.start.hour(), self.start.minute())
    }

    /// IANA name of its zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// When it opens next, `now` included if it is open; `None` if it never does again.
    pub fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        match openness(std::slice::from_ref(self), now, Duration::ZERO) {
            Openness::Open { .. } => Some(now),
            Openness::Closed { opens, .. } => opens,
        }
    }

    /// Its occurrence on a local date, if there is one.
    fn on(&self, date: Date) -> Option<Stretch> {
        if !self.days.contains(&date.weekday()) {
            return None;
        }
        let start = self.instant(date)?;
        let length = SignedDuration::try_from(self.length).ok()?;
        Some(Stretch { start, end: start.checked_add(length).ok()? })
    }

    /// The instant at which it opens on a local date.
    fn instant(&self, date: Date) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(date.to_datetime(self.start));
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
                ambiguous.earlier().ok()
            }
            // Read with the offset of after the gap, the local time lies before the change; the
            // change itself is the first instant after the gap.
            AmbiguousOffset::Gap { after, .. } => {
                let before_change = ambiguous.earlier().ok()?;
                self.zone
                    .following(before_change)
                    .find(|change| change.offset() == after)
                    .map(|change| change.timestamp())
            }
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days.len() == 7 {
            f.write_str("daily")?;
        } else {
            let days: Vec<&str> = self.days().collect();
            f.write_str(&days.join(","))?;
        }
        write!(f, " {} for {}, {}", self.start(), duration_text(self.length), self.zone())
    }
}

// === impl Windows ===

impl Windows {
    /// These windows; an empty list means always.
    pub fn new(windows: Vec<Window>) -> Self {
        Self(windows)
    }

    /// Whether something that takes `needs` may begin at `now`.
    pub fn openness(&self, now: Timestamp, needs: Duration) -> Openness {
        if self.0.is_empty() {
            return Openness::Open { until: None };
        }
        openness(&self.0, now, needs)
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Window> {
        self.0.iter()
    }
}

/// `always`, or the windows with `; ` between them.
impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("always");
        }
        for (n, window) in self.0.iter().enumerate() {
            let between = if n == 0 { "" } else { "; " };
            write!(f, "{between}{window}")?;
        }
        Ok(())
    }
}

/// What a list of windows, not empty, says of a moment.
fn openness(windows: &[Window], now: Timestamp, needs: Duration) -> Openness {
    let needs = SignedDuration::try_from(needs).unwrap_or(SignedDuration::MAX);
    let fits = |from: Timestamp, stretch: &Stretch| from.duration_until(stretch.end) >= needs;
    let mut too_short = false;
    for days in [DAYS_AHEAD, DAYS_AHEAD_MAX] {
        let stretches = merged(windows, now, days);
        too_short = false;
        for stretch in &stretches {
            if stretch.start <= now {
                if fits(now, stretch) {
                    return Openness::Open { until: Some(stretch.end) };
                }
                too_short = true;
            } else if fits(stretch.start, stretch) {
                return Openness::Closed { opens: Some(stretch.start), too_short };
            }
        }
    }
    Openness::Closed { opens: None, too_short }
}

/// The open stretches that end after `now`, in order, with a true gap between any two.
fn merged(windows: &[Window], now: Timestamp, days_ahead: i64) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = windows
        .iter()
        .flat_map(|window| {
            let today = window.zone.to_datetime(now).date();
            (-DAYS_BACK..=days_ahead)
                .filter_map(move |offset| today.checked_add(offset.days()).ok())
                .filter_map(|date| window.on(date))
        })
        .filter(|stretch| stretch.end > now)
        .collect();
    stretches.sort_by_key(|stretch| stretch.start);
    let mut merged: Vec<Stretch> = Vec::new();
    for next in stretches {
        match merged.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            Some(_) | None => merged.push(next),
        }
    }
    merged
}

/// Reads the days; each is put once, Monday first.
fn parse_days(texts: &[impl AsRef<str>]) -> Result<Vec<Weekday>, WindowError> {
    const EXPECTED: &str =
        "days such as \"mon\" or \"monday\", \"daily\", \"weekdays\" or \"weekends\", at least one";
    let mut chosen = [false; 7];
    for text in texts {
        let days = match text.as_ref().to_ascii_lowercase().as_str() {
            "daily" => 0..7,
            "weekdays" => 0..5,
            "weekends" => 5..7,
            "mon" | "monday" => 0..1,
            "tue" | "tuesday" => 1..2,
            "wed" | "wednesday" => 2..3,
            "thu" | "thursday" => 3..4,
            "fri" | "friday" => 4..5,
            "sat" | "saturday" => 5..6,
            "sun" | "sunday" => 6..7,
            _ => return Err(wrong("days", EXPECTED, text.as_ref())),
        };
        chosen[days].fill(true);
    }
    let days: Vec<Weekday> = Weekday::Monday
        .cycle_forward()
        .zip(chosen)
        .filter_map(|(day, chosen)| chosen.then_some(day))
        .collect();
    if days.is_empty() { Err(wrong("days", EXPECTED, "")) } else { Ok(days) }
}

/// Reads `HH:MM`, nothing looser: `9:30` may be a slip for `19:30`.
fn parse_start(text: &str) -> Result<Time, WindowError> {
    let number = |digits: &str| {
        (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()))
            .then(|| digits.parse::<i8>().ok())
            .flatten()
    };
    text.split_once(':')
        .and_then(|(hour, minute)| Time::new(number(hour)?, number(minute)?, 0, 0).ok())
        .ok_or_else(|| wrong("start", "a local time from \"00:00\" to \"23:59\"", text))
}

/// Reads a length within its bounds.
fn parse_length(text: &str) -> Result<Duration, WindowError> {
    let length = parse_duration(text).ok_or_else(|| wrong("length", DURATION_EXPECTED, text))?;
    if (LENGTH_MIN..=LENGTH_MAX).contains(&length) {
        return Ok(length);
    }
    Err(wrong("length", "a duration between \"1m\" and \"7d\"", text))
}

/// Looks a zone up by its IANA name.
fn parse_zone(text: &str) -> Result<TimeZone, WindowError> {
    TimeZone::get(text).ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| {
        wrong("zone", "the IANA name of a time zone that this host knows (tzdata), such as \"UTC\" or \"Europe/Berlin\"", text)
    })
}

/// An error about one key.
fn wrong(key: &'static str, expected: &'static str, found: &str) -> WindowError {
    WindowError { key, expected, found: found.chars().take(64).collect() }
}

/// The three letters that the configuration uses.
fn short_name(day: Weekday) -> &'static str {
    match day {
        Weekday::Monday => "mon",
        Weekday::Tuesday => "tue",
        Weekday::Wednesday => "wed",
        Weekday::Thursday => "thu",
        Weekday::Friday => "fri",
        Weekday::Saturday => "sat",
        Weekday::Sunday => "sun",
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
