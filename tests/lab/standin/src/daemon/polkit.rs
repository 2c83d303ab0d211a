//! Who may ask for what: root everything, others as polkit says.

use std::collections::HashMap;
use std::time::Duration;

use zbus::Connection;
use zbus::wire::Variant;

use super::bus::Refusal;

/// Longest wait for polkit, which is not asked to interact.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The user id of a caller.
pub(crate) async fn uid(bus: &Connection, sender: &str) -> Result<u32, Refusal> {
    let reply = bus
        .call_method(
            Some("org.freedesktop.DBus"),
            "/org/freedesktop/DBus",
            Some("org.freedesktop.DBus"),
            "GetConnectionUnixUser",
            &sender,
        )
        .await?;
    Ok(reply.body().deserialize()?)
}

/// Refuses unless the caller is root or polkit allows `action`.
pub(crate) async fn check(bus: &Connection, sender: &str, action: &str) -> Result<u32, Refusal> {
    let uid = uid(bus, sender).await?;
    if uid == 0 {
        return Ok(uid);
    }
    let action = format!("org.projectatomic.rpmostree1.{action}");
    let subject = ("system-bus-name", HashMap::from([("name", Variant::from(sender.to_owned()))]));
    let body = (subject, action.as_str(), HashMap::<&str, &str>::new(), 0_u32, "");
    let call = bus.call_method(
        Some("org.freedesktop.PolicyKit1"),
        "/org/freedesktop/PolicyKit1/Authority",
        Some("org.freedesktop.PolicyKit1.Authority"),
        "CheckAuthorization",
        &body,
    );
    let denied = || {
        Refusal::new(
            "org.freedesktop.DBus.Error.AccessDenied",
            format!("Authorization for action {action} denied"),
        )
    };
    let Ok(Ok(reply)) = tokio::time::timeout(TIMEOUT, call).await else {
        return Err(denied());
    };
    let (allowed, ..): (bool, bool, HashMap<String, String>) =
        reply.body().deserialize_ignore_signature()?;
    if allowed { Ok(uid) } else { Err(denied()) }
}
