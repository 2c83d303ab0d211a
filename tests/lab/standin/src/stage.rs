//! Making and dropping the staged deployment.

use anyhow::{Result, bail};

use crate::boot;
use crate::console;
use crate::faults::{Faults, Kind, Setting};
use crate::files;
use crate::image;
use crate::journal;
use crate::paths::Paths;
use crate::state::{self, Deployment, Staged, System};

/// The job that finalizes when it is stopped.
pub(crate) const FINALIZE_UNIT: &str = "ostree-finalize-staged.service";

/// What to stage.
#[derive(Debug, Clone)]
pub(crate) struct Request<'a> {
    pub(crate) version: &'a str,
    pub(crate) kind: image::Kind,
    pub(crate) locked: bool,
    pub(crate) faults: &'a [Setting],
}

/// Stages a new deployment in place of an older staged one.
pub(crate) fn stage(paths: &Paths, request: &Request<'_>) -> Result<Deployment> {
    let lock = files::lock(paths)?;
    let system = System::load(paths)?;
    let target = image::deployment(request.version, request.kind, &system.deployments)?;
    let mut faults = Faults::load(paths)?;
    if !request.faults.is_empty() {
        for setting in request.faults {
            faults.set(setting, Some(&target.checksum));
        }
        faults.save(paths)?;
        boot::apply_faults(paths)?;
    }
    if !faults.is_on(Kind::NoFinalizeUnit) {
        console::systemctl(&["start", FINALIZE_UNIT])?;
    }
    files::remove(&paths.legacy_lock())?;
    let staged = Staged {
        target: target.clone(),
        locked: request.locked,
        merge_deployment: system.booted.clone(),
    };
    files::write_json(&paths.staged(), &staged)?;
    journal::send(
        paths,
        &format!("Created new deployment /ostree/deploy/{}", target.id()),
        &[
            ("MESSAGE_ID", journal::DEPLOYED),
            ("DEPLOYMENT_CHECKSUM", &target.checksum),
            ("DEPLOYMENT_VERSION", &target.version),
        ],
    );
    files::bump(paths)?;
    drop(lock);
    Ok(target)
}

/// Drops the deployment at `index` of what clients see.
pub(crate) fn undeploy(paths: &Paths, index: usize) -> Result<Deployment> {
    let _lock = files::lock(paths)?;
    let system = System::load(paths)?;
    let Some(deployment) = system.all().get(index).map(|each| (*each).clone()) else {
        bail!("Out of range deployment index {index}, expected < {}", system.all().len());
    };
    if system.is_staged(&deployment) {
        files::remove(&paths.staged())?;
        files::bump(paths)?;
    } else if system.is_booted(&deployment) {
        bail!("Cannot undeploy currently booted deployment {index}");
    } else {
        let rest: Vec<_> =
            system.deployments.into_iter().filter(|each| *each != deployment).collect();
        state::write_deployments(paths, &rest)?;
    }
    Ok(deployment)
}

/// Drops the staged deployment; says whether there was one.
pub(crate) fn unstage(paths: &Paths) -> Result<bool> {
    let _lock = files::lock(paths)?;
    let was = files::remove(&paths.staged())?;
    if was {
        files::bump(paths)?;
    }
    Ok(was)
}
