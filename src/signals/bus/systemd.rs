//! What is asked of the service manager.

use std::time::Duration;

use futures::StreamExt;
use zbus::{MessageStream, OwnedObjectPath};

use super::{Bus, BusError, Link, Object};

/// `org.freedesktop.systemd1`, its manager object.
const MANAGER: Object<'static> = Object {
    service: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};

/// Jobs for these units take the host down.
const SHUTDOWN_UNITS: [&str; 9] = [
    "reboot.target",
    "poweroff.target",
    "halt.target",
    "kexec.target",
    "soft-reboot.target",
    "shutdown.target",
    "systemd-reboot.service",
    "systemd-poweroff.service",
    "systemd-soft-reboot.service",
];

/// Ends of jobs that are kept while the own one is not known yet.
const JOBS_KEPT: usize = 256;

/// A connection to the service manager.
#[derive(Debug, Clone)]
pub struct Systemd {
    link: Link,
}

/// A unit as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `LoadState`: `loaded`, `not-found`, `masked`, …
    pub load: String,
    /// `ActiveState`: `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    /// `SubState`, finer than that.
    pub sub: String,
    /// All of its conditions held when it was last started; `None`: it says nothing about it.
    pub condition: Option<bool>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// It ended with this result: `done`, `failed`, `timeout`, `dependency`, …
    Result(String),
    /// It did not end in time.
    Unfinished,
}

type JobRow = (u32, String, String, String, OwnedObjectPath, OwnedObjectPath);

// === impl Systemd ===

impl Systemd {
    /// Uses an open connection.
    pub fn new(link: &Link) -> Self {
        Self { link: link.clone() }
    }

    /// How a unit is now. Loads it if need be; a unit that does not exist has `not-found`.
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn unit(&self, name: &str) -> Result<Unit, BusError> {
        let path: OwnedObjectPath = self.link.call(MANAGER, "LoadUnit", &name).await?;
        let unit = Object {
            service: MANAGER.service,
            path: path.as_str(),
            interface: "org.freedesktop.systemd1.Unit",
        };
        let word = async |name| self.link.string(unit, name).await.map(|text| super::plain(&text));
        Ok(Unit {
            load: word("LoadState").await?,
            active: word("ActiveState").await?,
            sub: word("SubState").await?,
            condition: self.link.boolean(unit, "ConditionResult").await.ok(),
        })
    }

    /// Files of units whose name matches one of these shell patterns.
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn unit_files(&self, patterns: &[&str]) -> Result<Vec<String>, BusError> {
        let none: [&str; 0] = [];
        let files: Vec<(String, String)> = self
            .link
            .call(MANAGER, "ListUnitFilesByPatterns", &(none.as_slice(), patterns))
            .await?;
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }

    /// The unit of a job that takes the host down, if one is queued or runs.
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn shutdown_job(&self) -> Result<Option<String>, BusError> {
        let jobs: Vec<JobRow> = self.link.call(MANAGER, "ListJobs", &()).await?;
        Ok(jobs
            .into_iter()
            .find(|(_, unit, kind, ..)| kind == "start" && SHUTDOWN_UNITS.contains(&unit.as_str()))
            .map(|(_, unit, ..)| unit))
    }

    /// Soft reboots since the last full boot; 0 where systemd does not count them (before 256).
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn soft_reboots(&self) -> Result<u32, BusError> {
        match self.link.property(MANAGER, "SoftRebootsCount", super::CALL_TIMEOUT).await {
            Ok(value) => u32::try_from(&*value)
                .map_err(|_| super::odd(MANAGER, "SoftRebootsCount", &value, "u")),
            Err(error) if is_unknown_property(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The version of systemd; `None` where its text does not begin with a number.
    ///
    /// # Errors
    /// systemd does not answer.
    pub async fn version(&self) -> Result<Option<u32>, BusError> {
        let text = self.link.string(MANAGER, "Version").await?;
        let digits: String =
            text.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse().ok())
    }
}

fn is_unknown_property(error: &BusError) -> bool {
    error.name().is_some_and(|name| {
        matches!(
            name.as_str(),
            "org.freedesktop.DBus.Error.UnknownProperty"
                | "org.freedesktop.DBus.Error.InvalidArgs"
                | "org.freedesktop.DBus.Error.Failed"
        )
    })
}

/// Starts a unit and waits until its job has ended.
///
/// # Errors
/// systemd does not answer, or refuses.
pub async fn start_unit(bus: &Bus, unit: &str, within: Duration) -> Result<JobEnd, BusError> {
    run_job(bus, "StartUnit", unit, within).await
}

/// Restarts a unit and waits until its job has ended.
///
/// # Errors
/// systemd does not answer, or refuses.
pub async fn restart_unit(bus: &Bus, unit: &str, within: Duration) -> Result<JobEnd, BusError> {
    run_job(bus, "RestartUnit", unit, within).await
}

/// Has its own connection, so that what it subscribes to ends with it.
async fn run_job(
    bus: &Bus,
    method: &str,
    unit: &str,
    within: Duration,
) -> Result<JobEnd, BusError> {
    let link = bus.connect().await?;
    let mut messages = MessageStream::from(link.connection.clone());
    link.add_match(
        "type='signal',sender='org.freedesktop.systemd1',\
         interface='org.freedesktop.systemd1.Manager',member='JobRemoved'",
    )
    .await?;
    let owner = link.owner_of(MANAGER.service).await?;
    // Other messages are taken off the queue while the call waits, since a full queue stops replies.
    let mut ended: Vec<Removed> = Vec::new();
    let job: OwnedObjectPath = {
        let start = async {
            // Subscribing twice is an error that changes nothing.
            let _: Result<(), BusError> = link.call(MANAGER, "Subscribe", &()).await;
            link.call(MANAGER, method, &(unit, "replace")).await
        };
        tokio::pin!(start);
        loop {
            tokio::select! {
                job = &mut start => break job?,
                message = messages.next() => {
                    let removed = removed_job(message)?;
                    if ended.len() < JOBS_KEPT {
                        ended.extend(removed);
                    }
                }
            }
        }
    };
    let wait = async {
        loop {
            for one in ended.drain(..).filter(|one| one.path == job.as_str()) {
                if is_systemd(&link, owner.as_deref(), &one.sender).await? {
                    return Ok(JobEnd::Result(one.result));
                }
            }
            ended.extend(removed_job(messages.next().await)?);
        }
    };
    match tokio::time::timeout(within, wait).await {
        Ok(end) => end,
        Err(_) => Ok(JobEnd::Unfinished),
    }
}

/// The end of a job, as somebody tells it.
struct Removed {
    sender: String,
    path: String,
    result: String,
}

/// Whether a sender is systemd: a signal sent straight to us passes by every match rule. After a
/// re-execution it has another name than before.
async fn is_systemd(link: &Link, owner: Option<&str>, sender: &str) -> Result<bool, BusError> {
    Ok(owner == Some(sender) || link.owner_of(MANAGER.service).await?.as_deref() == Some(sender))
}

/// The end of a job that a message tells, if it does.
fn removed_job(message: Option<zbus::Result<zbus::Message>>) -> Result<Option<Removed>, BusError> {
    let Some(Ok(message)) = message else { return Err(BusError::Closed) };
    let header = message.header();
    let (Some(sender), Some(member)) = (header.sender(), header.member()) else { return Ok(None) };
    if message.message_type() != zbus::message::Type::Signal || member.as_str() != "JobRemoved" {
        return Ok(None);
    }
    let body = message.body();
    let parsed: zbus::Result<(u32, OwnedObjectPath, String, String)> = body.deserialize();
    Ok(parsed.ok().map(|(_, path, _, result)| Removed {
        sender: sender.to_string(),
        path: path.to_string(),
        result: super::plain(&result),
    }))
}
