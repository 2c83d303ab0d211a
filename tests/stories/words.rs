//! One line of a script, word by word; what is not asked for is an error.

use std::time::Duration;

use lockkeeper::schedule::parse_duration;

/// A script line without its `> `: a verb, then words and `key=value` pairs.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) verb: String,
    rest: Vec<(Option<String>, String)>,
}

impl Words {
    /// Splits a line; `"…"` keeps blanks together.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut chars = line.trim().chars().peekable();
        while let Some(first) = chars.peek() {
            if *first == ' ' {
                chars.next();
                continue;
            }
            words.push(word(&mut chars)?);
        }
        if words.is_empty() {
            return Err("expected a verb, found an empty line".to_owned());
        }
        let (key, verb) = words.remove(0);
        match key {
            None => Ok(Self { verb, rest: words }),
            Some(key) => Err(format!("expected a verb, found {key}={verb}")),
        }
    }

    /// The next word that is no pair.
    pub(crate) fn next(&mut self) -> Option<String> {
        let at = self.rest.iter().position(|(key, _)| key.is_none())?;
        Some(self.rest.remove(at).1)
    }

    /// The next word that is no pair, which must be there.
    pub(crate) fn need(&mut self, what: &str) -> Result<String, String> {
        self.next().ok_or_else(|| format!("{}: expected {what}, found nothing", self.verb))
    }

    /// Whether this word is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.rest.iter().position(|(key, word)| key.is_none() && word == name);
        at.map(|at| self.rest.remove(at)).is_some()
    }

    /// The value of a pair.
    pub(crate) fn value(&mut self, name: &str) -> Option<String> {
        let at = self.rest.iter().position(|(key, _)| key.as_deref() == Some(name))?;
        Some(self.rest.remove(at).1)
    }

    /// The values of every pair of this name.
    pub(crate) fn values(&mut self, name: &str) -> Vec<String> {
        std::iter::from_fn(|| self.value(name)).collect()
    }

    /// The value of a pair, as a duration.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, String> {
        self.value(name).map(|text| duration(&text)).transpose()
    }

    /// The first pair that is left.
    pub(crate) fn pair(&mut self) -> Option<(String, String)> {
        let at = self.rest.iter().position(|(key, _)| key.is_some())?;
        let (key, value) = self.rest.remove(at);
        key.map(|key| (key, value))
    }

    /// Everything was understood.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.rest.first() {
            None => Ok(()),
            Some((None, word)) => Err(format!("{}: {word:?} says nothing here", self.verb)),
            Some((Some(key), value)) => {
                Err(format!("{}: {key}={value} says nothing here", self.verb))
            }
        }
    }
}

/// Reads a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("expected a duration such as 30s, found {text:?}"))
}

/// Reads a number.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a number, found {text:?}"))
}

/// One word: `key=value`, `key="a value"`, `word` or `"some words"`.
fn word(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Result<(Option<String>, String), String> {
    let (mut key, mut text, mut quoted) = (None, String::new(), false);
    for c in chars.by_ref() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => break,
            '=' if !quoted && key.is_none() => key = Some(std::mem::take(&mut text)),
            other => text.push(other),
        }
    }
    if quoted {
        return Err(format!("expected a closing quote after {text:?}"));
    }
    Ok((key, text))
}
