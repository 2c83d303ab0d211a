//! `Retry-After`, as seconds or as a date.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// More than an hour is not believed: a server's wrong clock must not park a node for days.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Reads the header's value; `None` where it is neither a number of seconds nor an HTTP date.
///
/// A date that has passed is zero. More than [`RETRY_AFTER_MAX`] is cut to it.
pub fn read_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.chars().all(|c| c.is_ascii_digit()) {
        // What does not fit a u64 is a long time all the same.
        let seconds = value.parse::<u64>().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let then = rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    let wait = then.duration_since(now);
    Some(Duration::try_from(wait).unwrap_or(Duration::ZERO).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_bounded() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let cases = [
            ("0", Some(0)),
            (" 17 ", Some(17)),
            ("3601", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Mon, 30 Nov 2026 12:00:45 GMT", Some(45)),
            ("Mon, 30 Nov 2026 11:00:00 GMT", Some(0)),
            ("Tue, 01 Dec 2026 12:00:00 GMT", Some(3600)),
            ("", None),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("2026-11-30T12:00:45Z", None),
        ];
        for (value, seconds) in cases {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(read_retry_after(value, now), expected, "{value:?}");
        }
    }
}
