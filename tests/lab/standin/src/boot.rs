//! What happens at a boot: which deployment runs, what it is called, what failed before.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::console;
use crate::faults::{Faults, Kind};
use crate::files;
use crate::image;
use crate::journal;
use crate::paths::Paths;
use crate::state::{self, Booted, Deployment, System};

/// Chooses the deployment of this boot, as the boot loader would, and names the system after it.
pub(crate) fn select(paths: &Paths) -> Result<Deployment> {
    let boot_id = state::boot_id(&paths.boot_id())?;
    let before: Option<Booted> = files::read_json(&paths.booted())?;
    let system = System::load(paths)?;
    let chosen = match before {
        // /run is still there: a soft reboot, which runs what was prepared or the same again.
        Some(before) if before.boot_id == boot_id && boot_id.is_some() => {
            soft_reboot(paths, &system, before)?
        }
        Some(_) | None => boot_loader(paths, system.deployments)?,
    };
    files::write_json(&paths.booted(), &Booted { id: chosen.id(), boot_id })?;
    write_os_release(paths, &chosen)?;
    files::remove(&paths.unhealthy())?;
    if Faults::load(paths)?.bound_to(Kind::Unhealthy, &chosen.checksum) {
        let text = format!("{} is not well\n", chosen.version);
        files::write(&paths.unhealthy(), text.as_bytes())?;
    }
    journal::send(
        paths,
        &format!("Booted {} {}", chosen.osname, chosen.version),
        &[
            ("MESSAGE_ID", journal::BOOTED),
            ("OSTREE_CHECKSUM", &chosen.checksum),
            ("OSTREE_VERSION", &chosen.version),
        ],
    );
    Ok(chosen)
}

fn soft_reboot(paths: &Paths, system: &System, before: Booted) -> Result<Deployment> {
    let id = match fs::read_to_string(paths.next_root()) {
        Ok(id) => {
            files::remove(&paths.next_root())?;
            id.trim().to_owned()
        }
        Err(error) if error.kind() == ErrorKind::NotFound => before.id,
        Err(error) => return Err(error).context("reading what the soft reboot runs"),
    };
    let found = system.deployments.iter().find(|each| each.id() == id);
    found.cloned().with_context(|| format!("no deployment {id}"))
}

/// Index 0, unless a fault of the target says otherwise.
fn boot_loader(paths: &Paths, mut order: Vec<Deployment>) -> Result<Deployment> {
    let Some(first) = order.first().cloned() else {
        bail!("no deployment in {}", paths.deployments().display());
    };
    let mut faults = Faults::load(paths)?;
    if faults.bound_to(Kind::Third, &first.checksum) {
        let kind = image::Kind { container: true, layered: false };
        let third = image::deployment(&format!("{}.third", first.version), kind, &order)?;
        order.insert(0, third.clone());
        state::write_deployments(paths, &order)?;
        faults.clear(Kind::Third);
        faults.save(paths)?;
        return Ok(third);
    }
    let Some(second) = order.get(1).cloned() else {
        return Ok(first);
    };
    if faults.bound_to(Kind::Rollback, &first.checksum) {
        order.swap(0, 1);
        state::write_deployments(paths, &order)?;
        faults.clear(Kind::Rollback);
        faults.save(paths)?;
        return Ok(second);
    }
    if faults.bound_to(Kind::BootFails, &first.checksum) {
        return Ok(second);
    }
    Ok(first)
}

/// Writes the os-release of the real system with the versions of the booted deployment.
fn write_os_release(paths: &Paths, booted: &Deployment) -> Result<()> {
    let base = match fs::read_to_string(paths.os_release_base()) {
        Ok(base) => base,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let base = fs::read_to_string(paths.os_release()).unwrap_or_default();
            files::write(&paths.os_release_base(), base.as_bytes())?;
            base
        }
        Err(error) => return Err(error).context("reading the os-release of the real system"),
    };
    files::write(&paths.os_release(), os_release(&base, &booted.version).as_bytes())?;
    let link = paths.etc_os_release();
    if fs::read_link(&link).is_err() {
        files::remove(&link)?;
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        std::os::unix::fs::symlink("../usr/lib/os-release", &link)?;
    }
    Ok(())
}

fn os_release(base: &str, version: &str) -> String {
    let mut text = String::new();
    for line in base.lines() {
        match line.split_once('=') {
            Some(("VERSION" | "OSTREE_VERSION" | "IMAGE_VERSION", _)) => {}
            Some(("PRETTY_NAME", name)) => {
                let name = name.trim_matches('"');
                text.push_str(&format!("PRETTY_NAME=\"{name} {version}\"\n"));
            }
            Some(_) | None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text.push_str(&format!(
        "VERSION=\"{version}\"\nOSTREE_VERSION='{version}'\nIMAGE_VERSION='{version}'\n"
    ));
    text
}

/// Fails with the reason of the last finalization, if there is one, and forgets it.
pub(crate) fn complete(paths: &Paths) -> Result<()> {
    let stamp = paths.failure_stamp();
    let text = match fs::read_to_string(&stamp) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("reading the reason of the failure"),
    };
    files::remove(&stamp)?;
    bail!("ostree-finalize-staged.service failed on previous boot: {text}");
}

/// Makes true, or takes back, what faults do to a running system: only the full /boot.
pub(crate) fn apply_faults(paths: &Paths) -> Result<()> {
    let wanted = Faults::load(paths)?.is_on(Kind::BootFull);
    let now = fs::read_to_string(paths.boot_full()).ok();
    if wanted && now.is_none() {
        let how = if fill_boot(paths)? { "mounted" } else { "marked" };
        files::write(&paths.boot_full(), how.as_bytes())?;
    } else if let (false, Some(how)) = (wanted, now) {
        if how == "mounted" {
            let status = Command::new("umount").arg(paths.boot()).status()?;
            if !status.success() {
                bail!("umount {}: {status}", paths.boot().display());
            }
        }
        files::remove(&paths.boot_full())?;
    }
    Ok(())
}

/// Mounts a tiny file system over /boot and fills it; `false` where mounting is denied.
fn fill_boot(paths: &Paths) -> Result<bool> {
    fs::create_dir_all(paths.boot())?;
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=0755", "standin-boot-full"])
        .arg(paths.boot())
        .stderr(Stdio::null())
        .status()
        .context("running mount")?;
    if !mounted.success() {
        return Ok(false);
    }
    let mut file = File::create(paths.boot().join("initramfs-of-something-else.img"))?;
    loop {
        match file.write(&[0x5a; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(true),
            Err(error) => return Err(error).context("filling /boot"),
        }
    }
}

/// Fails while the booted deployment makes the node unwell.
pub(crate) fn health(paths: &Paths) -> Result<()> {
    match fs::read_to_string(paths.unhealthy()) {
        Ok(text) => bail!("{}", text.trim()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            console::say("well");
            Ok(())
        }
        Err(error) => Err(error).context("reading the marker of the unwell"),
    }
}

#[cfg(test)]
mod tests {
    use super::os_release;

    #[test]
    fn os_release_keeps_what_is_not_a_version() {
        let base = "PRETTY_NAME=\"Debian 12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n";
        assert_eq!(
            os_release(base, "40.2"),
            "PRETTY_NAME=\"Debian 12 40.2\"\nID=debian\nVERSION=\"40.2\"\nOSTREE_VERSION='40.2'\nIMAGE_VERSION='40.2'\n"
        );
    }
}
