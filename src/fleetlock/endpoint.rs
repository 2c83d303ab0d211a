//! Where a FleetLock server answers: base URL and path, joined.

/// What a client asks of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// RecursiveLock: grant me the slot, or confirm that I hold it.
    PreReboot,
    /// UnlockIfHeld: I need it no longer.
    SteadyState,
}

/// Why a text is no base URL of a FleetLock server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST[:PORT][/PATH] or https://…, found {found:?}: {because}")]
pub struct EndpointError {
    /// What was found, cut to 128 characters.
    pub found: String,
    /// What is wrong with it.
    pub because: &'static str,
}

impl Operation {
    /// The path below the base URL, without a slash at its start.
    pub fn path(self) -> &'static str {
        match self {
            Self::PreReboot => "v1/pre-reboot",
            Self::SteadyState => "v1/steady-state",
        }
    }

    /// The word for it in metrics and logs, as Zincati's `api` label has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreReboot => "pre-reboot",
            Self::SteadyState => "steady-state",
        }
    }
}

/// Reads a base URL; slashes at its end are taken off.
///
/// # Errors
/// Another scheme, no host, a query or fragment, white space or control characters.
pub fn check_base_url(base: &str) -> Result<&str, EndpointError> {
    let refuse = |because| EndpointError { found: base.chars().take(128).collect(), because };
    let lower = base.to_ascii_lowercase();
    let rest = ["http://", "https://"]
        .iter()
        .find(|scheme| lower.starts_with(**scheme))
        .and_then(|scheme| base.get(scheme.len()..))
        .ok_or_else(|| refuse("the scheme is neither http nor https"))?;
    if base.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(refuse("it holds white space or control characters"));
    }
    if base.contains('?') {
        return Err(refuse("a query has no place in a base URL"));
    }
    if base.contains('#') {
        return Err(refuse("a fragment has no place in a base URL"));
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return Err(refuse("there is no host in it"));
    }
    Ok(base.trim_end_matches('/'))
}

/// The URL of one operation: base, one slash, path.
///
/// The path of the base is kept, with and without a slash at its end. (Zincati resolves by RFC 3986
/// and silently drops the last segment of a base without one.)
///
/// # Errors
/// As [`check_base_url`].
pub fn endpoint(base: &str, operation: Operation) -> Result<String, EndpointError> {
    Ok(format!("{}/{}", check_base_url(base)?, operation.path()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_path_of_the_base_is_kept() {
        let cases = [
            ("http://h", "http://h/v1/pre-reboot"),
            ("http://h/", "http://h/v1/pre-reboot"),
            ("http://h/fl", "http://h/fl/v1/pre-reboot"),
            ("http://h/fl/", "http://h/fl/v1/pre-reboot"),
            ("http://h/fl//", "http://h/fl/v1/pre-reboot"),
            ("https://u:p@h:8443/a/b", "https://u:p@h:8443/a/b/v1/pre-reboot"),
            ("HTTPS://h", "HTTPS://h/v1/pre-reboot"),
            ("http://[::1]:3333", "http://[::1]:3333/v1/pre-reboot"),
        ];
        for (base, expected) in cases {
            assert_eq!(endpoint(base, Operation::PreReboot).unwrap(), expected, "{base}");
        }
        assert_eq!(
            endpoint("http://h/fl", Operation::SteadyState).unwrap(),
            "http://h/fl/v1/steady-state"
        );
    }

    #[test]
    fn what_is_no_base_is_refused_with_the_reason() {
        let cases = [
            ("", "neither http nor https"),
            ("h:3333", "neither http nor https"),
            ("ftp://h", "neither http nor https"),
            ("http:/h", "neither http nor https"),
            ("http://", "no host"),
            ("http:///fl", "no host"),
            ("http://:80/", "no host"),
            ("http://u:p@/", "no host"),
            ("http://h/?a=b", "query"),
            ("http://h/#a", "fragment"),
            ("http://h/a b", "white space"),
            ("http://h/\n", "white space"),
        ];
        for (base, because) in cases {
            let error = endpoint(base, Operation::PreReboot).unwrap_err();
            assert!(error.because.contains(because), "{base}: {error}");
        }
    }
}
