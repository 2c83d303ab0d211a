//! The reboot into a target, its undoing, and the plain reboot by logind.

mod finalize;
#[cfg(test)]
mod noise;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::HashMap;
use std::time::Duration;

use zbus::{OwnedObjectPath, Variant};

pub use undo::undo;

use crate::lifecycle::RebootAnswer;
use crate::model::{AttemptId, Source, Target};
use crate::signals::bus::systemd::Systemd;
use crate::signals::bus::{BusError, Host, Link, Object};
use crate::signals::logind;
use crate::signals::rpm_ostree::{
    Entry, NAME, Reading, START_TIMEOUT, SYSROOT, Trouble, ensure_started, read,
};
use crate::signals::update_engine;

use super::host::LEGACY_LOCK;

/// How often the way up to the transaction is tried: the daemon leaves by itself once a minute, and
/// a call that meets its leaving is lost.
const TRIES: u32 = 3;

/// Rest between them.
const REST: Duration = Duration::from_millis(500);

/// How often another transaction is waited for, with a rest between: two minutes. The node is
/// drained by now, so that a look for new metadata must not cost the attempt.
const BUSY_TRIES: u32 = 240;

/// A plain reboot is refused while somebody blocks it: systemd before 257 lets root pass otherwise.
const CHECK_INHIBITORS: u64 = 0x01;

/// Reboots into the target. Everything is looked at once more before anything is changed.
///
/// A host that goes down already counts as accepted: the effect may run twice.
pub async fn reboot(
    host: &Host,
    target: &Target,
    attempt: &AttemptId,
    message: &str,
) -> RebootAnswer {
    let _single = host.reboot.lock().await;
    match target.source {
        Source::RpmOstree => rpm_ostree(host, target, attempt, message).await,
        // What is written already, or only asks for a boot: every clean reboot applies it.
        Source::UpdateEngine => match update_engine::status_now(host).await {
            Ok(status) if status.needs_reboot() => by_logind(host, message).await,
            Ok(status) => {
                let why = format!("update_engine says {}", status.operation);
                RebootAnswer::Refused(why)
            }
            Err(why) => RebootAnswer::Refused(why),
        },
        Source::Bootc | Source::Sentinel | Source::Person => by_logind(host, message).await,
    }
}

/// Finalizes the staged deployment, which reboots.
async fn rpm_ostree(
    host: &Host,
    target: &Target,
    attempt: &AttemptId,
    message: &str,
) -> RebootAnswer {
    let link = match begin(host).await {
        Ok(link) => link,
        Err(answer) => return answer,
    };
    if host.path(LEGACY_LOCK).symlink_metadata().is_ok() {
        return RebootAnswer::Refused(format!(
            "{LEGACY_LOCK} lies there: the shutdown would drop the update"
        ));
    }
    let staged = match staged_patiently(host, &link, target).await {
        Ok(staged) => staged,
        Err(why) => return RebootAnswer::Refused(why),
    };
    wall_message(&link, message).await;
    let answer = finalize::finalize(&link, &staged, attempt).await;
    if !matches!(answer, RebootAnswer::Accepted) {
        clear_wall_message(&link).await;
    }
    answer
}

/// A connection to a host that stays up so far. `Err`: it goes down already, or cannot be asked, and
/// there is nothing more to do.
async fn begin(host: &Host) -> Result<Link, RebootAnswer> {
    let refused = |error: BusError| RebootAnswer::Refused(error.text());
    let link = host.bus.connect().await.map_err(refused)?;
    match logind::preparing_for_shutdown(&link).await.map_err(refused)? {
        true => Err(RebootAnswer::Accepted),
        false => Ok(link),
    }
}

/// What stood in the way before anything was changed.
#[derive(Debug)]
enum Before {
    Refused(String),
    Busy,
    Trouble(Trouble),
}

/// The staged deployment and the object that finalizes it.
#[derive(Debug, Clone)]
struct Staged {
    entry: Entry,
    identity: String,
    os: OwnedObjectPath,
}

impl From<Trouble> for Before {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<BusError> for Before {
    fn from(error: BusError) -> Self {
        Self::Trouble(error.into())
    }
}

/// As [`staged`], and not put off by a daemon that is just leaving or busy.
async fn staged_patiently(host: &Host, link: &Link, target: &Target) -> Result<Staged, String> {
    let (mut tries, mut busy) = (0, 0);
    loop {
        match staged(host, link, target).await {
            Ok(staged) => return Ok(staged),
            Err(Before::Refused(why)) => return Err(why),
            Err(Before::Busy) => {
                busy += 1;
                if busy == BUSY_TRIES {
                    return Err("rpm-ostree is in the middle of a transaction".to_owned());
                }
            }
            Err(Before::Trouble(trouble)) => {
                tries += 1;
                if trouble.is_definite() || tries == TRIES {
                    return Err(trouble.text());
                }
                tracing::debug!(error = trouble.text(), tries, "rpm-ostreed is asked again");
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// Registers with the daemon, so that it does not leave meanwhile (until this connection ends), and
/// reads freshly what is staged.
async fn staged(host: &Host, link: &Link, target: &Target) -> Result<Staged, Before> {
    ensure_started(&host.bus, link).await?;
    let client = HashMap::from([("id", Variant::from("lockkeeper"))]);
    let () = link.call_within(SYSROOT, "RegisterClient", &client, START_TIMEOUT).await?;
    let entries = match read(link, false).await? {
        Reading::Entries(entries) => entries,
        Reading::Busy => return Err(Before::Busy),
    };
    let Some(entry) = entries.into_iter().find(|entry| entry.staged) else {
        return Err(Before::Refused("no deployment is staged".to_owned()));
    };
    if entry.identity() != Some(target.identity.as_str()) {
        let found = entry.identity().unwrap_or("a nameless one").to_owned();
        return Err(Before::Refused(format!("{found} is staged, not {}", target.identity)));
    }
    let os = os_object(link).await?;
    Ok(Staged { entry, identity: target.identity.clone(), os })
}

/// The object of the running operating system. Its path is never built: escaping is not reversible.
async fn os_object(link: &Link) -> Result<OwnedObjectPath, BusError> {
    let value = link.property(SYSROOT, "Booted", crate::signals::bus::CALL_TIMEOUT).await;
    if let Ok(value) = value
        && let Ok(path) = OwnedObjectPath::try_from(value)
        && path.as_str() != "/"
    {
        return Ok(path);
    }
    link.call(SYSROOT, "GetOS", &"").await
}

/// Tells the people who are logged in. A message that does not come through stops nothing.
async fn wall_message(link: &Link, message: &str) {
    let set: Result<(), BusError> =
        link.call(logind::MANAGER, "SetWallMessage", &(message, true)).await;
    if let Err(error) = set {
        tracing::warn!(error = error.text(), "logged-in users are not told of the reboot");
    }
}

/// Otherwise a later reboot by somebody else would carry our reason.
async fn clear_wall_message(link: &Link) {
    let _: Result<(), BusError> = link.call(logind::MANAGER, "SetWallMessage", &("", false)).await;
}

/// A plain reboot by logind. Inhibitors count; a prepared soft reboot is not taken.
async fn by_logind(host: &Host, message: &str) -> RebootAnswer {
    let link = match begin(host).await {
        Ok(link) => link,
        Err(answer) => return answer,
    };
    let flags = match Systemd::new(&link).version().await {
        Ok(Some(version)) if version >= 257 => 0,
        // With an unknown version the flag is tried: one that logind does not know is refused.
        Ok(_) | Err(_) => CHECK_INHIBITORS,
    };
    wall_message(&link, message).await;
    let answer = match call_reboot(&link, flags).await {
        // This logind does not know the flag and would pass over inhibitors.
        Err(error) if flags != 0 && is_invalid(&error) => match blockers(&link).await {
            Ok(None) => call_reboot(&link, 0).await,
            Ok(Some(blockers)) => {
                clear_wall_message(&link).await;
                return RebootAnswer::Refused(blockers);
            }
            Err(error) => Err(error),
        },
        other => other,
    };
    let answer = match answer {
        Ok(()) => RebootAnswer::Accepted,
        Err(error) => understand_reboot_error(&link, &error).await,
    };
    if !matches!(answer, RebootAnswer::Accepted) {
        clear_wall_message(&link).await;
    }
    answer
}

async fn call_reboot(link: &Link, flags: u64) -> Result<(), BusError> {
    link.call(logind::MANAGER, "RebootWithFlags", &flags).await
}

fn is_invalid(error: &BusError) -> bool {
    error.name().as_deref() == Some("org.freedesktop.DBus.Error.InvalidArgs")
}

async fn understand_reboot_error(link: &Link, error: &BusError) -> RebootAnswer {
    match error.name().as_deref() {
        Some("org.freedesktop.login1.OperationInProgress") => RebootAnswer::Accepted,
        Some("org.freedesktop.login1.BlockedByInhibitorLock") => {
            RebootAnswer::Refused(match blockers(link).await {
                Ok(Some(blockers)) => blockers,
                Ok(None) | Err(_) => error.text(),
            })
        }
        // The connection went down, perhaps with the host.
        Some("org.freedesktop.DBus.Error.NoReply") | None => RebootAnswer::Unknown(error.text()),
        Some(_) => RebootAnswer::Refused(error.text()),
    }
}

/// Who blocks a reboot, for people.
async fn blockers(link: &Link) -> Result<Option<String>, BusError> {
    let found = super::host::inhibitors(link).await?;
    let names: Vec<String> = found.iter().map(|one| format!("{} ({})", one.who, one.why)).collect();
    Ok((!names.is_empty()).then(|| format!("blocked by an inhibitor lock: {}", names.join(", "))))
}

/// What an `OS` object of rpm-ostreed is called by.
fn os_interface(path: &OwnedObjectPath) -> Object<'_> {
    Object { service: NAME, path: path.as_str(), interface: "org.projectatomic.rpmostree1.OS" }
}
