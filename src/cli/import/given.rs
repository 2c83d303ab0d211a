//! All that another tool is told, each taken once: what is left over at the end is named.

use super::draft::Draft;

/// Something that the other tool is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// The file, and what in it, for people.
    pub(super) file: String,
    /// The key, flag or variable as it is written there.
    pub(super) key: String,
    /// Its value as text.
    pub(super) value: String,
}

/// How strong a place is where a tool can be told the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// What is given, by the name that the tool knows it by, the stronger behind the weaker.
#[derive(Debug, Default)]
pub(super) struct Inputs(Vec<(String, Strength, Given)>);

/// A name that has no equal here, the value that makes no difference, and what to do instead.
pub(super) type NoEqual = (&'static str, &'static str, &'static str);

impl Inputs {
    /// Adds one.
    pub(super) fn push(&mut self, name: impl Into<String>, strength: Strength, given: Given) {
        self.0.push((name.into(), strength, given));
    }

    /// Takes the strongest of a name; the weaker ones are named as overridden.
    pub(super) fn take(&mut self, name: &str, draft: &mut Draft) -> Option<Given> {
        let mut all = self.take_named(name);
        all.sort_by_key(|(strength, _)| *strength);
        let (_, last) = all.pop()?;
        for (_, weaker) in all {
            let later = if weaker.key == last.key { "a later " } else { "" };
            draft.note(&weaker, &format!("overridden by {later}{}", last.key));
        }
        Some(last)
    }

    /// Takes all of a name, for what adds up: those of the strongest place.
    pub(super) fn take_all(&mut self, name: &str, draft: &mut Draft) -> Vec<Given> {
        let all = self.take_named(name);
        let strongest = all.iter().map(|(strength, _)| *strength).max();
        let mut kept = Vec::new();
        for (strength, given) in all {
            if Some(strength) == strongest {
                kept.push(given);
            } else {
                draft.note(&given, "overridden by the command line");
            }
        }
        kept
    }

    fn take_named(&mut self, name: &str) -> Vec<(Strength, Given)> {
        self.0.extract_if(.., |(of, _, _)| of == name).map(|(_, s, given)| (s, given)).collect()
    }

    /// Names what has no equal, unless it has the value that makes no difference.
    pub(super) fn note_all(&mut self, table: &[NoEqual], draft: &mut Draft) {
        for (name, same, instead) in table {
            if let Some(given) = self.take(name, draft)
                && given.value != *same
            {
                draft.note(&given, instead);
            }
        }
    }

    /// Names what is left.
    pub(super) fn note_rest(self, instead: &str, draft: &mut Draft) {
        for (_, _, given) in &self.0 {
            draft.note(given, instead);
        }
    }
}
