//! The deployments of one host: what is installed, staged and booted.
//!
//! The real ostree keeps these in boot loader entries and GVariant files; here they are JSON.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::paths::Paths;

/// One deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) osname: String,
    /// The deployed commit: with layered packages not that of the image.
    pub(crate) checksum: String,
    pub(crate) serial: i32,
    pub(crate) version: String,
    /// Seconds since the epoch.
    pub(crate) timestamp: u64,
    pub(crate) origin: Origin,
    pub(crate) layered: Option<Layered>,
    #[serde(default)]
    pub(crate) pinned: bool,
}

/// Where a deployment came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// A branch of a remote repository.
    Branch { refspec: String },
    /// A container image.
    Container { reference: String, digest: String },
}

/// Packages on top of a base commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layered {
    pub(crate) base_checksum: String,
    pub(crate) packages: Vec<String>,
}

/// The staged deployment, in /run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Staged {
    pub(crate) target: Deployment,
    pub(crate) locked: bool,
    pub(crate) merge_deployment: Option<String>,
}

/// What this boot runs, in /run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booted {
    pub(crate) id: String,
    pub(crate) boot_id: Option<String>,
}

/// All that there is, as read at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) staged: Option<Staged>,
    pub(crate) booted: Option<String>,
    pub(crate) legacy_lock: bool,
}

// === impl Deployment ===

impl Deployment {
    pub(crate) fn id(&self) -> String {
        format!("{}-{}.{}", self.osname, self.checksum, self.serial)
    }

    /// The commit of the image below the layered packages.
    pub(crate) fn base_checksum(&self) -> &str {
        self.layered.as_ref().map_or(&self.checksum, |layered| &layered.base_checksum)
    }

    /// What FinalizeDeployment compares with: the image digest, else the base commit.
    pub(crate) fn reference(&self) -> &str {
        match &self.origin {
            Origin::Container { digest, .. } => digest,
            Origin::Branch { .. } => self.base_checksum(),
        }
    }
}

// === impl System ===

impl System {
    pub(crate) fn load(paths: &Paths) -> Result<Self> {
        let deployments: Vec<Deployment> =
            files::read_json(&paths.deployments())?.unwrap_or_default();
        let booted: Option<Booted> = files::read_json(&paths.booted())?;
        Ok(Self {
            deployments,
            staged: files::read_json(&paths.staged())?,
            booted: booted.map(|booted| booted.id),
            legacy_lock: paths.legacy_lock().exists(),
        })
    }

    /// In boot order with the staged one first, as every client sees them.
    pub(crate) fn all(&self) -> Vec<&Deployment> {
        self.staged.iter().map(|staged| &staged.target).chain(&self.deployments).collect()
    }

    pub(crate) fn is_booted(&self, deployment: &Deployment) -> bool {
        self.booted.as_deref() == Some(deployment.id().as_str())
    }

    pub(crate) fn is_staged(&self, deployment: &Deployment) -> bool {
        self.staged.as_ref().is_some_and(|staged| staged.target == *deployment)
    }

    pub(crate) fn booted_deployment(&self) -> Option<&Deployment> {
        self.deployments.iter().find(|deployment| self.is_booted(deployment))
    }

    /// The first deployment after the booted one.
    pub(crate) fn rollback(&self) -> Option<&Deployment> {
        let booted = self.deployments.iter().position(|each| self.is_booted(each))?;
        self.deployments.get(booted + 1)
    }
}

/// Writes the deployments and tells watchers.
pub(crate) fn write_deployments(paths: &Paths, deployments: &[Deployment]) -> Result<()> {
    files::write_json(&paths.deployments(), &deployments)?;
    files::bump(paths)
}

/// Locks or unlocks the staged deployment; as in libostree nobody is told.
///
/// The legacy lock file goes away only on a real change to unlocked.
pub(crate) fn set_lock(paths: &Paths, locked: bool) -> Result<bool> {
    let Some(mut staged) = files::read_json::<Staged>(&paths.staged())? else {
        bail!("No staged deployment");
    };
    if staged.locked == locked {
        return Ok(false);
    }
    staged.locked = locked;
    files::write_json(&paths.staged(), &staged)?;
    if !locked {
        files::remove(&paths.legacy_lock())?;
    }
    Ok(true)
}

/// The id of this boot, if the root has a /proc.
pub(crate) fn boot_id(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}
