//! What update_engine says of itself.

use std::time::Duration;

use crate::model::UNKNOWN_VERSION;
use crate::signals::bus::{BusError, Host, Link, Object, plain};

/// Well-known name of the daemon. Nobody but root may own it, and the bus starts nobody for it.
pub(super) const NAME: &str = "com.coreos.update1";

/// Its one object.
pub(super) const MANAGER: Object<'static> =
    Object { service: NAME, path: "/com/coreos/update1", interface: "com.coreos.update1.Manager" };

/// The one operation that matters: all is written, and the next boot brings it.
const NEED_REBOOT: &str = "UPDATE_STATUS_UPDATED_NEED_REBOOT";

/// Longest version that is taken for one, in bytes. `4230.2.0+nightly-20260101-2100` has 30.
const VERSION_LENGTH: usize = 128;

/// How long a look may take in all. It answers from memory.
const NOW_TIMEOUT: Duration = Duration::from_secs(10);

/// `GetStatus` and `StatusUpdate`, as update_engine.xml has them: when it last looked (seconds since
/// 1970), progress (0 to 1), operation, new version, size of the update in bytes.
pub(super) type Wire = (i64, f64, String, String, i64);

/// Signature of [`Wire`].
pub(super) const SIGNATURE: &str = "xdssx";

/// What the daemon does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its own word, such as `UPDATE_STATUS_IDLE`; on one line, at most 128 characters. Others than
    /// those known may come.
    pub operation: String,
    /// The version that it brings; `None`: it does not know, as after a restart of its own.
    pub version: Option<String>,
}

// === impl Status ===

impl Status {
    pub(super) fn new((_, _, operation, version, _): Wire) -> Self {
        Self { operation: plain(&operation), version: known_version(&version) }
    }

    /// Whether an update waits for the reboot.
    pub fn needs_reboot(&self) -> bool {
        self.operation == NEED_REBOOT
    }
}

/// Asks once, for a gate or right before the reboot. Takes at most 10 s.
///
/// # Errors
/// Why it is not known, one bounded line for people: nobody runs there, or it does not answer.
pub async fn status_now(host: &Host) -> Result<Status, String> {
    now_within(host, NOW_TIMEOUT).await
}

pub(super) async fn now_within(host: &Host, within: Duration) -> Result<Status, String> {
    let asked = async { ask(&host.bus.connect().await?, within).await };
    let answer = tokio::time::timeout(within, asked).await.unwrap_or_else(|_| {
        let (service, member) = (NAME.to_owned(), "GetStatus".to_owned());
        Err(BusError::TimedOut { service, member, after: within })
    });
    answer.map_err(|error| {
        if error.is_absent() {
            // Nobody would mark the new system as good either, and the boot after it would go back.
            "update_engine does not run; see update-engine.service".to_owned()
        } else {
            error.text()
        }
    })
}

/// Asks the daemon.
///
/// # Errors
/// It is absent, does not answer, or answers oddly.
pub(super) async fn ask(link: &Link, within: Duration) -> Result<Status, BusError> {
    let answer: Result<Wire, BusError> = link.call_within(MANAGER, "GetStatus", &(), within).await;
    match answer {
        Ok(wire) => Ok(Status::new(wire)),
        Err(BusError::Call {
            service,
            member,
            source: zbus::Error::SignatureMismatch(found, _),
        }) => {
            let found = plain(&found.to_string());
            Err(BusError::OddType { service, member, found, expected: SIGNATURE })
        }
        Err(error) => Err(error),
    }
}

/// A version, if it is one. `0.0.0` is the daemon's word for one that it does not know, `0.0.0.0` that
/// of older ones.
pub(super) fn known_version(text: &str) -> Option<String> {
    let text = text.trim();
    let is_plain = text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    let says_something = text.chars().any(|c| !matches!(c, '0' | '.')) && text != UNKNOWN_VERSION;
    let is_version = is_plain && says_something && text.len() <= VERSION_LENGTH;
    is_version.then(|| text.to_owned())
}
