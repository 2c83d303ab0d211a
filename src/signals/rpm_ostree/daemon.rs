//! Calls to rpm-ostreed.

use std::collections::HashMap;
use std::time::Duration;

use zbus::{OwnedVariant, Variant};

use super::deployments::{DeploymentsError, Entry, parse_entries};
use crate::signals::bus::systemd::{self, JobEnd, Systemd};
use crate::signals::bus::{Bus, BusError, CALL_TIMEOUT, Link, Object, odd, one_line};

/// Well-known name of the daemon.
pub(crate) const NAME: &str = "org.projectatomic.rpmostree1";

/// Its sysroot.
pub(crate) const SYSROOT: Object<'static> = Object {
    service: NAME,
    path: "/org/projectatomic/rpmostree1/Sysroot",
    interface: "org.projectatomic.rpmostree1.Sysroot",
};

/// Its unit.
pub(crate) const UNIT: &str = "rpm-ostreed.service";

/// How long the daemon may take to start, as its unit has it (`TimeoutStartSec`).
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Why the update system cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("cannot watch {path}")]
    Files { path: String, source: std::io::Error },
    #[error(transparent)]
    Deployments(#[from] DeploymentsError),
    #[error("{UNIT} does not start: {0}")]
    Start(String),
}

/// What a read found.
#[derive(Debug)]
pub(crate) enum Reading {
    /// A transaction runs; what would be read now will change soon.
    Busy,
    /// The deployments.
    Entries(Vec<Entry>),
}

// === impl Trouble ===

impl Trouble {
    /// Whether waiting a little is no help.
    pub(crate) fn is_definite(&self) -> bool {
        match self {
            Self::Bus(error @ BusError::Call { .. }) => error.name().is_some_and(|name| {
                matches!(
                    name.as_str(),
                    "org.freedesktop.DBus.Error.ServiceUnknown"
                        | "org.freedesktop.DBus.Error.AccessDenied"
                )
            }),
            Self::Bus(BusError::OddType { .. }) | Self::Deployments(_) | Self::Start(_) => true,
            Self::Bus(BusError::Connect { .. } | BusError::TimedOut { .. } | BusError::Closed)
            | Self::Files { .. } => false,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        one_line(self)
    }
}

/// Starts the daemon through systemd if nobody has its name: the bus itself waits only 25 s for it.
///
/// # Errors
/// Its condition does not hold or it failed. That systemd cannot be asked is no error: then the bus
/// starts it.
pub(crate) async fn ensure_started(bus: &Bus, link: &Link) -> Result<(), Trouble> {
    if link.owner_of(NAME).await?.is_some() {
        return Ok(());
    }
    let end = match systemd::start_unit(bus, UNIT, START_TIMEOUT).await {
        Ok(end) => end,
        Err(error) => {
            tracing::debug!(error = error.text(), "rpm-ostreed is left to the bus to start");
            return Ok(());
        }
    };
    if link.owner_of(NAME).await?.is_some() {
        return Ok(());
    }
    let Ok(unit) = Systemd::new(link).unit(UNIT).await else { return Ok(()) };
    if unit.condition == Some(false) {
        return Err(Trouble::Start("its condition does not hold".to_owned()));
    }
    match end {
        JobEnd::Result(result) if result != "done" => {
            Err(Trouble::Start(format!("{result}; it is {} ({})", unit.active, unit.sub)))
        }
        JobEnd::Result(_) | JobEnd::Unfinished => Ok(()),
    }
}

/// Reads the deployments, behind everything that the daemon still has to notice.
///
/// # Errors
/// The daemon does not answer or answers oddly.
pub(crate) async fn read(link: &Link, even_if_busy: bool) -> Result<Reading, Trouble> {
    let busy = is_busy(link).await?;
    if busy && !even_if_busy {
        return Ok(Reading::Busy);
    }
    if !busy {
        let () = link.call_within(SYSROOT, "Reload", &(), START_TIMEOUT).await?;
    }
    let value = link.property(SYSROOT, "Deployments", CALL_TIMEOUT).await?;
    if value.value_signature() != "aa{sv}" {
        return Err(odd(SYSROOT, "Deployments", &value, "aa{sv}").into());
    }
    let list: Vec<HashMap<String, OwnedVariant>> = Vec::try_from(value).map_err(|source| {
        BusError::Call { service: NAME.to_owned(), member: "Deployments".to_owned(), source }
    })?;
    Ok(Reading::Entries(parse_entries(&list)?))
}

/// Whether a transaction runs. The first call of a read: it may have to wait for the daemon.
async fn is_busy(link: &Link) -> Result<bool, Trouble> {
    let value = link.property(SYSROOT, "ActiveTransaction", START_TIMEOUT).await?;
    transaction_is_active(&value)
        .ok_or_else(|| odd(SYSROOT, "ActiveTransaction", &value, "(sss)").into())
}

/// What the property `ActiveTransaction` says; `None`: it is of another type.
pub(crate) fn transaction_is_active(value: &Variant<'_>) -> Option<bool> {
    #[allow(clippy::wildcard_enum_match_arm)] // not ours
    match value {
        Variant::Structure(parts) => match parts.fields() {
            [Variant::Str(method), Variant::Str(_), Variant::Str(_)] => Some(!method.is_empty()),
            _ => None,
        },
        _ => None,
    }
}
