//! Finalization of the staged deployment at shutdown, the `ExecStop` of its unit.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::console;
use crate::faults::{Faults, Kind};
use crate::files;
use crate::journal;
use crate::paths::Paths;
use crate::state::{self, Deployment, Staged, System};

/// Size of the stand-in for a kernel: more than a full /boot has, little otherwise.
const KERNEL_BYTES: usize = 128 * 1024;

/// Makes the staged deployment the next to boot, unless it is locked.
///
/// The staged file goes first, so that a failure is not tried again. The reason of a failure
/// is left for the next boot.
pub(crate) fn finalize_staged(paths: &Paths) -> Result<()> {
    let _lock = files::lock(paths)?;
    finalize_staged_locked(paths)
}

/// As [`finalize_staged`], for one who holds the lock of the system root.
pub(crate) fn finalize_staged_locked(paths: &Paths) -> Result<()> {
    let mut faults = Faults::load(paths)?;
    if faults.is_on(Kind::NoFinalizeUnit) {
        return Ok(());
    }
    let Some(staged) = files::read_json::<Staged>(&paths.staged())? else {
        console::note("No deployments staged for finalization");
        return Ok(());
    };
    if staged.locked {
        console::note("Not finalizing; deployment is locked for finalization");
        return Ok(());
    }
    if paths.legacy_lock().exists() {
        console::note("Not finalizing; found /run/ostree/staged-deployment-locked");
        return Ok(());
    }
    let target = staged.target;
    let serial = target.serial.to_string();
    let fields = [
        ("OSTREE_OSNAME", target.osname.as_str()),
        ("OSTREE_CHECKSUM", target.checksum.as_str()),
        ("OSTREE_DEPLOYSERIAL", serial.as_str()),
    ];
    say(paths, "Finalizing staged deployment", journal::FINALIZING, &fields);
    files::remove(&paths.staged())?;
    faults.bind(&target.checksum);
    faults.save(paths)?;
    if let Err(error) = install(paths, &faults, &target) {
        let text = format!("{error:#}");
        make_room(paths);
        files::write(&paths.failure_stamp(), text.as_bytes())
            .context("leaving the reason for the next boot")?;
        bail!("{text}");
    }
    say(paths, "Finalized deployment", journal::FINALIZED, &fields);
    Ok(())
}

fn say(paths: &Paths, message: &str, id: &str, fields: &[(&str, &str)]) {
    let mut all = vec![("MESSAGE_ID", id)];
    all.extend_from_slice(fields);
    journal::send(paths, message, &all);
}

/// The merge of /etc, the kernel and the boot order.
fn install(paths: &Paths, faults: &Faults, target: &Deployment) -> Result<()> {
    if faults.bound_to(Kind::FinalizeFails, &target.checksum) {
        bail!(
            "Finalizing deployment: During /etc merge: Copying /etc/standin.conf: Not a directory"
        );
    }
    let kernel = paths.boot().join("ostree").join(target.id()).join("vmlinuz");
    if paths.boot_full().exists() {
        bail!("Finalizing deployment: Installing kernel: regfile copy: No space left on device");
    }
    if let Err(error) = files::write(&kernel, &vec![0x5a; KERNEL_BYTES]) {
        bail!("Finalizing deployment: Installing kernel: {}", error.root_cause());
    }
    let system = System::load(paths)?;
    let mut order = vec![target.clone()];
    // The booted one becomes the rollback; older ones go, unless pinned.
    order.extend(
        system
            .deployments
            .iter()
            .filter(|each| *each != target && (system.is_booted(each) || each.pinned))
            .cloned(),
    );
    for old in &system.deployments {
        if !order.contains(old) {
            let folder = paths.boot().join("ostree").join(old.id());
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
        }
    }
    state::write_deployments(paths, &order)
}

/// Takes a full /boot away, so that the stamp lands on the disk below it.
fn make_room(paths: &Paths) {
    if fs::read_to_string(paths.boot_full()).is_ok_and(|how| how == "mounted") {
        let _ = Command::new("umount").arg(paths.boot()).status();
    }
}
