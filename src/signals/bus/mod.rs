//! The message bus: connections, calls that end, and errors that can be told apart.
//!
//! zbus neither reconnects nor bounds a call by itself, so every call here has a timeout and every
//! source opens its connection anew when it ends. Nothing is cached: a cached property of
//! rpm-ostreed stays at its old value when the daemon went away and came back.

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod noise;
#[cfg(test)]
pub(crate) mod odd;
pub(crate) mod owner;
#[cfg(test)]
pub(crate) mod private;
pub mod retry;
pub mod systemd;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;
use zbus::{Connection, DBusError, DynamicType, OwnedVariant};

use crate::fleetlock::clean_value;

/// How long an ordinary call may take: the callee runs already and answers from memory.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest text of a stranger that is kept, in characters.
const PLAIN_LENGTH: usize = 128;

/// How long connecting may take: the bus is a local socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bus {
    /// The system bus.
    System,
    /// The bus at this D-Bus address.
    At(String),
}

/// The host that the agent looks after: its bus, and where its files are seen.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its message bus.
    pub bus: Bus,
    /// Its root folder as this process sees it: `/` on the host itself.
    pub root: PathBuf,
    /// Two reboot calls in a row can bring logind down, so that only one is ever under way.
    pub(crate) reboot: Arc<tokio::sync::Mutex<()>>,
    /// Held by a look at a file system that may hang, so that there is only one.
    pub(crate) looks: Arc<tokio::sync::Mutex<()>>,
}

/// An open connection to a bus.
#[derive(Debug, Clone)]
pub struct Link {
    /// The connection itself.
    pub connection: Connection,
}

/// One interface of one object of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Well-known name.
    pub service: &'a str,
    /// Object path.
    pub path: &'a str,
    /// Interface.
    pub interface: &'a str,
}

/// What can go wrong with a bus.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// No connection.
    #[error("cannot connect to the message bus at {address}")]
    Connect {
        /// Which bus.
        address: String,
        /// Why.
        source: zbus::Error,
    },
    /// A call failed.
    #[error("{service}: {member} failed")]
    Call {
        /// Who was called.
        service: String,
        /// Method or property.
        member: String,
        /// Why.
        source: zbus::Error,
    },
    /// A call was not answered in time.
    #[error("{service}: {member} was not answered within {} s", after.as_secs())]
    TimedOut {
        /// Who was called.
        service: String,
        /// Method or property.
        member: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// An answer was of another type.
    #[error("{service}: {member} answered with {found}, expected {expected}")]
    OddType {
        /// Who was called.
        service: String,
        /// Method or property.
        member: String,
        /// What came.
        found: String,
        /// D-Bus signature that was expected.
        expected: &'static str,
    },
    /// The connection ended.
    #[error("the connection to the message bus was closed")]
    Closed,
}

const DBUS: Object<'static> = Object {
    service: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};

// === impl Bus ===

impl Bus {
    /// Opens a connection.
    ///
    /// # Errors
    /// The bus cannot be reached or does not answer within 10 s.
    pub async fn connect(&self) -> Result<Link, BusError> {
        let builder = match self {
            Self::System => zbus::connection::Builder::system(),
            Self::At(address) => zbus::connection::Builder::address(address.as_str()),
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, build(builder)).await {
            Ok(Ok(connection)) => Ok(Link { connection }),
            Ok(Err(source)) => Err(BusError::Connect { address: self.to_string(), source }),
            Err(_) => Err(BusError::TimedOut {
                service: self.to_string(),
                member: "connecting".to_owned(),
                after: CONNECT_TIMEOUT,
            }),
        }
    }
}

impl std::fmt::Display for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System => f.write_str("system bus"),
            Self::At(address) => f.write_str(address),
        }
    }
}

// === impl Host ===

impl Host {
    /// A host seen through this bus and below this folder.
    pub fn new(bus: Bus, root: impl Into<PathBuf>) -> Self {
        Self { bus, root: root.into(), reboot: Arc::default(), looks: Arc::default() }
    }

    /// Where an absolute path of the host is seen.
    pub fn path(&self, absolute: &str) -> PathBuf {
        below(&self.root, absolute)
    }
}

/// Where an absolute path is seen below a root folder.
pub(crate) fn below(root: &Path, absolute: &str) -> PathBuf {
    root.join(absolute.trim_start_matches('/'))
}

// === impl Link ===

impl Link {
    /// Calls a method and waits up to 30 s.
    ///
    /// # Errors
    /// An error answer, none, or one of another type.
    pub async fn call<B, R>(
        &self,
        object: Object<'_>,
        method: &str,
        body: &B,
    ) -> Result<R, BusError>
    where
        B: Serialize + DynamicType + Sync,
        R: DeserializeOwned + zbus::Type,
    {
        self.call_within(object, method, body, CALL_TIMEOUT).await
    }

    /// Calls a method and waits as long as told.
    ///
    /// # Errors
    /// An error answer, none, or one of another type.
    pub async fn call_within<B, R>(
        &self,
        object: Object<'_>,
        method: &str,
        body: &B,
        within: Duration,
    ) -> Result<R, BusError>
    where
        B: Serialize + DynamicType + Sync,
        R: DeserializeOwned + zbus::Type,
    {
        let failed = |source| BusError::Call {
            service: object.service.to_owned(),
            member: method.to_owned(),
            source,
        };
        let call = self.connection.call_method(
            Some(object.service),
            object.path,
            Some(object.interface),
            method,
            body,
        );
        let reply = tokio::time::timeout(within, call)
            .await
            .map_err(|_| BusError::TimedOut {
                service: object.service.to_owned(),
                member: method.to_owned(),
                after: within,
            })?
            .map_err(failed)?;
        reply.body().deserialize().map_err(failed)
    }

    /// Reads a property, never from a cache.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn property(
        &self,
        object: Object<'_>,
        name: &str,
        within: Duration,
    ) -> Result<OwnedVariant, BusError> {
        let properties = Object { interface: "org.freedesktop.DBus.Properties", ..object };
        self.call_within(properties, "Get", &(object.interface, name), within).await.map_err(
            |error| match error {
                BusError::Call { service, source, .. } => {
                    BusError::Call { service, member: name.to_owned(), source }
                }
                BusError::TimedOut { service, after, .. } => {
                    BusError::TimedOut { service, member: name.to_owned(), after }
                }
                other
                @ (BusError::Connect { .. } | BusError::OddType { .. } | BusError::Closed) => other,
            },
        )
    }

    /// Reads a property that must be a string.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn string(&self, object: Object<'_>, name: &str) -> Result<String, BusError> {
        let value = self.property(object, name, CALL_TIMEOUT).await?;
        String::try_from(&*value).map_err(|_| odd(object, name, &value, "s"))
    }

    /// Reads a property that must be a boolean.
    ///
    /// # Errors
    /// As [`Link::call`].
    pub async fn boolean(&self, object: Object<'_>, name: &str) -> Result<bool, BusError> {
        let value = self.property(object, name, CALL_TIMEOUT).await?;
        bool::try_from(&*value).map_err(|_| odd(object, name, &value, "b"))
    }

    /// The unique name that owns a well-known one now; `None`: nobody. Does not start the service.
    ///
    /// # Errors
    /// The bus does not answer.
    pub async fn owner_of(&self, name: &str) -> Result<Option<String>, BusError> {
        match self.call(DBUS, "GetNameOwner", &name).await {
            Ok(owner) => Ok(Some(owner)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the bus for signals that match a rule. They arrive on the connection's own stream, in
    /// the order in which the bus sent them.
    ///
    /// # Errors
    /// The bus refuses or does not answer.
    pub async fn add_match(&self, rule: &str) -> Result<(), BusError> {
        self.call(DBUS, "AddMatch", &rule).await
    }
}

/// An answer of another type than expected.
pub(crate) fn odd(
    object: Object<'_>,
    member: &str,
    found: &OwnedVariant,
    expected: &'static str,
) -> BusError {
    BusError::OddType {
        service: object.service.to_owned(),
        member: member.to_owned(),
        found: found.value_signature().to_string(),
        expected,
    }
}

// === impl BusError ===

impl BusError {
    /// The name of the D-Bus error that came as answer.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Call { source, .. } => error_name(source),
            Self::Connect { .. } | Self::TimedOut { .. } | Self::OddType { .. } | Self::Closed => {
                None
            }
        }
    }

    /// The callee's own words, where it answered with an error.
    pub fn words(&self) -> Option<String> {
        match self {
            Self::Call { source: zbus::Error::MethodError(_, text, _), .. } => {
                text.as_deref().map(clean_value)
            }
            Self::Call { source: zbus::Error::FDO(error), .. } => {
                error.description().map(clean_value)
            }
            Self::Call { .. }
            | Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::OddType { .. }
            | Self::Closed => None,
        }
    }

    /// Nobody has the name, and the bus knows no way to start somebody who would.
    pub fn is_absent(&self) -> bool {
        self.name().is_some_and(|name| {
            matches!(
                name.as_str(),
                "org.freedesktop.DBus.Error.ServiceUnknown"
                    | "org.freedesktop.DBus.Error.NameHasNoOwner"
            )
        })
    }

    /// The object or the method does not exist there.
    pub fn is_unknown_object(&self) -> bool {
        self.name().is_some_and(|name| {
            matches!(
                name.as_str(),
                "org.freedesktop.DBus.Error.UnknownObject"
                    | "org.freedesktop.DBus.Error.UnknownMethod"
                    | "org.freedesktop.DBus.Error.UnknownInterface"
            )
        })
    }

    /// The whole story in one line, for people.
    pub fn text(&self) -> String {
        one_line(self)
    }
}

/// Makes a connection, in a task of its own: the library breaks down over some of what somebody can
/// say who is no bus (an empty line), and must not take anything along.
pub(crate) async fn build(builder: zbus::connection::Builder<'static>) -> zbus::Result<Connection> {
    let building = AbortOnDropHandle::new(tokio::spawn(builder.build()));
    building.await.unwrap_or_else(|_| Err(zbus::Error::Failure("no bus answers there".to_owned())))
}

/// A stranger's text: on one line and not too long, and else as it came.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(PLAIN_LENGTH).collect()
}

/// An error with all its sources in one line. Part of it are a stranger's words.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    clean_value(&text)
}

fn error_name(error: &zbus::Error) -> Option<String> {
    #[allow(clippy::wildcard_enum_match_arm)] // not ours, and open
    match error {
        zbus::Error::MethodError(name, ..) => Some(name.as_str().to_owned()),
        zbus::Error::FDO(error) => Some(error.name().as_str().to_owned()),
        _ => None,
    }
}
