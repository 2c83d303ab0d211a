//! What a server's answer means, over the list of servers that deviate.
//!
//! Denied and failed are told apart with care, since they end differently when a slot that is held
//! is confirmed: a denial says that the slot is not ours and the attempt yields, a failure says
//! nothing and is asked again. Statuses alone do not tell: airlock has one status and kind for a
//! full semaphore, a lost race and a dead database.

use jiff::Timestamp;

use super::answer::{ReleaseAnswer, SlotAnswer};
use super::retry_after::read_retry_after;
use super::wire::{RemoteError, clean_value};

/// Reads the answer to a request for the slot.
///
/// Only 200 grants, as the protocol has it, and not if it carries a web page: a portal or a login
/// page in between answers 200 to everything. 202 is pending; every redirect is a failure.
pub fn read_answer(
    status: u16,
    retry_after: Option<&str>,
    body: &[u8],
    now: Timestamp,
) -> SlotAnswer {
    let answer = Body::read(body);
    let retry_after = retry_after.and_then(|value| read_retry_after(value, now));
    match status {
        200 if answer.is_web_page => failed("not-an-answer", WEB_PAGE.to_owned(), true),
        200 => SlotAnswer::Granted,
        202 => SlotAnswer::Pending { value: answer.sentence(status), retry_after },
        300..=399 => {
            failed("redirect", format!("HTTP {status}: redirects are not followed"), false)
        }
        400..=599 if is_denial(status, &answer) => SlotAnswer::Denied {
            kind: answer.kind(status),
            value: answer.sentence(status),
            retry_after,
        },
        400..=599 => failed_with(
            answer.failure_kind(status),
            answer.sentence(status),
            may_have_acted(status),
        ),
        _ => failed("not-an-answer", format!("HTTP {status} means nothing in FleetLock"), true),
    }
}

/// Reads the answer to a release.
///
/// 200 is released. A server that says that it is not ours to release (423 of poseidon, 400 of the
/// DynamoDB template and of ceph) has told us that we hold nothing; to ask again until it is free
/// would keep this node waiting for another one.
pub fn read_release(
    status: u16,
    retry_after: Option<&str>,
    body: &[u8],
    now: Timestamp,
) -> ReleaseAnswer {
    let answer = Body::read(body);
    let retry_after = retry_after.and_then(|value| read_retry_after(value, now));
    let failed = |kind: String, error: String| ReleaseAnswer::Failed { kind, error, retry_after };
    match status {
        200 if answer.is_web_page => failed("not-an-answer".into(), WEB_PAGE.into()),
        200 => ReleaseAnswer::Released,
        202 => failed("pending".into(), answer.sentence(status)),
        300..=399 => {
            failed("redirect".into(), format!("HTTP {status}: redirects are not followed"))
        }
        400..=599 if is_not_ours(status, &answer) => {
            ReleaseAnswer::HeldByAnother { value: answer.sentence(status) }
        }
        400..=599 => failed(answer.failure_kind(status), answer.sentence(status)),
        _ => failed("not-an-answer".into(), format!("HTTP {status} means nothing in FleetLock")),
    }
}

const WEB_PAGE: &str = "HTTP 200 with a web page: something else than a slot server answered";

/// A body, once looked at.
struct Body {
    remote: Option<RemoteError>,
    /// The text in lower case, cut: what the tables below search.
    text: String,
    /// The text for people where it is no [`RemoteError`].
    plain: String,
    is_web_page: bool,
}

/// Whether a status of 400 and above, with its body, says: no slot for you now.
fn is_denial(status: u16, body: &Body) -> bool {
    let kind = body.remote.as_ref().map_or("", |r| r.kind.as_str());
    // The protocol's own example and ceph's kinds (its window, its health), whatever the status.
    if kind.starts_with("failed_lock_") || body.is_conditional_check() {
        return true;
    }
    match status {
        // A full room at poseidon, its forks and heathcliff; at knubbis, consul and ours.
        423 | 409 => !body.is_web_page,
        // A fork of poseidon outside its window. A proxy's 403 has no kind.
        403 => body.remote.is_some(),
        // A fork's cool-down is a verdict on the slot; a rate limit is none: the server did not look.
        429 => body.remote.is_some() && !kind.contains("rate"),
        // airlock: the one sentence that sets a full semaphore apart from its other troubles.
        500 => kind == "failed_lock" && body.says("slots currently locked"),
        // A small consul server says it in plain text. A load balancer without servers does not.
        503 => body.says("cannot lock") || (body.remote.is_some() && kind == "failed_lock"),
        _ => false,
    }
}

/// Whether the answer to a release says that another one holds the slot, or nobody.
fn is_not_ours(status: u16, body: &Body) -> bool {
    match status {
        423 => !body.is_web_page,
        400 | 403 | 409 => {
            body.is_conditional_check()
                || ["not_held", "not held", "lock_held", "held by", "owned by", "not the holder"]
                    .iter()
                    .any(|words| body.says(words))
        }
        _ => false,
    }
}

/// Whether the server may have granted although it answered with this failure: it, or a gateway in
/// front of it, gave up somewhere on the way. A 4xx was refused before anything was done.
fn may_have_acted(status: u16) -> bool {
    status >= 500 || status == 408
}

fn failed(kind: &str, error: String, answer_lost: bool) -> SlotAnswer {
    failed_with(kind.to_owned(), error, answer_lost)
}

fn failed_with(kind: String, error: String, answer_lost: bool) -> SlotAnswer {
    SlotAnswer::Failed { kind, error, answer_lost }
}

// === impl Body ===

impl Body {
    fn read(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let lower: String = text.chars().take(4096).collect::<String>().to_lowercase();
        let start = lower.trim_start_matches('\u{feff}').trim_start();
        let is_web_page = start.starts_with("<!doctype") || start.starts_with("<html");
        Self {
            remote: RemoteError::read(body),
            plain: if is_web_page { String::new() } else { clean_value(&text) },
            is_web_page,
            text: lower,
        }
    }

    fn says(&self, words: &str) -> bool {
        !self.is_web_page && self.text.contains(words)
    }

    /// DynamoDB's answer where the item is another one's; it has neither kind nor value.
    fn is_conditional_check(&self) -> bool {
        self.says("conditionalcheckfailed")
    }

    /// The server's word, or the status.
    fn kind(&self, status: u16) -> String {
        self.remote.as_ref().map_or_else(|| format!("http_{status}"), |r| r.kind.clone())
    }

    /// As [`Self::kind`]; a rate limit has one word whoever set it.
    fn failure_kind(&self, status: u16) -> String {
        if status == 429 { "rate-limited".to_owned() } else { self.kind(status) }
    }

    /// The server's sentence, with the status where it has none of its own.
    fn sentence(&self, status: u16) -> String {
        let text = self.remote.as_ref().map_or(self.plain.as_str(), |r| r.value.as_str());
        match text {
            "" if self.is_web_page => format!("HTTP {status} with a web page"),
            "" => format!("HTTP {status}"),
            text => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
