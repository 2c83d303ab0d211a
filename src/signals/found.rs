//! Which sources of updates a host has, by the files that their packages bring.
//!
//! Looks once and asks nobody: a daemon may be late or masked, and is the source all the same.

use std::path::Path;

use crate::model::Source;
use crate::signals::bus::below;

/// Where units of packages lie.
const UNIT_FOLDERS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// Where services say who may call them.
const POLICY_FOLDERS: [&str; 2] = ["/usr/share/dbus-1/system.d", "/etc/dbus-1/system.d"];

/// Exists on hosts that ostree booted.
const OSTREE_BOOTED: &str = "/run/ostree-booted";

/// Where bootc keeps the systems of a host without ostree.
const COMPOSEFS: &str = "/sysroot/state/deploy";

/// Programs of bootc.
const BOOTC: [&str; 2] = ["/usr/bin/bootc", "/usr/sbin/bootc"];

/// Whether a host has a source, and why we say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub source: Source,
    /// Whether it has it.
    pub is_here: bool,
    /// One sentence for people, with the paths as the host names them.
    pub why: String,
}

/// Looks for every source below the host's root, in the order of [`Source`]. A person is none that
/// could be found: a person may always ask.
pub fn look(root: &Path) -> [Found; 4] {
    let rpm_ostree = rpm_ostree(root);
    let bootc = bootc(root, &rpm_ostree);
    let update_engine = update_engine(root);
    let sentinel = sentinel([&rpm_ostree, &bootc, &update_engine]);
    [rpm_ostree, bootc, update_engine, sentinel]
}

fn rpm_ostree(root: &Path) -> Found {
    const UNIT: &str = "rpm-ostreed.service";
    let found = match (exists(root, OSTREE_BOOTED), unit(root, UNIT)) {
        (true, Some(unit)) => Ok(format!("ostree booted this host and it has {unit}")),
        (true, None) => Err(format!("ostree booted this host, but it has no {UNIT}")),
        (false, Some(_)) => Err(format!("it has {UNIT}, but no {OSTREE_BOOTED}")),
        (false, None) => Err(format!("it has neither {OSTREE_BOOTED} nor {UNIT}")),
    };
    Found::new(Source::RpmOstree, found)
}

/// Where rpm-ostree runs, it knows of all that bootc does, and can do more.
fn bootc(root: &Path, rpm_ostree: &Found) -> Found {
    let booted = [OSTREE_BOOTED, COMPOSEFS].into_iter().find(|path| exists(root, path));
    let program = BOOTC.into_iter().find(|path| exists(root, path));
    let found = match (booted, program) {
        _ if rpm_ostree.is_here => Err("rpm-ostree is here and tells the same".to_owned()),
        (Some(booted), Some(program)) => {
            Ok(format!("it has {booted} and {program}, and no rpm-ostree"))
        }
        (Some(booted), None) => Err(format!("it has {booted}, but no {}", BOOTC[0])),
        (None, _) => Err(format!("it has neither {OSTREE_BOOTED} nor {COMPOSEFS}")),
    };
    Found::new(Source::Bootc, found)
}

fn update_engine(root: &Path) -> Found {
    const UNIT: &str = "update-engine.service";
    const POLICY: &str = "com.coreos.update1.conf";
    let policy = || first(root, &POLICY_FOLDERS, POLICY);
    let found = match unit(root, UNIT).or_else(policy) {
        Some(file) => Ok(format!("it has {file}")),
        None => Err(format!("it has neither {UNIT} nor {POLICY}")),
    };
    Found::new(Source::UpdateEngine, found)
}

/// Only where nobody knows better: some update systems write a sentinel as well.
fn sentinel(others: [&Found; 3]) -> Found {
    let found = match others.into_iter().find(|other| other.is_here) {
        Some(other) => Err(format!("{} is here and knows better", other.source.name())),
        None => Ok("no update system is here that could be asked".to_owned()),
    };
    Found::new(Source::Sentinel, found)
}

impl Found {
    fn new(source: Source, found: Result<String, String>) -> Self {
        let is_here = found.is_ok();
        let (Ok(why) | Err(why)) = found;
        Self { source, is_here, why }
    }
}

fn unit(root: &Path, name: &str) -> Option<String> {
    first(root, &UNIT_FOLDERS, name)
}

/// The path of a file in the first of the folders that has it.
fn first(root: &Path, folders: &[&str], name: &str) -> Option<String> {
    folders.iter().map(|folder| format!("{folder}/{name}")).find(|path| exists(root, path))
}

/// A link counts by itself: what it leads to, it leads to from the host's own root.
fn exists(root: &Path, path: &str) -> bool {
    below(root, path).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const RPM_OSTREE: &str = "usr/lib/systemd/system/rpm-ostreed.service";

    /// What a host with these files has, and why.
    fn found(files: &[&str]) -> Vec<Found> {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        look(root.path()).to_vec()
    }

    #[test]
    fn each_host_has_its_source() {
        for (files, expected, why) in [
            (&["run/ostree-booted", RPM_OSTREE][..], "rpm-ostree", "rpm-ostreed.service"),
            (&["run/ostree-booted", RPM_OSTREE, "usr/bin/bootc"], "rpm-ostree", "booted"),
            (
                &["run/ostree-booted", "lib/systemd/system/rpm-ostreed.service"],
                "rpm-ostree",
                "/lib/",
            ),
            (&["run/ostree-booted", "usr/bin/bootc"], "bootc", "no rpm-ostree"),
            (&["sysroot/state/deploy/x", "usr/bin/bootc"], "bootc", "/sysroot/state/deploy"),
            (&["sysroot/state/deploy/x", "usr/bin/bootc", RPM_OSTREE], "bootc", "/usr/bin/bootc"),
            (
                &["usr/lib/systemd/system/update-engine.service"],
                "update-engine",
                "/usr/lib/systemd/",
            ),
            (
                &["lib/systemd/system/update-engine.service"],
                "update-engine",
                "it has /lib/systemd/",
            ),
            (&["usr/share/dbus-1/system.d/com.coreos.update1.conf"], "update-engine", "update1"),
            (&["etc/dbus-1/system.d/com.coreos.update1.conf"], "update-engine", "/etc/dbus-1/"),
            (&["run/reboot-required"], "sentinel", "no update system"),
            (&["usr/bin/bootc", RPM_OSTREE], "sentinel", "no update system"),
            (&["run/ostree-booted"], "sentinel", "no update system"),
            (&[], "sentinel", "no update system"),
        ] {
            let all = found(files);
            let here: Vec<&Found> = all.iter().filter(|found| found.is_here).collect();
            let names: Vec<&str> = here.iter().map(|found| found.source.name()).collect();
            assert_eq!(names, [expected], "{files:?}");
            assert!(here[0].why.contains(why), "{files:?}: {}", here[0].why);
        }
    }

    #[test]
    fn what_is_not_here_says_what_is_missing() {
        let whys: Vec<String> = found(&[RPM_OSTREE]).into_iter().map(|found| found.why).collect();
        assert_eq!(
            whys,
            [
                "it has rpm-ostreed.service, but no /run/ostree-booted",
                "it has neither /run/ostree-booted nor /sysroot/state/deploy",
                "it has neither update-engine.service nor com.coreos.update1.conf",
                "no update system is here that could be asked",
            ]
        );
        let ostree = found(&["run/ostree-booted", RPM_OSTREE]);
        assert_eq!(ostree[1].why, "rpm-ostree is here and tells the same");
        assert_eq!(ostree[3].why, "rpm-ostree is here and knows better");
    }

    /// A masked unit is a link to nowhere below a root that is not ours.
    #[test]
    fn links_count_and_two_systems_are_both_told() {
        let root = tempfile::tempdir().unwrap();
        let units = root.path().join("usr/lib/systemd/system");
        std::fs::create_dir_all(&units).unwrap();
        std::fs::create_dir_all(root.path().join("run/ostree-booted")).unwrap();
        for unit in ["update-engine.service", "rpm-ostreed.service"] {
            std::os::unix::fs::symlink("/nowhere/at/all", units.join(unit)).unwrap();
        }
        let here = look(root.path()).map(|found| found.is_here);
        assert_eq!(here, [true, false, true, false]);
    }
}
