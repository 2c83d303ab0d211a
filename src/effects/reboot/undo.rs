//! Undoing a reboot that did not come.

use std::time::Duration;

use crate::effects::command;
use crate::model::{Source, Target};
use crate::signals::bus::systemd::{JobEnd, Systemd, restart_unit};
use crate::signals::bus::{Host, Link, one_line};
use crate::signals::logind;
use crate::signals::rpm_ostree::{Entry, Reading, START_TIMEOUT, UNIT, ensure_started, read};

/// How long `ostree admin` may take: it writes one small file, but may wait for another lock.
const OSTREE_TIMEOUT: Duration = Duration::from_secs(60);

/// What tells the lock, from ostree 2025.3 on.
const STATUS: [&str; 3] = ["admin", "status", "--json"];

/// Its length grows with the deployments, some kB each.
const STATUS_LENGTH: usize = 1024 * 1024;

/// Restarts rpm-ostreed, which otherwise refuses every transaction, and locks the target again.
/// Nothing is done while the host may still go down. Where logind was asked for the reboot, that it
/// stays up is all there is.
///
/// The restart comes first: a transaction that an agent before this one began may be under way, and
/// if it came to its reboot behind the lock, the host would go down for nothing.
///
/// # Errors
/// Why it is not undone, for people.
pub async fn undo(host: &Host, target: &Target) -> Result<(), String> {
    let _single = host.reboot.lock().await;
    let link = host.bus.connect().await.map_err(|error| error.text())?;
    stays_up(&link).await?;
    if target.source != Source::RpmOstree {
        return Ok(());
    }
    match restart_unit(&host.bus, UNIT, START_TIMEOUT).await {
        Ok(JobEnd::Result(result)) if result == "done" => {}
        Ok(JobEnd::Result(result)) => return Err(format!("restart of {UNIT}: {result}")),
        Ok(JobEnd::Unfinished) => return Err(format!("restart of {UNIT} does not end")),
        Err(error) => return Err(error.text()),
    }
    stays_up(&link).await?;
    // The daemon must answer again, or the next attempt would fail as this one did.
    if is_staged(host, &link, target).await? {
        lock(host).await?;
    }
    // A shutdown that began meanwhile leaves the update locked: it is then simply not applied.
    stays_up(&link).await
}

/// Fails unless logind and systemd both say that no shutdown is under way.
async fn stays_up(link: &Link) -> Result<(), String> {
    if logind::preparing_for_shutdown(link).await.map_err(|error| error.text())? {
        return Err("the host is going down".to_owned());
    }
    match Systemd::new(link).shutdown_job().await.map_err(|error| error.text())? {
        Some(unit) => Err(format!("a job for {unit} is queued")),
        None => Ok(()),
    }
}

async fn is_staged(host: &Host, link: &Link, target: &Target) -> Result<bool, String> {
    let staged = |entries: Vec<Entry>| {
        entries.iter().any(|entry| entry.staged && entry.identity() == Some(&target.identity))
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = async {
            ensure_started(&host.bus, link).await?;
            read(link, true).await
        };
        match asked.await {
            Ok(Reading::Entries(entries)) => return Ok(staged(entries)),
            Ok(Reading::Busy) => return Err("rpm-ostree is in a transaction".to_owned()),
            Err(trouble) if trouble.is_definite() || tries == super::TRIES => {
                return Err(trouble.text());
            }
            Err(_) => tokio::time::sleep(super::REST).await,
        }
    }
}

/// Locks what is staged and looks whether it is. An ostree that cannot tell is believed.
async fn lock(host: &Host) -> Result<(), String> {
    let ostree = host.path("/usr/bin/ostree");
    let ended = command::run(&ostree, &["admin", "lock-finalization"], OSTREE_TIMEOUT)
        .await
        .map_err(|error| one_line(&error))?;
    if let Some(failure) = ended.failure() {
        return Err(format!("ostree admin lock-finalization: {failure}"));
    }
    match command::run_keeping(&ostree, &STATUS, OSTREE_TIMEOUT, STATUS_LENGTH).await {
        Ok(ended) if ended.status.success() => match staged_is_locked(&ended.output) {
            Some(false) => Err("ostree still calls the deployment unlocked".to_owned()),
            Some(true) | None => Ok(()),
        },
        // Before 2025.3 it has no --json.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the staged deployment is locked, by `ostree admin status --json`.
fn staged_is_locked(json: &str) -> Option<bool> {
    let status: serde_json::Value = serde_json::from_str(json).ok()?;
    let staged = status
        .get("deployments")?
        .as_array()?
        .iter()
        .find(|one| one.get("staged").and_then(serde_json::Value::as_bool) == Some(true))?;
    staged.get("finalization-locked")?.as_bool()
}

#[cfg(test)]
mod tests {
    use super::staged_is_locked;

    #[test]
    fn the_lock_is_that_of_the_staged_one() {
        for (json, locked) in [
            (
                r#"{"deployments":[{"staged":true,"finalization-locked":true},
                    {"staged":false,"finalization-locked":false}]}"#,
                Some(true),
            ),
            (
                r#"{"deployments":[{"finalization-locked":true},
                    {"staged":true,"finalization-locked":false}]}"#,
                Some(false),
            ),
            (r#"{"deployments":[{"staged":true}]}"#, None),
            (r#"{"deployments":{}}"#, None),
            ("not JSON", None),
        ] {
            assert_eq!(staged_is_locked(json), locked, "{json}");
        }
    }
}
