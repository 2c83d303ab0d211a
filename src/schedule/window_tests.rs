//! Tables of openings over DST in five zones, and what must hold for any windows at any moment.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn window(days: &str, start: &str, length: &str, zone: &str) -> Window {
    let days: Vec<&str> = days.split(',').collect();
    Window::new(&days, start, length, zone).unwrap()
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// The first opening after `from` and its end, as text.
fn next_stretch(window: &Window, from: &str) -> (String, String) {
    let windows = Windows::new(vec![window.clone()]);
    let Openness::Closed { opens: Some(opens), too_short: false } =
        windows.openness(at(from), Duration::ZERO)
    else {
        panic!("{window} is not closed at {from}");
    };
    let Openness::Open { until: Some(until) } = windows.openness(opens, Duration::ZERO) else {
        panic!("{window} is not open when it opens");
    };
    (opens.to_string(), until.to_string())
}

#[test]
fn openings_over_dst() {
    // (zone, days, start, length, looked at from, opens, closes)
    let table = [
        // An ordinary day, winter and summer.
        (
            "Europe/Berlin",
            "mon",
            "02:30",
            "1h",
            "2026-01-04T12:00:00Z",
            "2026-01-05T01:30:00Z",
            "2026-01-05T02:30:00Z",
        ),
        (
            "Europe/Berlin",
            "mon",
            "02:30",
            "1h",
            "2026-07-05T12:00:00Z",
            "2026-07-06T00:30:00Z",
            "2026-07-06T01:30:00Z",
        ),
        // 02:30 does not exist on 29 March 2026: the first instant after the gap is 03:00 CEST.
        (
            "Europe/Berlin",
            "sun",
            "02:30",
            "1h",
            "2026-03-28T12:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T02:00:00Z",
        ),
        (
            "Europe/Berlin",
            "sun",
            "02:00",
            "1h",
            "2026-03-28T12:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T02:00:00Z",
        ),
        // The length is elapsed time: two hours from 01:30 CET end at 04:30 CEST.
        (
            "Europe/Berlin",
            "sun",
            "01:30",
            "2h",
            "2026-03-28T12:00:00Z",
            "2026-03-29T00:30:00Z",
            "2026-03-29T02:30:00Z",
        ),
        // 02:30 comes twice on 25 October 2026: the first one, and only once.
        (
            "Europe/Berlin",
            "sun",
            "02:30",
            "30m",
            "2026-10-24T12:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
        ),
        (
            "Europe/Berlin",
            "sun",
            "02:30",
            "30m",
            "2026-10-25T01:15:00Z",
            "2026-11-01T01:30:00Z",
            "2026-11-01T02:00:00Z",
        ),
        // Round midnight into the day of the change.
        (
            "Europe/Berlin",
            "sat",
            "23:00",
            "4h",
            "2026-03-28T12:00:00Z",
            "2026-03-28T22:00:00Z",
            "2026-03-29T02:00:00Z",
        ),
        (
            "America/New_York",
            "sun",
            "02:15",
            "1h",
            "2026-03-08T00:00:00Z",
            "2026-03-08T07:00:00Z",
            "2026-03-08T08:00:00Z",
        ),
        (
            "America/New_York",
            "sun",
            "01:30",
            "1h",
            "2026-11-01T00:00:00Z",
            "2026-11-01T05:30:00Z",
            "2026-11-01T06:30:00Z",
        ),
        (
            "Asia/Kolkata",
            "wed",
            "22:30",
            "3h",
            "2026-03-31T00:00:00Z",
            "2026-04-01T17:00:00Z",
            "2026-04-01T20:00:00Z",
        ),
        // Lord Howe moves by half an hour: 02:00-02:30 is skipped on 4 October 2026 …
        (
            "Australia/Lord_Howe",
            "sun",
            "02:10",
            "1h",
            "2026-10-03T00:00:00Z",
            "2026-10-03T15:30:00Z",
            "2026-10-03T16:30:00Z",
        ),
        // … and 01:30-02:00 comes twice on 5 April 2026.
        (
            "Australia/Lord_Howe",
            "sun",
            "01:45",
            "1h",
            "2026-04-04T00:00:00Z",
            "2026-04-04T14:45:00Z",
            "2026-04-04T15:45:00Z",
        ),
        // Samoa had no 30 December 2011, a Friday: its window opens when the next day begins.
        (
            "Pacific/Apia",
            "fri",
            "12:00",
            "1h",
            "2011-12-29T00:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-30T11:00:00Z",
        ),
        (
            "UTC",
            "daily",
            "00:00",
            "1m",
            "2026-02-28T00:30:00Z",
            "2026-03-01T00:00:00Z",
            "2026-03-01T00:01:00Z",
        ),
        (
            "utc",
            "Weekends",
            "23:59",
            "2m",
            "2026-01-05T00:30:00Z",
            "2026-01-10T23:59:00Z",
            "2026-01-11T00:01:00Z",
        ),
    ];
    for (zone, days, start, length, from, opens, closes) in table {
        let window = window(days, start, length, zone);
        assert_eq!(
            next_stretch(&window, from),
            (opens.to_owned(), closes.to_owned()),
            "{window}, looked at from {from}"
        );
    }
}

#[test]
fn the_last_instant_is_inside_and_the_end_is_not() {
    let windows = Windows::new(vec![window("mon", "10:00", "1h", "UTC")]);
    let open =
        |text: &str| matches!(windows.openness(at(text), Duration::ZERO), Openness::Open { .. });
    assert!(!open("2026-01-05T09:59:59.999999999Z"));
    assert!(open("2026-01-05T10:00:00Z"));
    assert!(open("2026-01-05T10:59:59.999999999Z"));
    assert!(!open("2026-01-05T11:00:00Z"));
}

#[test]
fn an_attempt_starts_only_if_it_fits() {
    let windows = Windows::new(vec![
        window("mon", "10:00", "1h", "UTC"),
        window("tue", "10:00", "15m", "UTC"),
        window("wed", "10:00", "1h", "UTC"),
    ]);
    let cases = [
        ("2026-01-05T10:30:00Z", 30, Openness::Open { until: Some(at("2026-01-05T11:00:00Z")) }),
        // Too late for Monday's, too long for Tuesday's.
        (
            "2026-01-05T10:30:01Z",
            30,
            Openness::Closed { opens: Some(at("2026-01-07T10:00:00Z")), too_short: true },
        ),
        (
            "2026-01-05T12:00:00Z",
            15,
            Openness::Closed { opens: Some(at("2026-01-06T10:00:00Z")), too_short: false },
        ),
        ("2026-01-05T10:30:00Z", 61, Openness::Closed { opens: None, too_short: true }),
        ("2026-01-05T12:00:00Z", 61, Openness::Closed { opens: None, too_short: false }),
    ];
    for (now, needs, expected) in cases {
        assert_eq!(windows.openness(at(now), minutes(needs)), expected, "{now}, {needs} minutes");
    }
}

#[test]
fn windows_that_touch_or_overlap_are_one() {
    let windows = Windows::new(vec![
        window("mon", "22:00", "2h", "UTC"),
        window("tue", "00:00", "2h", "UTC"),
        // 02:30 to 04:30 in Berlin is 01:30 to 03:30 in winter.
        window("tue", "02:30", "2h", "Europe/Berlin"),
    ]);
    let until = Some(at("2026-01-06T03:30:00Z"));
    assert_eq!(
        windows.openness(at("2026-01-05T22:00:00Z"), minutes(330)),
        Openness::Open { until }
    );
    assert_eq!(
        windows.openness(at("2026-01-05T21:00:00Z"), minutes(330)),
        Openness::Closed { opens: Some(at("2026-01-05T22:00:00Z")), too_short: false }
    );
}

#[test]
fn every_day_of_24_hours_leaves_a_gap_only_where_the_day_has_25() {
    let windows = Windows::new(vec![window("daily", "00:00", "24h", "Europe/Berlin")]);
    // The day of 25 hours ends at 23:00Z; its window, at midnight CEST plus 24 hours, at 22:00Z.
    assert_eq!(
        windows.openness(at("2026-10-25T22:30:00Z"), Duration::ZERO),
        Openness::Closed { opens: Some(at("2026-10-25T23:00:00Z")), too_short: false }
    );
    assert_eq!(
        windows.openness(at("2026-10-20T12:00:00Z"), minutes(24 * 60)),
        Openness::Open { until: Some(at("2026-10-25T22:00:00Z")) }
    );
}

#[test]
fn a_week_long_window_is_open_at_any_time() {
    let windows = Windows::new(vec![window("wed", "12:00", "7d", "UTC")]);
    let now = at("2026-05-05T03:04:05Z");
    let Openness::Open { until: Some(until) } = windows.openness(now, minutes(25 * 60)) else {
        panic!("closed");
    };
    assert!(until > now + SignedDuration::from_hours(24 * 10));
    // The hour before it opens anew belongs to the occurrence of seven days ago.
    let last_hour = windows.openness(at("2026-05-06T11:30:00Z"), Duration::ZERO);
    assert!(matches!(last_hour, Openness::Open { .. }), "{last_hour:?}");
}

#[test]
fn what_fits_only_on_a_day_of_dst_is_found_within_the_year() {
    // The two touch only where the clock skips the hour between them.
    let windows = Windows::new(vec![
        window("sun", "01:00", "1h", "Europe/Berlin"),
        window("sun", "03:00", "1h", "Europe/Berlin"),
    ]);
    assert_eq!(
        windows.openness(at("2026-04-01T00:00:00Z"), minutes(120)),
        Openness::Closed { opens: Some(at("2027-03-28T00:00:00Z")), too_short: false }
    );
}

#[test]
fn no_windows_means_always() {
    let now = at("2026-04-01T00:00:00Z");
    assert_eq!(Windows::default().openness(now, LENGTH_MAX), Openness::Open { until: None });
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    let windows = Windows::new(vec![window("daily", "00:00", "7d", "Asia/Kolkata")]);
    for now in [Timestamp::MIN, Timestamp::MAX] {
        windows.openness(now, Duration::ZERO);
        windows.openness(now, Duration::MAX);
    }
}

#[test]
fn a_wrong_part_is_named() {
    let check = |days: &[&str], start: &str, length: &str, zone: &str| {
        Window::new(days, start, length, zone).unwrap_err().to_string()
    };
    let days = "days: expected days such as \"mon\" or \"monday\", \"daily\", \"weekdays\" or \"weekends\", at least one";
    assert_eq!(check(&["mo"], "10:00", "1h", "UTC"), format!("{days}, found \"mo\""));
    assert_eq!(check(&[], "10:00", "1h", "UTC"), format!("{days}, found \"\""));
    for start in
        ["", "10", "9:30", "24:00", "10:60", "10:00:00", "-1:00", "+1:00", "１0:00", "10:0a"]
    {
        assert_eq!(
            check(&["mon"], start, "1h", "UTC"),
            format!("start: expected a local time from \"00:00\" to \"23:59\", found {start:?}")
        );
    }
    assert_eq!(
        check(&["mon"], "10:00", "2", "UTC"),
        "length: expected a duration with its unit, such as \"15m\" or \"1h 30m\", found \"2\""
    );
    for length in ["0s", "2s", "169h", "8d"] {
        assert_eq!(
            check(&["mon"], "10:00", length, "UTC"),
            format!("length: expected a duration between \"1m\" and \"7d\", found {length:?}")
        );
    }
    for zone in ["", "Berlin", "Europe/Berlin2", "../../etc/passwd", "Etc/Unknown", "+02:00"] {
        assert_eq!(
            check(&["mon"], "10:00", "1h", zone),
            format!(
                "zone: expected the IANA name of a time zone that this host knows (tzdata), such as \"UTC\" or \"Europe/Berlin\", found {zone:?}"
            )
        );
    }
}

#[test]
fn a_window_can_be_read_by_a_person() {
    let table = [
        (
            window("sat,monday,SAT", "09:05", "90m", "europe/berlin"),
            "mon,sat 09:05 for 1h 30m, Europe/Berlin",
        ),
        (window("weekdays,weekends", "00:00", "1d", "UTC"), "daily 00:00 for 24h, UTC"),
    ];
    for (window, text) in table {
        assert_eq!(window.to_string(), text);
    }
    assert_eq!(Windows::default().to_string(), "always");
}

/// Any window in any of the zones.
fn any_window() -> impl Strategy<Value = Window> {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    const ZONES: [&str; 6] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let days = proptest::sample::subsequence(DAYS.to_vec(), 1..=7);
    (days, 0..24, 0..60, 1..=10_080_u32, 0..ZONES.len()).prop_map(
        |(days, hour, minute, length, zone)| {
            let start = format!("{hour:02}:{minute:02}");
            Window::new(&days, &start, &format!("{length}m"), ZONES[zone]).unwrap()
        },
    )
}

/// Any moment of some years, changes of DST more often than chance has them.
fn any_moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        1_262_304_000_i64..1_893_456_000,
        (1_774_742_400_i64 - 7200)..(1_774_742_400 + 21_600), // 29 March 2026, Berlin
        (1_792_886_400_i64 - 7200)..(1_792_886_400 + 21_600), // 25 October 2026, Berlin
        (1_325_200_000_i64 - 90_000)..(1_325_200_000 + 90_000), // 30 December 2011, Apia
    ]
    .prop_map(|second| Timestamp::from_second(second).unwrap())
}

/// Whether a moment is inside, found the slow way: every local date of the last days, each alone.
fn inside(windows: &[Window], moment: Timestamp) -> bool {
    windows.iter().any(|window| {
        let today = window.zone.to_datetime(moment).date();
        (-12..=2).any(|offset| {
            window
                .on(today.checked_add(offset.days()).unwrap())
                .is_some_and(|stretch| stretch.start <= moment && moment < stretch.end)
        })
    })
}

proptest! {
    #[test]
    fn open_means_inside_until_then_and_closed_means_open_when_it_opens(
        list in proptest::collection::vec(any_window(), 1..4),
        now in any_moment(),
        needs in 0_u64..100_000,
        shares in proptest::collection::vec(0.0_f64..1.0, 16),
    ) {
        let needs = Duration::from_secs(needs);
        let windows = Windows::new(list.clone());
        match windows.openness(now, needs) {
            Openness::Open { until } => {
                let until = until.unwrap();
                let room = now.duration_until(until);
                prop_assert!(room >= SignedDuration::try_from(needs).unwrap());
                for share in shares {
                    let moment = now + SignedDuration::try_from_secs_f64(room.as_secs_f64() * share).unwrap();
                    prop_assert!(moment >= until || inside(&list, moment), "{moment} is outside");
                }
            }
            Openness::Closed { opens, too_short } => {
                prop_assert_eq!(too_short, inside(&list, now));
                if let Some(opens) = opens {
                    prop_assert!(opens > now);
                    let then = windows.openness(opens, needs);
                    prop_assert!(matches!(then, Openness::Open { .. }), "{then:?} at {opens}");
                    let just_before = opens - SignedDuration::from_nanos(1);
                    prop_assert!(!inside(&list, just_before), "it was open before");
                    // Nothing that is long enough was passed over on the way.
                    for share in shares {
                        let room = now.duration_until(opens).as_secs_f64() * share;
                        let moment = now + SignedDuration::try_from_secs_f64(room).unwrap();
                        let then = windows.openness(moment, needs);
                        let closed = matches!(then, Openness::Closed { .. });
                        prop_assert!(moment >= opens || closed);
                    }
                }
            }
        }
    }
}
