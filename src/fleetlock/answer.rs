//! What an answer of a slot server means to the one who asked.

use std::time::Duration;

/// The answer to a request for the slot. Denied, pending and failed are three different things.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotAnswer {
    /// HTTP 200, and nothing else.
    Granted,
    /// The server understood and says no.
    Denied {
        /// The bounded word of the server (or `http_<code>`): a metrics label.
        kind: String,
        /// The server's sentence for people.
        value: String,
        /// `Retry-After`, where it sent one.
        retry_after: Option<Duration>,
    },
    /// The server works on it (202): not granted, ask again soon.
    Pending {
        /// The server's sentence for people.
        value: String,
        /// `Retry-After`, where it sent one.
        retry_after: Option<Duration>,
    },
    /// No answer, or one that is none.
    Failed {
        /// A bounded word for metrics: `connect`, `timeout`, `tls`, `redirect`, `not-an-answer`, …
        kind: String,
        /// What happened, for people.
        error: String,
        /// The request may have reached the server: it may yet be granted there. `false`: it is
        /// certain that this request was not and will not be granted.
        answer_lost: bool,
    },
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReleaseAnswer {
    /// Released, or it was not held: FleetLock does not tell them apart.
    Released,
    /// The server says that another one holds it (poseidon's 423): ours is gone.
    HeldByAnother {
        /// The server's sentence.
        value: String,
    },
    /// Not confirmed: ask again.
    Failed {
        /// A bounded word for metrics.
        kind: String,
        /// What happened, for people.
        error: String,
        /// `Retry-After`, where the server sent one.
        retry_after: Option<Duration>,
    },
}
