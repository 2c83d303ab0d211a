//! What single texts must look like: paths, URLs, names.

use std::net::SocketAddr;

/// A rule for a text, and how to say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// What the text should be; completes "expected …".
    pub(super) expected: &'static str,
    /// Whether it is.
    pub(super) holds: fn(&str) -> bool,
}

/// An absolute path; a service's working folder is no place to depend on.
pub(super) const PATH: Rule =
    Rule { expected: "an absolute path", holds: |text| text.starts_with('/') && plain(text) };

/// Who may say that a reboot is due.
pub(super) const SOURCE: Rule = Rule {
    expected: "\"auto\", \"rpm-ostree\" or \"update-engine\"",
    holds: |text| ["auto", "rpm-ostree", "update-engine"].contains(&text),
};

/// A FleetLock server.
pub(super) const BASE_URL: Rule = Rule {
    expected: "a URL with http:// or https:// and a host, without query and fragment, and without \
               user and password (slot.headers can carry an authorization)",
    holds: |text| {
        http_url(text).is_some_and(|url| {
            url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        })
    },
};

/// An HTTP proxy; user and password are allowed, since a proxy takes them nowhere else.
pub(super) const PROXY: Rule = Rule {
    expected: "a URL with http:// or https:// and a host and nothing behind it",
    holds: |text| {
        http_url(text).is_some_and(|url| {
            url.query().is_none() && url.fragment().is_none() && url.path() == "/"
        })
    },
};

/// A group of the FleetLock protocol, `^[a-zA-Z0-9.-]+$`; the bound is that of names in DNS.
pub(super) const GROUP: Rule = Rule {
    expected: "1 to 253 letters, digits, dots and dashes",
    holds: |text| {
        (1..=253).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-')
    },
};

/// A FleetLock id: the protocol asks only that it is not empty; servers put it into keys and names.
pub(super) const ID: Rule = Rule {
    expected: "1 to 253 printable ASCII characters without blanks",
    holds: |text| (1..=253).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()),
};

/// The name of a Node: a DNS-1123 subdomain.
pub(super) const NODE_NAME: Rule = Rule {
    expected: "the name of a Node (lower-case letters, digits, dots and dashes)",
    holds: |text| {
        let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        text.len() <= 253
            && text.split('.').all(|part| {
                part.bytes().all(|b| word(b) || b == b'-')
                    && part.bytes().next().is_some_and(word)
                    && part.bytes().last().is_some_and(word)
            })
    },
};

/// A systemd unit with its suffix; without one, systemd would have to guess.
pub(super) const UNIT: Rule = Rule {
    expected: "a systemd unit with its suffix, such as \"kubelet.service\"",
    holds: |text| {
        const KINDS: [&str; 11] = [
            "service",
            "target",
            "mount",
            "automount",
            "socket",
            "timer",
            "path",
            "slice",
            "scope",
            "device",
            "swap",
        ];
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b":_.\\@-".contains(&b);
        text.len() <= 255
            && text.bytes().all(allowed)
            && text
                .rsplit_once('.')
                .is_some_and(|(name, kind)| !name.is_empty() && KINDS.contains(&kind))
    },
};

/// An address to listen on; port 0 would be another one at each start.
pub(super) const LISTEN: Rule = Rule {
    expected: "an IP address and a port, such as \"127.0.0.1:9090\" or \"[::]:9090\"",
    holds: |text| text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0),
};

/// The same, where port 0 (the kernel picks one) has its use in tests.
pub(super) const LISTEN_ANY: Rule =
    Rule { expected: LISTEN.expected, holds: |text| text.parse::<SocketAddr>().is_ok() };

/// An address that only this host reaches: who may reboot it is known by the caller's user there.
pub(super) const LOOPBACK: Rule = Rule {
    expected: "a loopback address and a port, such as \"127.0.0.1:9092\" or \"[::1]:9092\"",
    holds: |text| {
        text.parse::<SocketAddr>()
            .is_ok_and(|address| address.ip().is_loopback() && address.port() != 0)
    },
};

/// The name of an extra header: a token that the client does not set itself.
pub(super) const HEADER_NAME: Rule = Rule {
    expected: "the name of a header that lockkeeper does not set itself",
    holds: |text| {
        // These would break the request or the protocol.
        const OWN: [&str; 6] = [
            "fleet-lock-protocol",
            "content-length",
            "content-type",
            "host",
            "connection",
            "transfer-encoding",
        ];
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !text.is_empty()
            && text.bytes().all(token)
            && !OWN.contains(&text.to_ascii_lowercase().as_str())
    },
};

/// The value of an extra header.
pub(super) const HEADER_VALUE: Rule = Rule {
    expected: "printable ASCII characters, no blank at either end",
    holds: |text| text.trim() == text && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()),
};

/// A good URL with its user and password made unreadable, for people's eyes.
pub(crate) fn without_secret(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..authority).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://***{}", rest.get(at..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A URL that is not good, where nobody knows which part is a password.
pub(super) fn without_anything_before_at(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, host)| format!("***@{host}"))
}

/// An http or https URL with a host, not mended silently by the parser.
fn http_url(text: &str) -> Option<reqwest::Url> {
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"))?;
    // The parser skips blanks, control characters and surplus slashes and takes `\` for `/`.
    if !plain(text) || text.contains(['\\', ' ']) || rest.starts_with('/') {
        return None;
    }
    reqwest::Url::parse(text).ok().filter(|url| url.has_host() && url.port() != Some(0))
}

/// No control characters: they hide in terminals and logs.
fn plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}
