//! The configuration that comes out, as it grows: settings, windows, and what has no equal.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::config;
use crate::schedule::{Windows, duration_text, parse_duration};

use super::given::Given;
use super::told::{line, told};
use super::windows::Opening;

/// The tables in the order of `lockkeeper config default`.
const TABLES: [&str; 14] = [
    "agent",
    "node",
    "updates",
    "slot",
    "windows",
    "gates",
    "drain",
    "reboot",
    "settle",
    "hooks",
    "notify",
    "metrics",
    "zincati",
    "coordinator",
];

/// Letters of a comment's line.
const WIDTH: usize = 100;

/// Windows that the configuration takes.
const WINDOWS_MAX: usize = 50;

/// A value that the other tool itself would not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Refusal {
    file: String,
    key: String,
    expected: String,
    found: String,
}

/// Why nothing comes out.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ImportError {
    /// A file or folder cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// What is in it cannot be translated: one line each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Refused(Vec<Refusal>),
    /// The translation would not be accepted.
    #[error("the translation is no configuration; this is a fault in lockkeeper:\n{0}")]
    Wrong(config::ConfigErrors),
}

/// The configuration that comes out.
#[derive(Debug, Default)]
pub(super) struct Draft {
    heading: Vec<String>,
    settings: Vec<Setting>,
    windows: Vec<Opening>,
    /// What is said above the windows.
    of_windows: Vec<String>,
    /// How many nodes may be down at once.
    slots: Option<Slots>,
    notes: Vec<String>,
    refusals: Vec<Refusal>,
}

/// A group of the coordinator.
#[derive(Debug)]
struct Slots {
    group: String,
    slots: u64,
    because: String,
}

/// A key of ours.
#[derive(Debug)]
struct Setting {
    key: &'static str,
    /// In TOML.
    literal: String,
    /// False: as a comment.
    counts: bool,
    /// Why it is so, or what to look at.
    because: String,
}

// === impl ImportError ===

impl ImportError {
    /// A file that cannot be read.
    pub(super) fn unreadable(name: &str, error: &io::Error) -> Self {
        Self::Unreadable(format!("{name}: expected a file of text, {error}"))
    }
}

// === impl Draft ===

impl Draft {
    /// A line at the top.
    pub(super) fn head(&mut self, text: impl Into<String>) {
        self.heading.push(text.into());
    }

    /// Sets a key to what it surely can have.
    pub(super) fn set(&mut self, key: &'static str, literal: String, because: &str) {
        self.settings.retain(|setting| setting.key != key);
        self.settings.push(Setting { key, literal, counts: true, because: because.to_owned() });
    }

    /// Sets a key to what was given elsewhere; where it cannot be that, it is named. Whether it was
    /// set.
    pub(super) fn set_given(
        &mut self,
        key: &'static str,
        literal: String,
        given: &Given,
        because: &str,
    ) -> bool {
        if let Some(expected) = config::expected(key, &literal) {
            self.note(given, &format!("cannot be said as {key}, which is {expected}"));
            return false;
        }
        self.set(key, literal, because);
        true
    }

    /// Shows a key that a person has to complete.
    pub(super) fn suggest(&mut self, key: &'static str, literal: &str, because: &str) {
        let (literal, because) = (line(literal), because.to_owned());
        self.settings.push(Setting { key, literal, counts: false, because });
    }

    /// Asks for a slot server, since nothing that was read names one.
    pub(super) fn suggest_server(&mut self) {
        self.suggest(
            "slot.backend",
            "\"fleetlock\"",
            "Who hands out the right to be down is for you to choose; until then the agent waits and \
             never reboots. A FleetLock server, such as `lockkeeper coordinator` on one machine:",
        );
        self.suggest("slot.base_url", "\"http://coordinator.example:9090/\"", "");
    }

    /// The coordinator that lets so many of a group be down.
    pub(super) fn coordinator(&mut self, group: &str, slots: u64, because: &str) {
        let (group, because) = (group.to_owned(), because.to_owned());
        self.slots = Some(Slots { group, slots, because });
    }

    /// Adds a window.
    pub(super) fn window(&mut self, window: Opening) {
        if self.windows.len() == WINDOWS_MAX {
            let expected = format!("at most {WINDOWS_MAX}");
            self.miss("windows", "all of them", &expected, "more");
        }
        self.windows.push(window);
    }

    /// Says something above the windows.
    pub(super) fn of_windows(&mut self, text: impl Into<String>) {
        self.of_windows.push(text.into());
    }

    /// Names something that has no equal here, and what to do instead.
    pub(super) fn note(&mut self, given: &Given, instead: &str) {
        let key = line(&given.key);
        match given.value.as_str() {
            "" => self.notes.push(format!("{key}: {instead}")),
            value => self.notes.push(format!("{key} = \"{}\": {instead}", told(&given.key, value))),
        }
    }

    /// Names something without a value.
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Says that a value is none that the other tool would take.
    pub(super) fn refuse(&mut self, given: &Given, expected: &str) {
        let found = format!("\"{}\"", told(&given.key, &given.value));
        self.miss(&given.file, &given.key, expected, &found);
    }

    /// Says that something is missing.
    pub(super) fn miss(&mut self, file: &str, key: &str, expected: &str, found: &str) {
        let (file, key) = (line(file), line(key));
        let (expected, found) = (expected.to_owned(), line(found));
        self.refusals.push(Refusal { file, key, expected, found });
    }

    /// The text, once `config check` has nothing to say against it.
    ///
    /// # Errors
    /// What was refused.
    pub(super) fn finish(mut self) -> Result<String, ImportError> {
        if !self.refusals.is_empty() {
            return Err(ImportError::Refused(self.refusals));
        }
        self.fit_windows();
        let text = self.to_string();
        match config::load_text(Path::new("(translation)"), &text) {
            Ok(_) => Ok(text),
            Err(errors) => Err(ImportError::Wrong(errors)),
        }
    }

    /// Gives the drain less time where it would not fit into any window: other tools only look at
    /// the clock before they begin.
    fn fit_windows(&mut self) {
        let windows = Windows::new(self.windows.iter().map(|w| w.window().clone()).collect());
        let (mut drain, mut reboot) =
            (self.duration("drain.deadline"), self.duration("reboot.estimate"));
        let wanted = (drain, reboot);
        while !config::ever_fits(&windows, drain + reboot) {
            if drain + reboot < Duration::from_secs(4) {
                // Then it never opens, whatever the attempt takes.
                break;
            }
            if drain > reboot {
                drain = half(drain);
            } else {
                reboot = half(reboot);
            }
        }
        let because = "Shorter than it would be, since drain.deadline and reboot.estimate together \
                       must fit into a window: an attempt begins only if it also ends in it.";
        if drain != wanted.0 {
            self.set("drain.deadline", lasting(drain), because);
        }
        if reboot != wanted.1 {
            self.set("reboot.estimate", lasting(reboot), because);
        }
    }

    /// The duration that a key has.
    fn duration(&self, key: &str) -> Duration {
        let default = match key {
            "drain.deadline" => Duration::from_secs(15 * 60),
            _ => Duration::from_secs(5 * 60),
        };
        let setting = self.settings.iter().find(|setting| setting.key == key && setting.counts);
        setting.and_then(|s| parse_duration(s.literal.trim_matches('"'))).unwrap_or(default)
    }

    fn write_table(&self, f: &mut fmt::Formatter<'_>, table: &str) -> fmt::Result {
        let of_table =
            |setting: &&Setting| setting.key.split_once('.').is_some_and(|(name, _)| name == table);
        let settings: Vec<&Setting> = self.settings.iter().filter(of_table).collect();
        if !settings.is_empty() {
            writeln!(f, "\n[{table}]")?;
        }
        for setting in settings {
            let name = setting.key.split_once('.').map_or(setting.key, |(_, name)| name);
            comment(f, &setting.because)?;
            let mark = if setting.counts { "" } else { "#" };
            writeln!(f, "{mark}{name} = {}", setting.literal)?;
        }
        Ok(())
    }

    fn write_windows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, text) in self.of_windows.iter().enumerate() {
            if n == 0 {
                writeln!(f)?;
            }
            comment(f, text)?;
        }
        for (n, window) in self.windows.iter().enumerate() {
            if n > 0 || self.of_windows.is_empty() {
                writeln!(f)?;
            }
            f.write_str(&window.table())?;
        }
        Ok(())
    }

    fn write_groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Slots { group, slots, because }) = &self.slots else { return Ok(()) };
        writeln!(f)?;
        comment(f, because)?;
        comment(f, "Only `lockkeeper coordinator` reads this, on the machine where it runs.")?;
        writeln!(f, "[[coordinator.groups]]\nname = {}\nslots = {slots}", quoted(group))
    }
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in &self.heading {
            comment(f, text)?;
        }
        for table in TABLES {
            match table {
                "windows" => self.write_windows(f)?,
                "coordinator" => self.write_groups(f)?,
                _ => self.write_table(f, table)?,
            }
        }
        if !self.notes.is_empty() {
            writeln!(f, "\n# What has no equal here, and what to do instead:")?;
        }
        for note in &self.notes {
            comment(f, &format!("- {note}"))?;
        }
        Ok(())
    }
}

// === impl Refusal ===

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, key, expected, found } = self;
        write!(f, "{file}: {key}: expected {expected}, found {found}")
    }
}

/// Writes a text as lines of a comment; those of an item of a list are moved in.
fn comment(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let inner = if text.starts_with("- ") { "#  " } else { "#" };
    for text in text.lines() {
        // Lines that somebody copies stay as they are.
        if text.starts_with("    ") {
            writeln!(f, "#{text}")?;
            continue;
        }
        let mut written = "#".to_owned();
        let mut begun = false;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            if begun && written.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(f, "{written}")?;
                inner.clone_into(&mut written);
            }
            begun = true;
            written.push(' ');
            written.push_str(word);
        }
        writeln!(f, "{written}")?;
    }
    Ok(())
}

fn half(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs() / 2)
}

/// A text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Texts as a TOML list.
pub(super) fn listed<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(quoted).collect();
    format!("[{}]", texts.join(", "))
}

/// A duration, whole seconds, as a TOML string.
pub(super) fn lasting(duration: Duration) -> String {
    quoted(&duration_text(Duration::from_secs(duration.as_secs())))
}
