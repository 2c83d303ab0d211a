//! The host's gates, looked at once. What cannot be read is named and closes them.

#[cfg(test)]
mod noise;
mod sessions;
#[cfg(test)]
mod tests;
mod zincati;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::Mutex;
use tokio::task::JoinError;

use crate::config::RebootSettings;
use crate::lifecycle::{HostView, Inhibitor};
use crate::signals::bus::systemd::Systemd;
use crate::signals::bus::{BusError, Host, Link, Object, plain};
use crate::signals::logind;

/// Writes the staged deployment when the host goes down, if it is active by then.
const FINALIZE_UNIT: &str = "ostree-finalize-staged.service";

/// Legacy lock of ostree. rpm-ostree no longer makes it, but the shutdown honours it: an update
/// would be dropped in silence.
pub(super) const LEGACY_LOCK: &str = "/run/ostree/staged-deployment-locked";

/// Exists once systemd-timesyncd has set the clock.
const TIMESYNC_FILE: &str = "/run/systemd/timesync/synchronized";

const TIMEDATE: Object<'static> = Object {
    service: "org.freedesktop.timedate1",
    path: "/org/freedesktop/timedate1",
    interface: "org.freedesktop.timedate1",
};

/// How long a file system may take to tell its free space. A hung mount must not hang a gate.
const STATVFS_TIMEOUT: Duration = Duration::from_secs(10);

/// `what`, `who`, `why`, `mode`, uid, pid.
type InhibitorRow = (String, String, String, String, u32, u32);

/// Looks at the host. `own_server` is the base URL under which a Zincati on this host may ask: ours.
pub async fn inspect(host: &Host, settings: &RebootSettings, own_server: Option<&str>) -> HostView {
    let mut view = HostView::default();
    match free_space(host, &settings.boot_dir).await {
        Ok(free) => view.boot_free = free,
        Err(why) => view.unreadable.push(why),
    }
    match legacy_lock(host) {
        Ok(found) => view.legacy_lock = found,
        Err(why) => view.unreadable.push(why),
    }
    match host.bus.connect().await {
        Ok(link) => ask(host, &link, own_server, &mut view).await,
        Err(error) => view.unreadable.push(error.text()),
    }
    view
}

/// Everything that is asked over the bus.
async fn ask(host: &Host, link: &Link, own_server: Option<&str>, view: &mut HostView) {
    let systemd = Systemd::new(link);
    match inhibitors(link).await {
        Ok(inhibitors) => view.inhibitors = inhibitors,
        Err(error) => view.unreadable.push(format!("inhibitors: {}", error.text())),
    }
    match sessions::users(link).await {
        Ok(users) => view.users = users,
        Err(error) => view.unreadable.push(format!("sessions: {}", error.text())),
    }
    match logind::preparing_for_shutdown(link).await {
        Ok(going) => view.preparing_for_shutdown = going,
        Err(error) => view.unreadable.push(format!("shutdown: {}", error.text())),
    }
    match systemd.shutdown_job().await {
        Ok(job) => view.preparing_for_shutdown |= job.is_some(),
        Err(error) => view.unreadable.push(format!("jobs: {}", error.text())),
    }
    match systemd.unit(FINALIZE_UNIT).await {
        Ok(unit) => view.finalize_unit_active = unit.active == "active",
        Err(error) => view.unreadable.push(format!("{FINALIZE_UNIT}: {}", error.text())),
    }
    match zincati::other_server(host, &systemd, own_server).await {
        Ok(server) => view.other_lock_client = server,
        Err(why) => view.unreadable.push(format!("zincati: {why}")),
    }
    view.clock_synchronised = clock_synchronised(host, link).await;
}

/// The locks that make a shutdown fail: mode exactly `block`, on `shutdown`. We hold none ourselves.
pub(super) async fn inhibitors(link: &Link) -> Result<Vec<Inhibitor>, BusError> {
    let rows: Vec<InhibitorRow> = link.call(logind::MANAGER, "ListInhibitors", &()).await?;
    let mut found: Vec<Inhibitor> = rows
        .into_iter()
        .filter(|(what, _, _, mode, ..)| {
            mode == "block" && what.split(':').any(|what| what == "shutdown")
        })
        .map(|(_, who, why, ..)| Inhibitor { who: plain(&who), why: plain(&why) })
        .collect();
    found.sort_by(|a, b| (&a.who, &a.why).cmp(&(&b.who, &b.why)));
    found.dedup();
    Ok(found)
}

/// Whether the kernel calls its clock synchronised, by the word of timedated. A clock of which
/// nobody says so is not.
async fn clock_synchronised(host: &Host, link: &Link) -> bool {
    match link.boolean(TIMEDATE, "NTPSynchronized").await {
        Ok(synchronised) => synchronised,
        Err(error) => {
            tracing::debug!(error = error.text(), "timedated does not say how the clock is");
            host.path(TIMESYNC_FILE).exists()
        }
    }
}

fn legacy_lock(host: &Host) -> Result<bool, String> {
    let path = host.path(LEGACY_LOCK);
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Bytes that are free for root on the file system of a folder; `None`: there is no such folder.
async fn free_space(host: &Host, folder: &Path) -> Result<Option<u64>, String> {
    let path = folder.to_owned();
    let asked = alone(&host.looks, move || nix::sys::statvfs::statvfs(&path));
    match tokio::time::timeout(STATVFS_TIMEOUT, asked).await {
        Ok(Ok(Ok(space))) => Ok(Some(space.blocks_free().saturating_mul(space.fragment_size()))),
        Ok(Ok(Err(Errno::ENOENT))) => Ok(None),
        Ok(Ok(Err(error))) => Err(format!("free space of {}: {error}", folder.display())),
        Ok(Err(error)) => Err(format!("free space of {}: {error}", folder.display())),
        Err(_) => Err(format!("free space of {}: no answer", folder.display())),
    }
}

/// Looks on a thread of its own, behind the look before it. One that hangs keeps its thread for ever:
/// it must be one thread, and not one for each look.
async fn alone<T: Send + 'static>(
    looks: &Arc<Mutex<()>>,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let alone = looks.clone().lock_owned().await;
    tokio::task::spawn_blocking(move || {
        let _alone = alone;
        look()
    })
    .await
}
