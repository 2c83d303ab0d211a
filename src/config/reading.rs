//! From a TOML value to a value that its key may have, or to the faults that it has.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::schedule::{DURATION_EXPECTED, Window, duration_text, parse_duration};

use super::keys::{self, Shape};
use super::rules::{self, Rule};
use super::settings::GroupSettings;

/// A value that its key may have.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading {
    Flag(bool),
    Count(u64),
    Duration(Duration),
    Text(String),
    SecretText(String),
    Texts(Vec<String>),
    Headers(BTreeMap<String, String>),
    Windows(Vec<Window>),
    Groups(Vec<GroupSettings>),
}

/// Something wrong at a place of a text.
#[derive(Debug)]
pub(super) struct Fault {
    /// Byte offset.
    pub(super) at: usize,
    /// The key.
    pub(super) key: String,
    /// What is wrong with it.
    pub(super) what: Wrong,
}

/// What is wrong with a key.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It does not exist.
    Unknown {
        /// The known key that it looks like.
        nearest: Option<String>,
    },
    /// Its value.
    Value {
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
}

/// Errors told of one file: a file in a wrong format has one in each line.
pub(super) const ERRORS_MAX: usize = 50;

/// Reads the value of a key. `None` only if there are new faults.
pub(super) fn read(
    key: &str,
    shape: &Shape,
    value: &Spanned<DeValue<'_>>,
    faults: &mut Vec<Fault>,
) -> Option<Reading> {
    let known = faults.len();
    let read = match shape {
        Shape::Flag => flag(value).map(Reading::Flag),
        Shape::Count { min, max } => count(value, *min, *max).map(Reading::Count),
        Shape::Duration { min, max } => duration(value, min, max).map(Reading::Duration),
        Shape::Choice(words) => choice(value, words).map(Reading::Text),
        Shape::Text(rule) => text(value, rule).map(Reading::Text),
        Shape::SecretText(rule) => text(value, rule).map(Reading::SecretText),
        Shape::Texts(rule) => texts(key, value, rule, faults).map(Reading::Texts),
        Shape::OneOrMore(rule) => one_or_more(key, value, rule, faults).map(Reading::Texts),
        Shape::Headers => headers(key, value, faults).map(Reading::Headers),
        Shape::Windows => windows(key, value, faults).map(Reading::Windows),
        Shape::Groups => groups(key, value, faults).map(Reading::Groups),
    };
    match read {
        Ok(reading) if faults.len() == known => Some(reading),
        Ok(_) => None,
        Err(expected) => {
            let found = found_for(shape, value);
            faults.push(wrong(key, value.span().start, expected, found));
            None
        }
    }
}

/// What a value is, for people; cut short.
pub(super) fn found(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("{number} (not in quotes)"),
        DeValue::Float(number) => format!("{number} (not in quotes)"),
        DeValue::Boolean(flag) => format!("{flag}"),
        DeValue::Datetime(time) => format!("{time} (not in quotes)"),
        DeValue::Array(list) if list.is_empty() => "an empty list".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The same for a value of this shape: what may be a password stays untold.
fn found_for(shape: &Shape, value: &Spanned<DeValue<'_>>) -> String {
    let text = value.get_ref().as_str();
    if let (Shape::SecretText(_), Some(text)) = (shape, text) {
        quoted(&rules::without_anything_before_at(text))
    } else if let (Shape::Headers, Some(_)) = (shape, text) {
        "a text (not shown)".to_owned()
    } else {
        found(value)
    }
}

/// A text in quotes with what is unprintable escaped, at most 64 characters of it.
pub(super) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(64).collect();
    if cut.len() < text.len() { format!("{cut:?} …") } else { format!("{cut:?}") }
}

/// What was expected, where it was not found.
type Expected = String;

fn flag(value: &Spanned<DeValue<'_>>) -> Result<bool, Expected> {
    value.get_ref().as_bool().ok_or_else(|| "true or false".to_owned())
}

fn count(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<u64, Expected> {
    value
        .get_ref()
        .as_integer()
        .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("a whole number from {min} to {max}"))
}

fn duration(value: &Spanned<DeValue<'_>>, min: &str, max: &str) -> Result<Duration, Expected> {
    let read = value
        .get_ref()
        .as_str()
        .and_then(parse_duration)
        .ok_or_else(|| DURATION_EXPECTED.to_owned())?;
    let within = |least: Option<Duration>, most: Option<Duration>| {
        least.is_some_and(|least| read >= least) && most.is_some_and(|most| read <= most)
    };
    if within(parse_duration(min), parse_duration(max)) {
        return Ok(read);
    }
    Err(format!("a duration from \"{min}\" to \"{max}\""))
}

fn choice(value: &Spanned<DeValue<'_>>, words: &[&str]) -> Result<String, Expected> {
    let word = value.get_ref().as_str().filter(|word| words.contains(word));
    word.map(ToOwned::to_owned).ok_or_else(|| {
        let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        words.join(" or ")
    })
}

fn text(value: &Spanned<DeValue<'_>>, rule: &Rule) -> Result<String, Expected> {
    let text = value.get_ref().as_str().filter(|text| (rule.holds)(text));
    text.map(ToOwned::to_owned).ok_or_else(|| rule.expected.to_owned())
}

fn texts(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    rule: &Rule,
    faults: &mut Vec<Fault>,
) -> Result<Vec<String>, Expected> {
    let list =
        value.get_ref().as_array().ok_or_else(|| format!("a list, each item {}", rule.expected))?;
    let mut read = Vec::new();
    for (n, item) in list.iter().enumerate() {
        match text(item, rule) {
            Ok(text) => read.push(text),
            Err(expected) => {
                let key = format!("{key}[{n}]");
                faults.push(wrong(&key, item.span().start, expected, found(item)));
            }
        }
    }
    Ok(read)
}

fn one_or_more(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    rule: &Rule,
    faults: &mut Vec<Fault>,
) -> Result<Vec<String>, Expected> {
    let expected = || format!("{}, or a list with at least one", rule.expected);
    match value.get_ref().as_array() {
        Some(list) if list.is_empty() => Err(expected()),
        Some(_) => texts(key, value, rule, faults),
        None => text(value, rule).map(|one| vec![one]).map_err(|_| expected()),
    }
}

fn headers(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    faults: &mut Vec<Fault>,
) -> Result<BTreeMap<String, String>, Expected> {
    let table =
        value.get_ref().as_table().ok_or_else(|| "a table of names and texts".to_owned())?;
    let mut read = BTreeMap::new();
    for (name, value) in table {
        let key = format!("{key}.{}", printable(name.get_ref()));
        let lower = name.get_ref().to_ascii_lowercase();
        if !(rules::HEADER_NAME.holds)(&lower) {
            let found = quoted(name.get_ref());
            faults.push(wrong(&key, name.span().start, rules::HEADER_NAME.expected, found));
        } else if let Ok(text) = text(value, &rules::HEADER_VALUE) {
            if read.insert(lower, text).is_some() {
                let found = "the same name twice (upper and lower case are the same)".to_owned();
                faults.push(wrong(&key, name.span().start, "each header once", found));
            }
        } else {
            // A header often is a password: what was found stays untold.
            let found = "something else (not shown)".to_owned();
            faults.push(wrong(&key, value.span().start, rules::HEADER_VALUE.expected, found));
        }
    }
    Ok(read)
}

fn windows(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    faults: &mut Vec<Fault>,
) -> Result<Vec<Window>, Expected> {
    // Each occurrence of the coming days is looked at in each decision; no person needs more.
    const WINDOWS_MAX: usize = 50;
    let list = tables(value)
        .filter(|list| list.len() <= WINDOWS_MAX)
        .ok_or_else(|| format!("tables [[{key}]], at most {WINDOWS_MAX}"))?;
    let mut read = Vec::new();
    for (n, item) in list.iter().enumerate() {
        let key = format!("{key}[{n}]");
        if let Some(window) = item.get_ref().as_table().and_then(|table| {
            unknown(&key, table, &["days", "start", "length", "zone"], faults);
            window(&key, item.span().start, table, faults)
        }) {
            read.push(window);
        }
    }
    Ok(read)
}

fn window(key: &str, at: usize, table: &DeTable<'_>, faults: &mut Vec<Fault>) -> Option<Window> {
    let known = faults.len();
    let mut field = |name: &str| {
        let value = table.get(name);
        let Some(value) = value else {
            let expected = "a window to have days, start and length";
            faults.push(wrong(&format!("{key}.{name}"), at, expected, "nothing".to_owned()));
            return None;
        };
        let one = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(ToOwned::to_owned);
        let texts: Option<Vec<String>> = match value.get_ref().as_array() {
            Some(list) if name == "days" => list.iter().map(one).collect(),
            Some(_) | None => one(value).map(|text| vec![text]),
        };
        if texts.is_none() {
            let expected = if name == "days" { "a text or a list of texts" } else { "a text" };
            let key = format!("{key}.{name}");
            faults.push(wrong(&key, value.span().start, expected, found(value)));
        }
        texts
    };
    let days = field("days");
    let start = field("start").map(|texts| texts.concat());
    let length = field("length").map(|texts| texts.concat());
    let zone = match table.get("zone") {
        Some(_) => field("zone").map(|texts| texts.concat()),
        None => Some("UTC".to_owned()),
    };
    // Where one key is missing or no text, the others are read all the same: with stand-ins that
    // are known to be good, so that each error is told in one go.
    let place = |name: &str| table.get(name).map_or(at, |value| value.span().start);
    let daily = vec!["daily".to_owned()];
    let parts = [
        Window::new(days.as_ref().unwrap_or(&daily), "00:00", "1h", "UTC"),
        Window::new(&daily, start.as_deref().unwrap_or("00:00"), "1h", "UTC"),
        Window::new(&daily, "00:00", length.as_deref().unwrap_or("1h"), "UTC"),
        Window::new(&daily, "00:00", "1h", zone.as_deref().unwrap_or("UTC")),
    ];
    for error in parts.into_iter().filter_map(Result::err) {
        let found = quoted(&error.found);
        let key = format!("{key}.{}", error.key);
        faults.push(wrong(&key, place(error.key), error.expected, found));
    }
    if faults.len() > known {
        return None;
    }
    Window::new(&days?, &start?, &length?, &zone?).ok()
}

fn groups(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    faults: &mut Vec<Fault>,
) -> Result<Vec<GroupSettings>, Expected> {
    // Far above what anyone runs; it bounds the file of the store.
    const GROUPS_MAX: usize = 1000;
    const SLOTS_MAX: u64 = 10_000;
    let list = tables(value)
        .filter(|list| (1..=GROUPS_MAX).contains(&list.len()))
        .ok_or_else(|| format!("tables [[{key}]], 1 to {GROUPS_MAX}"))?;
    let mut read: Vec<GroupSettings> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (n, item) in list.iter().enumerate() {
        let key = format!("{key}[{n}]");
        let Some(table) = item.get_ref().as_table() else { continue };
        unknown(&key, table, &["name", "slots"], faults);
        let mut field = |name: &str, shape: &Shape| match table.get(name) {
            Some(value) => super::reading::read(&format!("{key}.{name}"), shape, value, faults),
            None => {
                let expected = "a group to have name and slots";
                let key = format!("{key}.{name}");
                faults.push(wrong(&key, item.span().start, expected, "nothing".to_owned()));
                None
            }
        };
        let name = field("name", &Shape::Text(rules::GROUP));
        let slots = field("slots", &Shape::Count { min: 1, max: SLOTS_MAX });
        let Some(Reading::Text(name)) = name else { continue };
        if names.contains(&name) {
            let at = item.span().start;
            faults.push(wrong(&format!("{key}.name"), at, "each group once", quoted(&name)));
            continue;
        }
        names.push(name.clone());
        if let Some(Reading::Count(slots)) = slots {
            let slots = u32::try_from(slots).unwrap_or(u32::MAX);
            read.push(GroupSettings { name, slots });
        }
    }
    Ok(read)
}

/// A list in which everything is a table.
fn tables<'a, 'i>(value: &'a Spanned<DeValue<'i>>) -> Option<&'a DeArray<'i>> {
    value.get_ref().as_array().filter(|list| list.iter().all(|item| item.get_ref().is_table()))
}

/// Tells the keys of a table that nobody knows.
fn unknown(key: &str, table: &DeTable<'_>, known: &[&str], faults: &mut Vec<Fault>) {
    for name in table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
        let nearest = nearest(name.get_ref(), known.iter().copied(), faults.len());
        faults.push(Fault {
            at: name.span().start,
            key: format!("{key}.{}", printable(name.get_ref())),
            what: Wrong::Unknown { nearest: nearest.map(|nearest| format!("{key}.{nearest}")) },
        });
    }
}

/// What an unknown key was most likely meant to be. Beyond the errors that are told, nobody looks.
pub(super) fn nearest<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    faults: usize,
) -> Option<String> {
    if faults >= ERRORS_MAX {
        return None;
    }
    keys::nearest(name, known).map(ToOwned::to_owned)
}

/// A key as people write it: bare if it can be, in quotes else.
pub(super) fn printable(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let short = (1..=64).contains(&name.len());
    if short && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}

/// A fault about a value.
fn wrong(key: &str, at: usize, expected: impl Into<String>, found: String) -> Fault {
    Fault { at, key: key.to_owned(), what: Wrong::Value { expected: expected.into(), found } }
}

/// TOML again, on one line, secrets unreadable.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &mut dyn Iterator<Item = String>| {
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        };
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Count(number) => write!(f, "{number}"),
            Self::Duration(duration) => f.write_str(&literal(&duration_text(*duration))),
            Self::Text(text) => f.write_str(&literal(text)),
            Self::SecretText(text) => f.write_str(&literal(&rules::without_secret(text))),
            Self::Texts(texts) => f.write_str(&list(&mut texts.iter().map(|t| literal(t)))),
            Self::Headers(headers) if headers.is_empty() => f.write_str("{}"),
            Self::Headers(headers) => {
                let shown: Vec<String> =
                    headers.keys().map(|name| format!("{} = \"***\"", literal(name))).collect();
                write!(f, "{{ {} }}", shown.join(", "))
            }
            Self::Windows(windows) => f.write_str(&list(&mut windows.iter().map(|window| {
                let days = list(&mut window.days().map(literal));
                let start = literal(&window.start());
                let length = literal(&duration_text(window.length()));
                let zone = literal(window.zone());
                format!("{{ days = {days}, start = {start}, length = {length}, zone = {zone} }}")
            }))),
            Self::Groups(groups) => f.write_str(&list(&mut groups.iter().map(|group| {
                format!("{{ name = {}, slots = {} }}", literal(&group.name), group.slots)
            }))),
        }
    }
}

/// A text as a TOML string.
fn literal(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
