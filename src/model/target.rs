//! What the host runs, and what the next boot is to bring.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who says that an update waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A staged deployment of rpm-ostree.
    RpmOstree,
}

/// The system that the next boot is to bring.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// Who announced it.
    pub source: Source,
    /// What it is compared by: for rpm-ostree the image digest, else the base commit, else the
    /// commit.
    pub identity: String,
    /// Its version for people, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// One deployment as the update system lists it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deployment {
    /// Base identity: image digest, else base commit, else commit.
    pub identity: String,
    /// Version for people.
    pub version: Option<String>,
    /// The running one.
    pub booted: bool,
    /// Waits for the shutdown to be written.
    pub staged: bool,
}

/// One read of the update system: its deployments in boot order (index 0 boots next).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SystemView {
    /// In boot order.
    pub deployments: Vec<Deployment>,
}

// === impl Target ===

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => f.write_str(version),
            None => f.write_str(&self.identity),
        }
    }
}

// === impl SystemView ===

impl SystemView {
    /// The running deployment.
    pub fn booted(&self) -> Option<&Deployment> {
        self.deployments.iter().find(|d| d.booted)
    }

    /// The update that waits: the staged deployment, unless it is what runs already.
    pub fn target(&self) -> Option<Target> {
        let staged = self.deployments.iter().find(|d| d.staged)?;
        Some(Target {
            source: Source::RpmOstree,
            identity: staged.identity.clone(),
            version: staged.version.clone(),
        })
    }
}
