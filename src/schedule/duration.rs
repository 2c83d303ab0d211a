//! Durations as people write them: `15m`, `1h 30m`, `2d`.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// What a duration should look like; part of every error about one.
pub const DURATION_EXPECTED: &str = "a duration with its unit, such as \"15m\" or \"1h 30m\"";

/// Reads a duration; a day counts 24 hours, a bare number is refused since nobody can tell its unit.
///
/// Returns `None` for anything else, a negative one included.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(signed).ok()
}

/// Writes a duration in the notation that [`parse_duration`] reads.
pub fn duration_text(duration: Duration) -> String {
    SignedDuration::try_from(duration).map_or_else(|_| "for ever".to_owned(), |d| format!("{d:#}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn what_people_write_is_read_and_written_back() {
        let table = [
            ("15m", Some(900), "15m"),
            ("1h 30m", Some(5400), "1h 30m"),
            ("1h30m", Some(5400), "1h 30m"),
            ("90 minutes", Some(5400), "1h 30m"),
            ("2d", Some(172_800), "48h"),
            ("1w", Some(604_800), "168h"),
            ("0s", Some(0), "0s"),
            ("15", None, ""),
            ("", None, ""),
            ("-15m", None, ""),
            ("15m ago", None, ""),
            ("1month", None, ""),
            ("soon", None, ""),
            ("99999999999999999999h", None, ""),
        ];
        for (text, seconds, written) in table {
            let read = parse_duration(text);
            assert_eq!(read.map(|d| d.as_secs()), seconds, "{text:?}");
            if let Some(read) = read {
                assert_eq!(duration_text(read), written, "{text:?}");
                assert_eq!(parse_duration(&duration_text(read)), Some(read), "{text:?}");
            }
        }
    }
}
