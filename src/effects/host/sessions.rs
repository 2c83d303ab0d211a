//! Who is logged in.

use std::collections::HashMap;

use zbus::{OwnedObjectPath, OwnedVariant, Variant};

use crate::signals::bus::{BusError, Link, Object, plain};
use crate::signals::logind;

/// Session, uid, user, seat, object.
type SessionRow = (String, u32, String, String, OwnedObjectPath);

/// Classes of sessions behind which a person sits; `manager`, `background`, `greeter` and
/// `lock-screen` are others.
const PERSONS: [&str; 5] =
    ["user", "user-early", "user-light", "user-early-light", "user-incomplete"];

/// Users with a session on a terminal, on a screen or from afar, sorted, each once.
///
/// # Errors
/// logind does not answer, or a session does not say what it is.
pub(super) async fn users(link: &Link) -> Result<Vec<String>, BusError> {
    let rows: Vec<SessionRow> = link.call(logind::MANAGER, "ListSessions", &()).await?;
    let mut users = Vec::new();
    for (_, _, user, _, path) in rows {
        let session = Object {
            service: logind::MANAGER.service,
            path: path.as_str(),
            interface: "org.freedesktop.login1.Session",
        };
        match is_person(link, session).await {
            Ok(true) => users.push(plain(&user)),
            Ok(false) => {}
            // It ended meanwhile.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    users.sort();
    users.dedup();
    Ok(users)
}

async fn is_person(link: &Link, session: Object<'_>) -> Result<bool, BusError> {
    let properties = Object { interface: "org.freedesktop.DBus.Properties", ..session };
    let all: HashMap<String, OwnedVariant> =
        link.call(properties, "GetAll", &session.interface).await?;
    let text = |name: &'static str| text(session, &all, name);
    let class = text("Class")?;
    let state = text("State")?;
    if !PERSONS.contains(&class) || state == "closing" {
        return Ok(false);
    }
    let remote = match all.get("Remote").map(|value| bool::try_from(&**value)) {
        Some(Ok(remote)) => remote,
        // A session that hides it counts as one with a person.
        Some(Err(_)) | None => true,
    };
    Ok(remote || !text("TTY")?.is_empty() || matches!(text("Type")?, "x11" | "wayland" | "mir"))
}

fn text<'a>(
    session: Object<'_>,
    all: &'a HashMap<String, OwnedVariant>,
    name: &'static str,
) -> Result<&'a str, BusError> {
    #[allow(clippy::wildcard_enum_match_arm)] // not ours
    match all.get(name).map(|value| &**value) {
        Some(Variant::Str(text)) => Ok(text.as_str()),
        other => Err(BusError::OddType {
            service: session.path.to_owned(),
            member: name.to_owned(),
            found: other.map_or("nothing".to_owned(), |v| v.value_signature().to_string()),
            expected: "s",
        }),
    }
}

fn is_gone(error: &BusError) -> bool {
    error.is_unknown_object()
        || error.name().as_deref() == Some("org.freedesktop.login1.NoSuchSession")
}
