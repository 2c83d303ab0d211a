//! Rust code as text: without comments and strings, without its tests, and the paths in it.

/// Blanks comments and the insides of strings and characters; lines and columns stay.
pub(crate) fn bare(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' if !word_before(&chars, at) => raw_end(&chars, at),
            '\'' => char_end(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        }
        for c in &chars[at..end.max(at)] {
            out.push(if *c == '\n' { '\n' } else { ' ' });
        }
        at = at.max(end);
    }
    out
}

fn word_before(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length)
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The end of `r"…"` or `r#"…"#`; `at` itself if there is none.
fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let mut i = at + 2 + hashes;
    while i < chars.len() {
        let closes = chars[i + 1..].iter().take_while(|c| **c == '#').take(hashes).count();
        if chars[i] == '"' && closes == hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// The end of a character; `at` itself if it is a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars[at + 3..].iter().position(|c| *c == '\'');
        return close.map_or(at, |length| at + 3 + length + 1);
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at }
}

/// The code without what is compiled for tests only, and the names of the modules among that.
pub(crate) fn without_tests(bare: &str) -> (String, Vec<String>) {
    split_tests(bare, true)
}

/// Only what is compiled for tests.
pub(crate) fn only_tests(bare: &str) -> String {
    split_tests(bare, false).0
}

fn split_tests(bare: &str, keep_code: bool) -> (String, Vec<String>) {
    let mark = "#[cfg(test)]";
    let (mut code, mut tests, mut modules) = (String::new(), String::new(), Vec::new());
    let mut rest = bare;
    while let Some(at) = rest.find(mark) {
        code.push_str(&rest[..at]);
        let item = &rest[at..];
        let end = item_end(item);
        let head = item[mark.len()..end].trim_end_matches(';');
        let words: Vec<&str> = head.split_whitespace().collect();
        if let (Some(["mod", name]), true) = (words.last_chunk::<2>(), item[..end].ends_with(';')) {
            modules.push((*name).to_owned());
        }
        tests.push_str(&item[..end]);
        code.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    code.push_str(rest);
    (if keep_code { code } else { tests }, modules)
}

/// Where an item ends: behind its `;`, or behind the brace that closes it.
fn item_end(item: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// Functions with their first line (from 1) and how many lines they take.
pub(crate) fn functions(bare: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bare[from..].find("fn ").map(|at| from + at) {
        from = at + 3;
        let before = bare[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String =
            bare[from..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let end = at + item_end(&bare[at..]);
        let line = bare[..at].matches('\n').count() + 1;
        let lines = bare[at..end].matches('\n').count() + 1;
        if !name.is_empty() {
            found.push((name, line, lines));
        }
    }
    found
}

/// Every path that the code names, `use` trees unfolded: `["crate", "model", "Now"]`.
pub(crate) fn paths(bare: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let tokens = tokens(bare);
    let mut at = 0;
    while at < tokens.len() {
        at = path(&tokens, at, &[], &mut found).max(at + 1);
    }
    found
}

/// Reads one path, with its `{…}`, from `at` on; where it ended.
fn path(tokens: &[String], at: usize, head: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut whole = head.to_vec();
    let mut i = at;
    loop {
        match tokens.get(i).map(String::as_str) {
            Some("{") if !whole.is_empty() && i > 0 && tokens[i - 1] == "::" => {
                i += 1;
                while tokens.get(i).is_some_and(|token| token != "}") {
                    let next = path(tokens, i, &whole, found);
                    i = if next == i { i + 1 } else { next };
                }
                return i + 1;
            }
            Some(token) if is_word(token) => whole.push(token.to_owned()),
            _ => break,
        }
        i += 1;
        if tokens.get(i).map(String::as_str) != Some("::") {
            break;
        }
        i += 1;
    }
    if whole.len() > head.len() {
        found.push(whole);
    }
    i
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(bare: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in bare.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        match c {
            ':' if tokens.last().is_some_and(|last| last == ":") => {
                tokens.pop();
                tokens.push("::".to_owned());
            }
            c if c.is_whitespace() => {}
            c => tokens.push(c.to_string()),
        }
    }
    tokens.push(word);
    tokens
}

#[test]
fn comments_and_strings_are_blanked_and_lines_stay() {
    let table = [
        ("a // b\nc", "a c"),
        ("a /* b /* c */ d\n */ e", "a e"),
        ("f(\"{ } // \\\" x\") y", "f( ) y"),
        ("r#\"a \" b\"# c", "c"),
        ("b'{' d '\\'' e<'a>", "b d e<'a>"),
        ("var\"x\" r", "var r"),
    ];
    for (text, expected) in table {
        let found = bare(text);
        let words: Vec<&str> = found.split_whitespace().collect();
        assert_eq!(words.join(" "), expected, "{text:?}");
        let shape = |text: &str| (text.chars().count(), text.matches('\n').count());
        assert_eq!(shape(&found), shape(text), "{text:?}");
    }
}

#[test]
fn tests_are_told_from_code() {
    let text = "use a;\n#[cfg(test)]\nmod fake;\nfn b() {}\n#[cfg(test)]\nmod tests {\n fn c() { {} }\n}\nfn d() {}";
    let (code, modules) = without_tests(text);
    assert_eq!(modules, ["fake"]);
    assert!(code.contains("fn b") && code.contains("fn d") && !code.contains("fn c"), "{code}");
    assert_eq!(code.matches('\n').count(), text.matches('\n').count(), "lines stay");
    let tests = only_tests(text);
    assert!(tests.contains("fn c") && !tests.contains("fn b"), "{tests}");
}

#[test]
fn paths_are_unfolded() {
    let text = "use crate::{model::Now, drain::{self, Obstacle as O}}; let x = std::fs::read(y);";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    for expected in ["crate::model::Now", "crate::drain::self", "crate::drain::Obstacle"] {
        assert!(found.iter().any(|path| path == expected), "{expected}: {found:?}");
    }
    assert!(found.iter().any(|path| path == "std::fs::read"), "{found:?}");
}

#[test]
fn functions_are_measured() {
    let text = "fn a() {\n  if x { y }\n}\nimpl B { fn c(&self) -> u8 { 1 } }\ntrait D { fn e(); }";
    let expected = [("a", 1, 3), ("c", 4, 1), ("e", 5, 1)].map(|(n, l, c)| (n.to_owned(), l, c));
    assert_eq!(functions(text), expected);
}
