//! Whether units and checks are well.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::command;
use crate::config::HealthSettings;
use crate::lifecycle::Health;
use crate::signals::bus::systemd::Systemd;
use crate::signals::bus::{Host, plain};

/// Looks at the units, then runs the checks one after the other in the order of their names.
/// What cannot be looked at is not well.
pub async fn check(host: &Host, settings: &HealthSettings) -> Health {
    let mut complaints = units(host, &settings.units).await;
    match checks(&settings.checks_dir) {
        Err(complaint) => complaints.push(complaint),
        Ok(files) => {
            for file in files {
                complaints.extend(run(&file, settings).await);
            }
        }
    }
    if complaints.is_empty() { Health::Well } else { Health::NotWell(complaints) }
}

async fn units(host: &Host, names: &[String]) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    let link = match host.bus.connect().await {
        Ok(link) => link,
        Err(error) => return vec![format!("units cannot be looked at: {}", error.text())],
    };
    let systemd = Systemd::new(&link);
    let mut complaints = Vec::new();
    for name in names {
        match systemd.unit(name).await {
            Ok(unit) if unit.load == "not-found" => {
                complaints.push(format!("unit {name} does not exist"));
            }
            // A unit that reloads its configuration serves on.
            Ok(unit) if matches!(unit.active.as_str(), "active" | "reloading" | "refreshing") => {}
            Ok(unit) => complaints.push(format!("unit {name} is {} ({})", unit.active, unit.sub)),
            Err(error) => {
                complaints.push(format!("unit {name} cannot be looked at: {}", error.text()));
            }
        }
    }
    complaints
}

/// The checks of a folder, sorted. No folder: no checks.
fn checks(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("checks in {} cannot be read: {error}", folder.display());
    let own = match folder.metadata() {
        Ok(own) => own,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    if let Some(fault) = ownership_fault(&own) {
        return Err(format!("checks in {} are not run: the folder {fault}", folder.display()));
    }
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        // Editors and packagers leave hidden files; nothing else is passed over in silence.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// What stands in the way of running the checks in a folder, each a sentence; no check is run.
pub fn faults(folder: &Path) -> Vec<String> {
    let files = match checks(folder) {
        Ok(files) => files,
        Err(fault) => return vec![fault],
    };
    let fault = |file: PathBuf| not_run(&file);
    files.into_iter().filter_map(fault).collect()
}

/// Why one check is not run, if it is not.
fn not_run(file: &Path) -> Option<String> {
    let name = plain(&file.file_name().unwrap_or_default().to_string_lossy());
    let fault = match file.metadata() {
        Ok(metadata) => file_fault(&metadata),
        Err(error) => Some(format!("cannot be read: {error}")),
    };
    fault.map(|fault| format!("check {name} is not run: it {fault}"))
}

/// Runs one check; its complaint, if it has one.
async fn run(file: &Path, settings: &HealthSettings) -> Option<String> {
    let name = plain(&file.file_name().unwrap_or_default().to_string_lossy());
    if let Some(fault) = not_run(file) {
        return Some(fault);
    }
    match command::run(file, &[], settings.check_timeout).await {
        Ok(ended) => ended.failure().map(|failure| format!("check {name} failed: {failure}")),
        Err(error @ command::CommandError::TimedOut { .. }) => {
            Some(format!("check {name} failed: {error}"))
        }
        Err(error @ command::CommandError::Start { .. }) => {
            Some(format!("check {name} failed: {}", crate::signals::bus::one_line(&error)))
        }
    }
}

fn file_fault(metadata: &Metadata) -> Option<String> {
    if !metadata.is_file() {
        return Some("is no file".to_owned());
    }
    if metadata.mode() & 0o111 == 0 {
        return Some("is not executable".to_owned());
    }
    ownership_fault(metadata)
}

/// What runs with our rights may be written only by those who have them.
fn ownership_fault(metadata: &Metadata) -> Option<String> {
    ownership(metadata.uid(), metadata.gid(), metadata.mode(), nix::unistd::geteuid().as_raw())
}

fn ownership(owner: u32, group: u32, mode: u32, own: u32) -> Option<String> {
    if owner != 0 && owner != own {
        return Some(format!("belongs to user {owner}, not to root"));
    }
    if mode & 0o002 != 0 {
        return Some("can be written by everybody".to_owned());
    }
    if mode & 0o020 != 0 && group != 0 {
        return Some(format!("can be written by group {group}"));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::signals::bus::Bus;

    fn settings(folder: &Path) -> HealthSettings {
        HealthSettings {
            units: Vec::new(),
            checks_dir: folder.to_owned(),
            check_timeout: Duration::from_secs(2),
        }
    }

    fn write(folder: &Path, name: &str, text: &str, mode: u32) {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }

    async fn complaints(folder: &Path) -> Vec<String> {
        let host = Host::new(Bus::At("unix:path=/nowhere/bus".to_owned()), "/");
        match check(&host, &settings(folder)).await {
            Health::Well => Vec::new(),
            Health::NotWell(complaints) => complaints,
        }
    }

    #[tokio::test]
    async fn every_file_is_run_or_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(complaints(&root.path().join("missing")).await.is_empty());
        let folder = root.path();
        write(folder, "20-good", "#!/bin/sh\nexit 0\n", 0o755);
        write(folder, ".hidden", "", 0o644);
        assert!(complaints(folder).await.is_empty());
        write(folder, "10-disk", "#!/bin/sh\necho disk is full >&2\nexit 1\n", 0o755);
        write(folder, "30-note", "", 0o644);
        write(folder, "40-open", "#!/bin/sh\nexit 0\n", 0o757);
        write(folder, "50-slow", "#!/bin/sh\nsleep 600\n", 0o755);
        write(folder, "60-text", "no program\n", 0o755);
        fs::create_dir(folder.join("70-folder")).unwrap();
        let found = complaints(folder).await;
        let expected = [
            "check 10-disk failed: exit status: 1: \"disk is full\"",
            "check 30-note is not run: it is not executable",
            "check 40-open is not run: it can be written by everybody",
            "check 50-slow failed: ",
            "check 60-text failed: ",
            "check 70-folder is not run: it is no file",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} / {expected}");
        }
        assert!(found[3].ends_with("did not end within 2 s"), "{}", found[3]);
    }

    #[tokio::test]
    async fn an_open_folder_is_not_run_at_all() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o777)).unwrap();
        let found = complaints(root.path()).await;
        assert!(found[0].ends_with("the folder can be written by everybody"), "{found:?}");
    }

    #[tokio::test]
    async fn units_that_cannot_be_asked_for_are_not_well() {
        let host = Host::new(Bus::At("unix:path=/nowhere/bus".to_owned()), "/");
        let settings = HealthSettings {
            units: vec!["kubelet.service".to_owned()],
            checks_dir: "/nowhere".into(),
            check_timeout: Duration::from_secs(1),
        };
        let Health::NotWell(found) = check(&host, &settings).await else { panic!("well") };
        assert!(found[0].starts_with("units cannot be looked at"), "{found:?}");
    }

    #[test]
    fn who_may_write_a_check() {
        for (owner, group, mode, own, good) in [
            (0, 0, 0o755, 0, true),
            (0, 0, 0o775, 0, true),
            (0, 10, 0o775, 0, false),
            (0, 10, 0o755, 0, true),
            (0, 0, 0o757, 0, false),
            (1000, 0, 0o755, 0, false),
            (1000, 1000, 0o755, 1000, true),
            (1001, 0, 0o755, 1000, false),
        ] {
            let fault = ownership(owner, group, mode, own);
            assert_eq!(fault.is_none(), good, "{owner} {group} {mode:o} {own}: {fault:?}");
        }
    }
}
