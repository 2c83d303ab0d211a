//! Command lines as Go's two libraries read them, and one as a shell splits it.

use super::draft::Draft;
use super::given::{Given, Inputs, Strength};

/// How flags are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `--flag`; what is no flag is skipped (pflag, of kured).
    Pflag,
    /// `-flag` or `--flag`; the first word that is no flag ends them (flag, of FLUO).
    Go,
}

/// A command line with its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandLine<'a> {
    /// The file and the container.
    pub(super) file: &'a str,
    /// The words behind the program's name.
    pub(super) words: &'a [String],
    /// How flags are written.
    pub(super) style: Style,
    /// Flags that take a value.
    pub(super) valued: &'a [&'a str],
    /// Flags that need none: `true` or `false`.
    pub(super) switches: &'a [&'a str],
}

impl CommandLine<'_> {
    /// Puts each flag into `inputs`; what is none is named at once.
    pub(super) fn read(&self, inputs: &mut Inputs, draft: &mut Draft) {
        let given = |key: &str, value: &str| Given {
            file: self.file.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let name = match self.style {
                _ if word == "--" => break,
                Style::Pflag => word.strip_prefix("--"),
                Style::Go => word.strip_prefix("--").or_else(|| word.strip_prefix('-')),
            };
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                draft.note(&given(word, ""), "no flag, so it has no effect");
                if self.style == Style::Go {
                    break;
                }
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            let key = format!("--{name}");
            let value = match value {
                Some(value) => value,
                None if self.switches.contains(&name) => "true".to_owned(),
                None if self.valued.contains(&name) => match words.next() {
                    Some(next) => next.clone(),
                    None => {
                        draft.miss(self.file, &key, "a value behind it", "the end of the command");
                        continue;
                    }
                },
                // Whether the next word is its value, nobody can tell: it is named by itself then.
                None => String::new(),
            };
            inputs.push(name, Strength::Flag, given(&key, &value));
        }
        for rest in words {
            draft.note(&given(rest, ""), "stands behind the flags, so it has no effect");
        }
    }
}

/// A flag that is on or off, as Go reads it.
pub(super) fn switch(given: &Given, draft: &mut Draft) -> bool {
    match given.value.as_str() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => {
            draft.refuse(given, "true or false");
            false
        }
    }
}

/// Splits a command as a shell would, without expanding anything; `None`: a quote does not end.
pub(super) fn shell_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            // A comment begins only between words.
            '#' if word.is_none() => {
                letters.by_ref().find(|letter| *letter == '\n');
            }
            '\\' => word.get_or_insert_default().push(letters.next()?),
            '\'' => loop {
                match letters.next()? {
                    '\'' => break,
                    inner => word.get_or_insert_default().push(inner),
                }
            },
            '"' => loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => word.get_or_insert_default().push(letters.next()?),
                    inner => word.get_or_insert_default().push(inner),
                }
            },
            plain => word.get_or_insert_default().push(plain),
        }
        if matches!(letter, '\'' | '"') {
            // Two quotes with nothing between them are a word too.
            word.get_or_insert_default();
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_command_is_split_as_by_a_shell() {
        for (text, expected) in [
            (
                "sh -c \"! needs-restarting --reboothint\"",
                &["sh", "-c", "! needs-restarting --reboothint"][..],
            ),
            ("a  'b c'\\ d # rest", &["a", "b c d"]),
            ("a '' b#c", &["a", "", "b#c"]),
            ("\"a\\\"b\"", &["a\"b"]),
            ("", &[]),
        ] {
            assert_eq!(shell_words(text).unwrap(), expected, "{text}");
        }
        for text in ["'a", "\"a", "a\\"] {
            assert_eq!(shell_words(text), None, "{text}");
        }
    }
}
