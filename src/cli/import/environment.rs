//! Files with variables, as systemd reads them for a service.

use std::path::Path;

use crate::config::file::read_text_bounded;

use super::draft::ImportError;

/// Longest file that is read; a real one has a few lines.
const LENGTH_MAX: u64 = 1 << 20;

/// A name with its value, or a line that is none.
pub(super) type Line = Result<(String, String), Stray>;

/// A line that is no variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stray(pub(super) String);

/// Reads a file of `NAME=value` lines, or the `Environment=` lines of a drop-in of a unit.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(file: &Path, name: &str) -> Result<Vec<Line>, ImportError> {
    let text = read_text_bounded(file, LENGTH_MAX)
        .map_err(|error| ImportError::unreadable(name, &error))?;
    let drop_in = file.extension().is_some_and(|extension| extension == "conf")
        && text.lines().any(|line| line.trim() == "[Service]");
    Ok(if drop_in { of_drop_in(&text) } else { of_file(&text) })
}

/// The variables of an environment file.
fn of_file(text: &str) -> Vec<Line> {
    let mut variables = Vec::new();
    for line in joined(text) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // Shells take the word, systemd does not; people write it all the same.
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim_end()) => {
                variables.push(Ok((name.trim_end().to_owned(), unquoted(value.trim()))));
            }
            Some(_) | None => variables.push(Err(Stray(line.to_owned()))),
        }
    }
    variables
}

/// The variables that a drop-in sets.
fn of_drop_in(text: &str) -> Vec<Line> {
    let mut variables = Vec::new();
    for line in joined(text) {
        let Some(words) = line.trim().strip_prefix("Environment=") else { continue };
        let Some(words) = super::flags::shell_words(words) else {
            variables.push(Err(Stray(line.trim().to_owned())));
            continue;
        };
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if is_name(name) => {
                    variables.push(Ok((name.to_owned(), value.to_owned())));
                }
                Some(_) | None => variables.push(Err(Stray(word))),
            }
        }
    }
    variables
}

/// Lines, each with those that it goes on in.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some(last) if goes_on => last.push_str(line),
            Some(_) | None => lines.push(line.to_owned()),
        }
        goes_on = more;
    }
    lines
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A value without the quotes around it.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.to_owned();
        }
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(read: Vec<Line>) -> Vec<String> {
        let one = |read| match read {
            Ok((name, value)) => format!("{name}={value}"),
            Err(Stray(line)) => format!("? {line}"),
        };
        read.into_iter().map(one).collect()
    }

    #[test]
    fn variables_are_read_as_by_systemd() {
        let text = "# a\n; b\n\nA=1\nB = \"x y\"\nC='z'\nD=a\\\nb\nexport E=1\n7=8\nF=\n";
        let expected = ["A=1", "B=x y", "C=z", "D=ab", "? export E=1", "? 7=8", "F="];
        assert_eq!(shown(of_file(text)), expected);
        let text = "[Service]\nExecStart=/x A=1\nEnvironment=A=1 \"B=x y\" C\nEnvironment=\"D\n";
        assert_eq!(shown(of_drop_in(text)), ["A=1", "B=x y", "? C", "? Environment=\"D"]);
    }
}
