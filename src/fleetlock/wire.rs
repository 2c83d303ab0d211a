//! What goes over the wire.

use serde::{Deserialize, Serialize};

/// The header that guards a server against stray and redirected requests.
pub const PROTOCOL_HEADER: &str = "fleet-lock-protocol";
/// Its only value.
pub const PROTOCOL_HEADER_VALUE: &str = "true";
/// The attempt that asks, for our own coordinator; other servers ignore it.
pub const ATTEMPT_HEADER: &str = "lockkeeper-attempt";
/// The boot that the asking agent runs in, for our own coordinator.
pub const BOOT_HEADER: &str = "lockkeeper-boot-id";
/// The node that asks, by the name that people know it by, for our own coordinator.
pub const NODE_HEADER: &str = "lockkeeper-node";

/// A request is about 100 bytes; what is longer than this is none.
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Ids are 32 digits or host names (at most 253); what is longer is a mistake.
const ID_LENGTH_MAX: usize = 256;
/// A group becomes a file's or an object's name in most servers.
const GROUP_LENGTH_MAX: usize = 128;
/// `kind` becomes a metrics label.
const KIND_LENGTH_MAX: usize = 64;
/// Long enough for a sentence, short enough for a journal field.
const VALUE_LENGTH_MAX: usize = 512;

/// Node names are DNS names.
const NODE_LENGTH_MAX: usize = 253;

/// The body of both requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks. Exactly this key: one server's schema forbids any other.
    pub client_params: ClientParams,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientParams {
    /// The id of the node, case-sensitive.
    pub id: String,
    /// The group that it asks in.
    pub group: String,
}

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteError {
    /// A word out of a small set: it becomes a metrics label.
    pub kind: String,
    /// A sentence for people.
    pub value: String,
}

/// Every kind of error that our own server answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// 405: another method than POST.
    MethodNotAllowed,
    /// 400: the request lacks `fleet-lock-protocol: true`.
    MissingHeader,
    /// 413: the body is longer than [`REQUEST_BYTES_MAX`].
    BodyTooLarge,
    /// 400: the body is not the JSON of the protocol.
    InvalidBody,
    /// 400: the id is empty, too long or holds control characters.
    InvalidId,
    /// 400: the group does not match `^[a-zA-Z0-9.-]+$`.
    InvalidGroup,
    /// 400: one of our own headers holds what it cannot.
    InvalidContext,
    /// 400: the group is not configured.
    UnknownGroup,
    /// 409: every slot is held.
    SemaphoreFull,
    /// 409: the id holds its slot from another boot: two machines ask under one id.
    HeldByOtherAttempt,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 404: no such path.
    NotFound,
    /// 503: the change could not be written; nothing was granted or released.
    StoreFailed,
    /// 503: the server is going down; nothing was granted or released.
    ShuttingDown,
}

/// Why a body is no request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Longer than [`REQUEST_BYTES_MAX`].
    #[error("the body is longer than {REQUEST_BYTES_MAX} bytes")]
    TooLarge,
    /// Not the JSON of the protocol.
    #[error(r#"expected {{"client_params":{{"id":…,"group":…}}}} and nothing else: {0}"#)]
    Body(String),
    /// No usable id.
    #[error(
        "client_params.id: expected 1 to {ID_LENGTH_MAX} characters, none of them a control character"
    )]
    Id,
    /// No usable group.
    #[error(
        "client_params.group: expected ^[a-zA-Z0-9.-]+$, at most {GROUP_LENGTH_MAX} characters"
    )]
    Group,
}

// === impl Request ===

impl Request {
    /// The request of one node in one group.
    pub fn new(id: impl Into<String>, group: impl Into<String>) -> Self {
        Self { client_params: ClientParams { id: id.into(), group: group.into() } }
    }

    /// The body as it is sent: id first, then group, as Zincati has it.
    pub fn body(&self) -> Vec<u8> {
        // Two strings in two structs cannot fail to serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether a text can be a group: `^[a-zA-Z0-9.-]+$`, and of bounded length.
pub fn is_group(text: &str) -> bool {
    (1..=GROUP_LENGTH_MAX).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-')
}

/// Reads a request strictly, as our own server takes it.
///
/// # Errors
/// What is wrong with it, naming the key and what was expected.
pub fn parse_request(body: &[u8]) -> Result<ClientParams, RequestError> {
    if body.len() > REQUEST_BYTES_MAX {
        return Err(RequestError::TooLarge);
    }
    let request: Request = serde_json::from_slice(body)
        .map_err(|e| RequestError::Body(clean_value(&e.to_string())))?;
    let params = request.client_params;
    let id_length = params.id.chars().count();
    if !(1..=ID_LENGTH_MAX).contains(&id_length) || params.id.chars().any(char::is_control) {
        return Err(RequestError::Id);
    }
    if !is_group(&params.group) {
        return Err(RequestError::Group);
    }
    Ok(params)
}

// === impl RequestError ===

impl RequestError {
    /// The kind that our server answers with.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge => ErrorKind::BodyTooLarge,
            Self::Body(_) => ErrorKind::InvalidBody,
            Self::Id => ErrorKind::InvalidId,
            Self::Group => ErrorKind::InvalidGroup,
        }
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::MethodNotAllowed,
        Self::MissingHeader,
        Self::BodyTooLarge,
        Self::InvalidBody,
        Self::InvalidId,
        Self::InvalidGroup,
        Self::InvalidContext,
        Self::UnknownGroup,
        Self::SemaphoreFull,
        Self::HeldByOtherAttempt,
        Self::RequestTimeout,
        Self::NotFound,
        Self::StoreFailed,
        Self::ShuttingDown,
    ];

    /// The word on the wire. A full semaphore has the word of the protocol's own example.
    pub fn word(self) -> &'static str {
        match self {
            Self::MethodNotAllowed => "method_not_allowed",
            Self::MissingHeader => "missing_header",
            Self::BodyTooLarge => "body_too_large",
            Self::InvalidBody => "invalid_body",
            Self::InvalidId => "invalid_id",
            Self::InvalidGroup => "invalid_group",
            Self::InvalidContext => "invalid_context",
            Self::UnknownGroup => "unknown_group",
            Self::SemaphoreFull => "failed_lock_semaphore_full",
            Self::HeldByOtherAttempt => "held_by_other_attempt",
            Self::RequestTimeout => "request_timeout",
            Self::NotFound => "not_found",
            Self::StoreFailed => "store_failed",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::MethodNotAllowed => 405,
            Self::BodyTooLarge => 413,
            Self::MissingHeader
            | Self::InvalidBody
            | Self::InvalidId
            | Self::InvalidGroup
            | Self::InvalidContext
            | Self::UnknownGroup => 400,
            Self::SemaphoreFull | Self::HeldByOtherAttempt => 409,
            Self::RequestTimeout => 408,
            Self::NotFound => 404,
            Self::StoreFailed | Self::ShuttingDown => 503,
        }
    }
}

// === impl RemoteError ===

impl RemoteError {
    /// Reads the body of an error; `None` where it is not one. Other keys beside the two are
    /// ignored. Both are cleaned, since the one becomes a label and the other a line of the journal.
    pub fn read(body: &[u8]) -> Option<Self> {
        let error: Self = serde_json::from_slice(body).ok()?;
        let kind = clean_kind(&error.kind);
        (!kind.is_empty()).then(|| Self { kind, value: clean_value(&error.value) })
    }
}

/// A kind that can be a metrics label: at most 64 of `[a-z0-9_.-]`, anything else an underscore.
pub fn clean_kind(kind: &str) -> String {
    kind.trim()
        .chars()
        .take(KIND_LENGTH_MAX)
        .map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') => c,
            _ => '_',
        })
        .collect()
}

/// A text that can be a line of the journal: no control characters, at most 512 characters.
pub fn clean_value(value: &str) -> String {
    let line: String = value
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(4 * VALUE_LENGTH_MAX)
        .collect();
    let mut words: String = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(VALUE_LENGTH_MAX) {
        words.truncate(end);
    }
    words
}

/// Whether a text can be told as the name of a node: 1 to 253 characters of visible ASCII.
pub fn is_node_name(text: &str) -> bool {
    (1..=NODE_LENGTH_MAX).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_body_has_exactly_the_two_keys() {
        let body = Request::new("n1", "default").body();
        assert_eq!(body, br#"{"client_params":{"id":"n1","group":"default"}}"#);
        assert_eq!(parse_request(&body).unwrap().group, "default");
    }

    #[test]
    fn zincatis_pretty_body_is_read() {
        let body =
            b"{\n  \"client_params\": {\n    \"id\": \"a\",\n    \"group\": \"B.c-1\"\n  }\n}";
        let params = parse_request(body).unwrap();
        assert_eq!((params.id.as_str(), params.group.as_str()), ("a", "B.c-1"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!(r#"{{"client_params":{{"id":"{}","group":"g"}}}}"#, "i".repeat(257));
        let huge = format!(r#"{{"client_params":{{"id":"{}","group":"g"}}}}"#, "i".repeat(5000));
        let wide = format!(r#"{{"client_params":{{"id":"i","group":"{}"}}}}"#, "g".repeat(129));
        let cases: &[(&str, &str)] = &[
            ("", "invalid_body"),
            ("null", "invalid_body"),
            ("[]", "invalid_body"),
            (r#"{"client_params":{"id":"i"}}"#, "invalid_body"),
            (r#"{"client_params":{"id":1,"group":"g"}}"#, "invalid_body"),
            (r#"{"client_params":{"id":"i","group":"g","x":1}}"#, "invalid_body"),
            (r#"{"client_params":{"id":"i","group":"g"},"x":1}"#, "invalid_body"),
            (r#"{"client_params":{"id":"i","group":"g"}} x"#, "invalid_body"),
            (r#"{"client_params":{"id":"","group":"g"}}"#, "invalid_id"),
            (r#"{"client_params":{"id":"a\nb","group":"g"}}"#, "invalid_id"),
            (&long, "invalid_id"),
            (&huge, "body_too_large"),
            (r#"{"client_params":{"id":"i","group":""}}"#, "invalid_group"),
            (r#"{"client_params":{"id":"i","group":"a_b"}}"#, "invalid_group"),
            (r#"{"client_params":{"id":"i","group":"a/b"}}"#, "invalid_group"),
            (r#"{"client_params":{"id":"i","group":"é"}}"#, "invalid_group"),
            (r#"{"client_params":{"id":"i","group":"g\n"}}"#, "invalid_group"),
            (&wide, "invalid_group"),
        ];
        for (body, kind) in cases {
            assert_eq!(parse_request(body.as_bytes()).unwrap_err().kind().word(), *kind, "{body}");
        }
    }

    #[test]
    fn foreign_text_is_cleaned() {
        assert_eq!(clean_kind(" Failed Lock\n\"x\" "), "failed_lock__x_");
        assert_eq!(clean_kind(&"k".repeat(1000)).len(), 64);
        assert_eq!(clean_value("a\x1b[31m\r\nb\u{9b}c  d"), "a [31m b c d");
        assert_eq!(clean_value(&"é".repeat(10_000)).chars().count(), 512);
    }

    #[test]
    fn our_own_kinds_survive_our_own_cleaning() {
        for kind in ErrorKind::ALL {
            assert_eq!(clean_kind(kind.word()), kind.word());
            assert!((400..600).contains(&kind.status()));
        }
    }
}
