//! kured's one window: days, from when to when.

use std::time::Duration;

use crate::cli::import::draft::Draft;
use crate::cli::import::given::{Given, Inputs};
use crate::cli::import::windows::{DAY, DAYS, Opening, day};

/// When it may begin.
pub(super) fn windows(inputs: &mut Inputs, draft: &mut Draft) {
    let days = inputs.take_all("reboot-days", draft);
    let start = inputs.take("start-time", draft);
    let end = inputs.take("end-time", draft);
    let zone = inputs.take("time-zone", draft).filter(|given| !given.value.is_empty());
    let mut chosen: Vec<&'static str> = Vec::new();
    for given in &days {
        for text in given.value.split(',') {
            match weekday(text) {
                Some(day) => chosen.push(day),
                None => draft.refuse(given, "days such as mon,tue or numbers from 0 (sun) to 6"),
            }
        }
    }
    if days.is_empty() {
        chosen = DAYS.to_vec();
    }
    let expected = "a time such as 9:00, 21:30 or 09:30pm";
    let mut time = |given: Option<&Given>, default: u64| {
        let Some(given) = given else { return default };
        seconds(&given.value).unwrap_or_else(|| {
            draft.refuse(given, expected);
            default
        })
    };
    // It opens at whole minutes; its end counts to the end of its last second.
    let start_at = time(start.as_ref(), 0).div_ceil(60) * 60;
    let end_at = time(end.as_ref(), DAY - 1);
    let end_at = if end_at % 60 == 59 { end_at + 1 } else { end_at };
    let zone_name = zone.as_ref().map_or("UTC", |given| given.value.as_str());
    if zone_name == "Local" {
        draft.of_windows(
            "Local is the zone of kured's pod, UTC most often: correct it if it is not.",
        );
    }
    let zone_name = if zone_name == "Local" { "UTC" } else { zone_name };
    let all_days = DAYS.iter().all(|day| chosen.contains(day));
    for (from, to) in stretches(start_at, end_at, all_days) {
        if all_days && from == 0 && to == DAY {
            continue;
        }
        match Opening::new(&chosen, from, Duration::from_secs(to - from), zone_name) {
            Ok(window) => draft.window(window),
            Err(error) => {
                let given = match error.key {
                    "zone" => zone.as_ref(),
                    _ => end.as_ref().or(start.as_ref()).or(days.first()),
                };
                if let Some(given) = given {
                    draft.refuse(given, error.expected);
                }
            }
        }
    }
}

/// The stretches of a day that a window has. Where it goes over midnight, kured asks for the day on
/// which the clock is read, so that it is open at both ends of each day.
fn stretches(start: u64, end: u64, all_days: bool) -> Vec<(u64, u64)> {
    if start <= end {
        return vec![(start, end)];
    }
    if all_days {
        return vec![(start, DAY + end)];
    }
    let morning = (end > 0).then_some((0, end));
    morning.into_iter().chain([(start, DAY)]).collect()
}

/// A day by name, or by number from Sunday on.
fn weekday(text: &str) -> Option<&'static str> {
    match text.parse::<usize>() {
        Ok(number) => DAYS.get(number).copied(),
        Err(_) => day(text),
    }
}

/// Seconds of the day: `15:04`, `15:04:05`, `03:04pm`, `15` or `03pm`.
fn seconds(text: &str) -> Option<u64> {
    let half = ["am", "pm"].into_iter().find(|half| text.ends_with(half));
    let digits = half.and_then(|half| text.strip_suffix(half)).unwrap_or(text);
    let parts: Vec<&str> = digits.split(':').collect();
    let number = |text: &str, exact: bool, most: u64| {
        let length = if exact { 2..=2 } else { 1..=2 };
        let plain = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| plain && *number <= most)
    };
    let hour = number(parts.first()?, half.is_some(), if half.is_some() { 12 } else { 23 })?;
    let hour = match half {
        Some("am") if hour == 12 => 0,
        Some("pm") if hour < 12 => hour + 12,
        Some(_) | None => hour,
    };
    let minute = parts.get(1).map_or(Some(0), |text| number(text, true, 59))?;
    let second = parts.get(2).map_or(Some(0), |text| number(text, true, 59))?;
    let most = if half.is_some() { 2 } else { 3 };
    (parts.len() <= most).then_some(hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go() {
        const HOUR: u64 = 3600;
        for (text, expected) in [
            ("0:00", Some(0)),
            ("9", Some(9 * HOUR)),
            ("23:59:59", Some(DAY - 1)),
            ("09:30pm", Some(21 * HOUR + 1800)),
            ("12:15am", Some(900)),
            ("12pm", Some(12 * HOUR)),
            ("9pm", None),
            ("9:5", None),
            ("24:00", None),
            ("13pm", None),
            ("9:00:00:00", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expected, "{text:?}");
        }
    }

    /// kured asks for the day on which the clock is read, so that a night belongs to two days.
    #[test]
    fn a_night_is_open_at_both_ends_of_its_days() {
        assert_eq!(stretches(100, 200, false), [(100, 200)]);
        assert_eq!(stretches(200, 100, true), [(200, DAY + 100)]);
        assert_eq!(stretches(200, 100, false), [(0, 100), (200, DAY)]);
        assert_eq!(stretches(200, 0, false), [(200, DAY)]);
    }
}
