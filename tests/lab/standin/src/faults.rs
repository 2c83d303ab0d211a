//! The switches that make the stand-in misbehave. They survive reboots until cleared.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::paths::Paths;

/// One way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Finalization fails at shutdown.
    FinalizeFails,
    /// The target is finalized, but the boot loader falls back.
    BootFails,
    /// The target boots and makes the node unwell.
    Unhealthy,
    /// Success is answered, but no reboot is queued.
    RebootNever,
    /// /boot has no space left.
    BootFull,
    /// The daemon takes its name late.
    SlowActivation,
    /// The daemon dies after queueing the reboot, without an answer.
    LostReply,
    /// The idle exit after another time than configured.
    IdleExit,
    /// The boot order is put back before the target ran, as a rollback by a health check leaves it.
    Rollback,
    /// Method calls are never answered.
    Hang,
    /// Deployments carry values of the wrong types.
    WrongTypes,
    /// Properties as a whole have wrong types.
    WrongShape,
    /// The job that finalizes at shutdown is not started.
    NoFinalizeUnit,
    /// Another system than target and previous boots.
    Third,
    /// Every transaction takes long.
    SlowTransaction,
    /// FinalizeDeployment compares base commits even for containers, as before v2025.7.
    OldReference,
}

/// What a switch carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// For the switches that are a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u64>,
    /// The deployed commit that it is bound to; unbound ones bind to the next finalized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<String>,
}

/// All switches that are on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Faults {
    on: BTreeMap<Kind, Fault>,
}

/// A switch as written on the command line: KIND or KIND=SECONDS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) seconds: Option<u64>,
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 16] = [
        Self::FinalizeFails,
        Self::BootFails,
        Self::Unhealthy,
        Self::RebootNever,
        Self::BootFull,
        Self::SlowActivation,
        Self::LostReply,
        Self::IdleExit,
        Self::Rollback,
        Self::Hang,
        Self::WrongTypes,
        Self::WrongShape,
        Self::NoFinalizeUnit,
        Self::Third,
        Self::SlowTransaction,
        Self::OldReference,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FinalizeFails => "finalize-fails",
            Self::BootFails => "boot-fails",
            Self::Unhealthy => "unhealthy",
            Self::RebootNever => "reboot-never",
            Self::BootFull => "boot-full",
            Self::SlowActivation => "slow-activation",
            Self::LostReply => "lost-reply",
            Self::IdleExit => "idle-exit",
            Self::Rollback => "rollback",
            Self::Hang => "hang",
            Self::WrongTypes => "wrong-types",
            Self::WrongShape => "wrong-shape",
            Self::NoFinalizeUnit => "no-finalize-unit",
            Self::Third => "third",
            Self::SlowTransaction => "slow-transaction",
            Self::OldReference => "old-reference",
        }
    }

    /// Seconds when none are given; `None` if the switch takes no number.
    fn default_seconds(self) -> Option<u64> {
        match self {
            // Longer than the 25 s after which dbus-daemon gives up an activation.
            Self::SlowActivation => Some(35),
            Self::IdleExit => Some(5),
            Self::SlowTransaction => Some(10),
            Self::FinalizeFails
            | Self::BootFails
            | Self::Unhealthy
            | Self::RebootNever
            | Self::BootFull
            | Self::LostReply
            | Self::Rollback
            | Self::Hang
            | Self::WrongTypes
            | Self::WrongShape
            | Self::NoFinalizeUnit
            | Self::Third
            | Self::OldReference => None,
        }
    }

    /// Whether the switch is about what happens to one deployment.
    fn binds(self) -> bool {
        matches!(
            self,
            Self::FinalizeFails | Self::BootFails | Self::Unhealthy | Self::Rollback | Self::Third
        )
    }
}

// === impl Setting ===

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else {
            let names: Vec<_> = Kind::ALL.into_iter().map(Kind::name).collect();
            bail!("unknown fault {name:?}: expected one of {}", names.join(", "));
        };
        let seconds =
            match (kind.default_seconds(), number) {
                (None, Some(_)) => bail!("fault {name} takes no number"),
                (default, None) => default,
                (Some(_), Some(number)) => Some(number.parse().with_context(|| {
                    format!("fault {name}: expected seconds, found {number:?}")
                })?),
            };
        Ok(Self { kind, seconds })
    }
}

// === impl Faults ===

impl Faults {
    pub(crate) fn load(paths: &Paths) -> Result<Self> {
        Ok(files::read_json(&paths.faults())?.unwrap_or_default())
    }

    pub(crate) fn save(&self, paths: &Paths) -> Result<()> {
        files::write_json(&paths.faults(), self)
    }

    pub(crate) fn set(&mut self, setting: &Setting, checksum: Option<&str>) {
        let checksum = checksum.filter(|_| setting.kind.binds()).map(str::to_owned);
        self.on.insert(setting.kind, Fault { seconds: setting.seconds, checksum });
    }

    pub(crate) fn clear(&mut self, kind: Kind) -> bool {
        self.on.remove(&kind).is_some()
    }

    pub(crate) fn is_on(&self, kind: Kind) -> bool {
        self.on.contains_key(&kind)
    }

    pub(crate) fn seconds(&self, kind: Kind) -> Option<u64> {
        self.on.get(&kind).and_then(|fault| fault.seconds)
    }

    /// On and bound to this very deployment.
    pub(crate) fn bound_to(&self, kind: Kind, checksum: &str) -> bool {
        self.on.get(&kind).is_some_and(|fault| fault.checksum.as_deref() == Some(checksum))
    }

    /// Binds what is about a deployment, and not yet bound, to the one being finalized.
    pub(crate) fn bind(&mut self, checksum: &str) {
        for (kind, fault) in &mut self.on {
            if kind.binds() && fault.checksum.is_none() {
                fault.checksum = Some(checksum.to_owned());
            }
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.on
            .iter()
            .map(|(kind, fault)| {
                let mut line = kind.name().to_owned();
                if let Some(seconds) = fault.seconds {
                    line.push_str(&format!("={seconds}"));
                }
                if let Some(checksum) = &fault.checksum {
                    line.push_str(&format!(" (for {})", &checksum[..checksum.len().min(12)]));
                }
                line
            })
            .collect()
    }
}
