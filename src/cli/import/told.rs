//! What is told of a value: on one line, not too long, and nothing that may be a secret.

/// Longest value that is told; a label selector with a few terms fits.
const LENGTH_MAX: usize = 160;

/// Parts of a name that say that its value is nobody else's business. What is posted to a chat goes
/// to a URL that is a secret as a whole.
const SECRET: [&str; 9] =
    ["password", "passwd", "secret", "token", "credential", "hook", "notify", "apikey", "api_key"];

/// A value as it may be shown beside its name.
pub(super) fn told(name: &str, value: &str) -> String {
    let lower = name.to_lowercase();
    if SECRET.iter().any(|part| lower.contains(part)) && !value.is_empty() {
        return "(not shown)".to_owned();
    }
    line(&without_secrets(value))
}

/// A text on one line, cut short.
pub(super) fn line(text: &str) -> String {
    let mut short: String = text
        .chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .take(LENGTH_MAX)
        .collect();
    if text.chars().nth(LENGTH_MAX).is_some() {
        short.push('…');
    }
    short
}

/// Users and passwords of every URL in a text, and what is behind its `?`, made unreadable; so is
/// what looks like a user and a password without a URL around it.
fn without_secrets(text: &str) -> String {
    text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\''))
        .map(|word| {
            let (start, rest) = match word.split_once("://") {
                Some((scheme, rest)) => (format!("{scheme}://"), rest),
                None if word.contains(':') => (String::new(), word),
                None => return word.to_owned(),
            };
            // From the last @ on: a password may hold one, and whoever wrote it may not have
            // escaped its slashes.
            let rest = match rest.rsplit_once('@') {
                Some((_, host)) => format!("***@{host}"),
                None => rest.to_owned(),
            };
            match rest.split_once('?') {
                Some((path, _)) if !start.is_empty() => format!("{start}{path}?***"),
                Some(_) | None => format!("{start}{rest}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_told() {
        for (name, value, expected) in [
            ("--notify-url", "slack://xoxb-1@channel", "(not shown)"),
            ("LOCKSMITHD_ETCD_PASSWORD", "geheim", "(not shown)"),
            ("LOCKSMITHD_ETCD_PASSWORD", "", ""),
            ("--prometheus-url", "http://u:p@h:9090/x", "http://***@h:9090/x"),
            ("--prometheus-url", "http://u:p/w@h/x", "http://***@h/x"),
            ("SERVER", "https://h/v1?key=1", "https://h/v1?***"),
            ("ENDPOINT", "http://a:b@h,http://c:d@h", "http://***@h,http://***@h"),
            ("x", "u:p@h", "***@h"),
            ("x", "user@example.com 12:00?", "user@example.com 12:00?"),
            ("x", "a\nb\u{1b}c", "a b c"),
        ] {
            assert_eq!(told(name, value), expected, "{name}={value}");
        }
        assert_eq!(told("x", &"x".repeat(161)).chars().count(), 161);
    }
}
