//! Reboot windows of other tools: their days, times and durations.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use crate::schedule::{Window, WindowError, duration_text};

use super::draft::quoted;

/// The days as the configuration writes them, Sunday first, as Go counts them.
pub(super) const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Seconds of a day on which no clock is changed.
pub(super) const DAY: u64 = 24 * 3600;

/// A window that can be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    days: Vec<&'static str>,
    window: Window,
}

impl Opening {
    /// A window on these days, from this minute of the day on, for so long.
    ///
    /// # Errors
    /// Names what the configuration would not take.
    pub(super) fn new(
        days: &[&'static str],
        start: u64,
        length: Duration,
        zone: &str,
    ) -> Result<Self, WindowError> {
        let mut days: Vec<&'static str> = days.to_vec();
        // As a week is written here: from Monday on, each day once.
        days.sort_by_key(|day| DAYS.iter().position(|known| known == day).map(|n| (n + 6) % 7));
        days.dedup();
        let start = format!("{:02}:{:02}", start / 3600, start % 3600 / 60);
        let window = Window::new(&days, &start, &duration_text(length), zone)?;
        Ok(Self { days, window })
    }

    /// The window itself.
    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// The table in the configuration.
    pub(super) fn table(&self) -> String {
        let days = if self.days.len() == DAYS.len() {
            quoted("daily")
        } else {
            let days: Vec<String> = self.days.iter().map(|day| quoted(day)).collect();
            format!("[{}]", days.join(", "))
        };
        format!(
            "[[windows]]\ndays = {days}\nstart = {}\nlength = {}\nzone = {}\n",
            quoted(&self.window.start()),
            quoted(&duration_text(self.window.length())),
            quoted(self.window.zone()),
        )
    }
}

/// A day by its English name, whole or its first two or three letters.
pub(super) fn day(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let rest = ["day", "day", "sday", "nesday", "rsday", "day", "urday"];
    DAYS.iter()
        .zip(rest)
        .find(|(day, rest)| {
            lower == **day || lower.as_str() == &day[..2] || lower == format!("{day}{rest}")
        })
        .map(|(day, _)| *day)
}

/// `HH:MM`, or `H:MM`: seconds of the day.
pub(super) fn clock_time(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, most: u64| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number <= most)
    };
    Some(number(hour, 23)? * 3600 + number(minute, 59)? * 60)
}

/// A duration as Go writes it: `1h30m`, `1.5h`, `90s`, `0`. Those below zero are none.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut nanoseconds = 0.0_f64;
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let unit = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        nanoseconds += number
            * match unit {
                "h" => 3.6e12,
                "m" => 6e10,
                "s" => 1e9,
                "ms" => 1e6,
                "us" | "µs" | "μs" => 1e3,
                "ns" => 1.0,
                _ => return None,
            };
        rest = behind;
    }
    Duration::try_from_secs_f64(nanoseconds / 1e9).ok()
}

/// The zone of the host whose / is at `root`; `None` if nobody can tell.
pub(super) fn local_zone(root: &Path) -> Option<String> {
    match fs::read_link(root.join("etc/localtime")) {
        Ok(link) => {
            let link = link.to_str()?;
            let (_, zone) = link.split_once("zoneinfo/")?;
            let known = Window::new(&["daily"], "00:00", "1h", zone).is_ok();
            known.then(|| zone.to_owned())
        }
        // As the C library has it.
        Err(error) if error.kind() == ErrorKind::NotFound => Some("UTC".to_owned()),
        Err(_) => None,
    }
}

/// A start as locksmith and FLUO take it: `[Ddd ]HH:MM`, days and seconds of the day.
pub(super) fn weekly_start(text: &str) -> Option<(Vec<&'static str>, u64)> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.as_slice() {
        [time] => Some((DAYS.to_vec(), clock_time(time)?)),
        [name, time] if name.len() == 3 => Some((vec![day(name)?], clock_time(time)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, seconds) in [
            ("0", Some(0.0)),
            ("0s", Some(0.0)),
            ("1h30m", Some(5400.0)),
            ("1.5h", Some(5400.0)),
            ("+90s", Some(90.0)),
            ("1500ms", Some(1.5)),
            ("", None),
            ("90", None),
            ("-1h", None),
            ("1h 30m", None),
            ("1d", None),
            ("h", None),
            ("1.2.3s", None),
            ("99999999999999999999999h", None),
        ] {
            assert_eq!(go_duration(text).map(|d| d.as_secs_f64()), seconds, "{text:?}");
        }
    }

    #[test]
    fn days_and_times_are_those_of_people() {
        for (text, expected) in
            [("Mon", Some("mon")), ("th", Some("thu")), ("SATURDAY", Some("sat")), ("noon", None)]
        {
            assert_eq!(day(text), expected, "{text}");
        }
        for (text, expected) in [
            ("9:05", Some(9 * 3600 + 300)),
            ("23:59", Some(DAY - 60)),
            ("24:00", None),
            ("9:60", None),
            ("+9:00", None),
            ("9", None),
        ] {
            assert_eq!(clock_time(text), expected, "{text}");
        }
        assert_eq!(weekly_start("Thu 4:00"), Some((vec!["thu"], 4 * 3600)));
        assert_eq!(weekly_start("4:00").map(|(days, _)| days.len()), Some(7));
        assert_eq!(weekly_start("Thursday 4:00"), None);
        assert_eq!(weekly_start("Mon Tue 4:00"), None);
    }

    #[test]
    fn the_zone_of_the_host_is_where_its_link_leads() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let link = root.path().join("etc/localtime");
        assert_eq!(local_zone(root.path()).as_deref(), Some("UTC"));
        for (target, expected) in [
            ("../usr/share/zoneinfo/Europe/Berlin", Some("Europe/Berlin")),
            ("../usr/share/zoneinfo/Mars/Olympus", None),
            ("elsewhere", None),
        ] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(local_zone(root.path()).as_deref(), expected, "{target}");
            fs::remove_file(&link).unwrap();
        }
        fs::write(&link, "TZif").unwrap();
        assert_eq!(local_zone(root.path()), None);
    }
}
