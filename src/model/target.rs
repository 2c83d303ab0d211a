//! What the host runs, what the next boot is to bring, and who asks for a reboot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who says that a reboot is due. The order is that of the reasons of an attempt.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A staged deployment of rpm-ostree.
    #[default]
    RpmOstree,
    /// A staged deployment of bootc, on a host without rpm-ostree.
    Bootc,
    /// The other partition of a Flatcar host, written by update_engine.
    UpdateEngine,
    /// A file or a command that says so, with no other system behind it.
    Sentinel,
    /// A person, with no other system behind it.
    Person,
}

/// What the next boot is to bring: a system, or only a boot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// Who announced it.
    pub source: Source,
    /// What it is compared by. For rpm-ostree and bootc the image digest, else the base commit, else
    /// the commit; for update_engine the version, [`UNKNOWN_VERSION`] where it forgot it; for what has
    /// no system behind it, the word for who asks.
    pub identity: String,
    /// Its version for people, where it has one; else the reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The identity of an update whose version update_engine forgot: it does so when it is restarted.
pub const UNKNOWN_VERSION: &str = "unknown";

/// What the identity of a sentinel begins with.
pub const SENTINEL_PREFIX: &str = "sentinel:";

/// One deployment as the update system lists it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deployment {
    /// What it is compared by, as in [`Target`].
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
    /// Where it lies, on hosts with two places for a system: `USR-A` or `USR-B`.
    pub place: Option<String>,
    /// The running one.
    pub booted: bool,
    /// The update that waits for the reboot.
    pub staged: bool,
}

/// What one source said last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reading {
    /// The systems on this host, in boot order (index 0 boots next).
    Deployments(Vec<Deployment>),
    /// Reboots that are asked for with no other system behind them; empty: none.
    Wants(Vec<Target>),
}

/// What all sources said last, as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SystemView {
    /// Who lists the deployments.
    pub source: Source,
    /// In boot order; empty on a host whose system is no image.
    pub deployments: Vec<Deployment>,
    /// Reboots that are asked for with no other system behind them, in the order of their sources.
    pub wants: Vec<Target>,
}

// === impl Source ===

impl Source {
    /// The word for it: in the configuration, the status and the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
            Self::UpdateEngine => "update-engine",
            Self::Sentinel => "sentinel",
            Self::Person => "person",
        }
    }

    /// Whether a system waits behind what it says: then the boot can bring it or not.
    pub fn brings_a_system(self) -> bool {
        match self {
            Self::RpmOstree | Self::Bootc | Self::UpdateEngine => true,
            Self::Sentinel | Self::Person => false,
        }
    }

    /// Whether the shutdown writes its update, so that a unit must run for it and /boot have room.
    pub fn is_written_by_the_shutdown(self) -> bool {
        match self {
            Self::RpmOstree | Self::Bootc => true,
            Self::UpdateEngine | Self::Sentinel | Self::Person => false,
        }
    }
}

// === impl Target ===

impl Target {
    /// Whether `newer` is the same update, of which less is known by now: update_engine forgets the
    /// version when it is restarted.
    pub fn is_still(&self, newer: &Self) -> bool {
        self.source == newer.source
            && self.source == Source::UpdateEngine
            && newer.identity == UNKNOWN_VERSION
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.version, self.source) {
            (Some(version), _) => f.write_str(version),
            (None, Source::UpdateEngine) => f.write_str("an update of unknown version"),
            (None, _) => f.write_str(&self.identity),
        }
    }
}

// === impl SystemView ===

impl SystemView {
    /// The running deployment.
    pub fn booted(&self) -> Option<&Deployment> {
        self.deployments.iter().find(|d| d.booted)
    }

    /// The update that waits.
    pub fn update(&self) -> Option<Target> {
        let staged = self.deployments.iter().find(|d| d.staged)?;
        Some(Target {
            source: self.source,
            identity: staged.identity.clone(),
            version: staged.version.clone(),
        })
    }

    /// Everything that asks for a reboot: the update first.
    pub fn reasons(&self) -> Vec<Target> {
        self.update().into_iter().chain(self.wants.iter().cloned()).collect()
    }

    /// The first of the reasons.
    pub fn target(&self) -> Option<Target> {
        self.update().or_else(|| self.wants.first().cloned())
    }
}
