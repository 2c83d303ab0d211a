//! What the objects on the bus show, and what changed since it was last shown.

use anyhow::Result;

use crate::dictionary::{self, Field, Table};
use crate::faults::{Faults, Kind};
use crate::paths::{OSNAME, Paths};
use crate::state::System;

use super::config;

/// The object of the whole system.
pub(crate) const SYSROOT_PATH: &str = "/org/projectatomic/rpmostree1/Sysroot";
pub(crate) const SYSROOT: &str = "org.projectatomic.rpmostree1.Sysroot";
pub(crate) const OS: &str = "org.projectatomic.rpmostree1.OS";
pub(crate) const ROOT_PATH: &str = "/org/projectatomic/rpmostree1";

/// The transaction as shown: method, sender and object path, then the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Active {
    pub(crate) method: String,
    pub(crate) sender: String,
    pub(crate) path: String,
    pub(crate) address: String,
}

/// All properties at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) sysroot: Table,
    pub(crate) os: Table,
}

/// Letters, digits and `_` stay; `-` and `/` become `_`; anything else its code.
pub(crate) fn os_path(osname: &str) -> String {
    let mut path = format!("{ROOT_PATH}/");
    for byte in osname.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' => path.push(char::from(byte)),
            b'-' | b'/' => path.push('_'),
            other => path.push_str(&format!("_{other:02x}")),
        }
    }
    path
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) fn load(paths: &Paths, active: Option<&Active>) -> Result<Self> {
        let system = System::load(paths)?;
        let faults = Faults::load(paths)?;
        let mut shown = Self { sysroot: sysroot(paths, &system, active)?, os: os(&system) };
        if faults.is_on(Kind::WrongTypes) {
            shown.spoil_values();
        }
        if faults.is_on(Kind::WrongShape) {
            shown.spoil_shapes();
        }
        Ok(shown)
    }

    /// Path, interface and new values of each object that differs, the OS first.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<(String, &'static str, Table)> {
        let mut changes = Vec::new();
        for (path, interface, now, then) in [
            (os_path(OSNAME), OS, &self.os, &before.os),
            (SYSROOT_PATH.to_owned(), SYSROOT, &self.sysroot, &before.sysroot),
        ] {
            let changed: Table = now
                .iter()
                .filter(|(key, value)| then.get(*key) != Some(*value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !changed.is_empty() {
                changes.push((path, interface, changed));
            }
        }
        changes
    }

    fn spoil_values(&mut self) {
        if let Some(Field::Tables(tables)) = self.sysroot.get_mut("Deployments") {
            tables.iter_mut().for_each(spoil);
        }
        for field in self.os.values_mut() {
            if let Field::Table(table) = field {
                spoil(table);
            }
        }
    }

    fn spoil_shapes(&mut self) {
        self.sysroot.insert("Deployments".to_owned(), Field::text("none of your business"));
        self.sysroot.insert("Booted".to_owned(), Field::Int(-1));
        self.sysroot.insert("ActiveTransaction".to_owned(), Field::Texts(Vec::new()));
        self.os.insert("BootedDeployment".to_owned(), Field::Texts(Vec::new()));
        self.os.insert("DefaultDeployment".to_owned(), Field::Flag(true));
    }
}

/// Types that no client expects, and keys that are gone.
fn spoil(table: &mut Table) {
    if table.is_empty() {
        return;
    }
    table.insert("staged".to_owned(), Field::text("yes"));
    table.insert("version".to_owned(), Field::Int(-7));
    table.insert("checksum".to_owned(), Field::Texts(vec!["\u{1b}[31m".to_owned()]));
    table.insert("timestamp".to_owned(), Field::text("long ago"));
    table.insert("container-image-reference-digest".to_owned(), Field::Flag(true));
    table.remove("booted");
    table.remove("id");
}

fn sysroot(paths: &Paths, system: &System, active: Option<&Active>) -> Result<Table> {
    let all = system.all();
    let tables = all.iter().map(|each| dictionary::of_deployment(system, each)).collect();
    let booted = match system.booted_deployment() {
        Some(booted) => os_path(&booted.osname),
        None => "/".to_owned(),
    };
    let (method, sender, path, address) = match active {
        Some(active) => (
            active.method.clone(),
            active.sender.clone(),
            active.path.clone(),
            active.address.clone(),
        ),
        None => Default::default(),
    };
    Ok([
        ("Booted", Field::Path(booted)),
        ("Path", Field::text(paths.root().to_string_lossy())),
        ("ActiveTransaction", Field::Triple(method, sender, path)),
        ("ActiveTransactionPath", Field::Text(address)),
        ("AutomaticUpdatePolicy", Field::Text(config::automatic_update_policy(paths)?)),
        ("Deployments", Field::Tables(tables)),
    ]
    .map(|(key, field)| (key.to_owned(), field))
    .into())
}

fn os(system: &System) -> Table {
    let table = |each: Option<&crate::state::Deployment>| {
        Field::Table(each.map(|each| dictionary::of_deployment(system, each)).unwrap_or_default())
    };
    let pending = system.all().first().copied();
    let mut update = Table::new();
    if let Some(staged) = &system.staged {
        let target = &staged.target;
        for (key, field) in [
            ("osname", Field::text(&target.osname)),
            ("checksum", Field::text(target.base_checksum())),
            ("version", Field::text(&target.version)),
            ("timestamp", Field::Time(target.timestamp)),
            ("deployment", Field::text(target.id())),
            ("gpg-enabled", Field::Flag(false)),
            ("ref-has-new-commit", Field::Flag(true)),
        ] {
            update.insert(key.to_owned(), field);
        }
    }
    [
        ("Name", Field::text(OSNAME)),
        ("BootedDeployment", table(system.booted_deployment())),
        ("DefaultDeployment", table(pending)),
        ("RollbackDeployment", table(system.rollback())),
        ("CachedUpdate", Field::Table(update)),
        ("HasCachedUpdateRpmDiff", Field::Flag(false)),
    ]
    .map(|(key, field)| (key.to_owned(), field))
    .into()
}

#[cfg(test)]
mod tests {
    use super::os_path;

    #[test]
    fn object_paths_are_escaped_as_the_real_ones() {
        for (osname, end) in [
            ("fedora-coreos", "fedora_coreos"),
            ("a/b", "a_b"),
            ("x.y", "x_2ey"),
            ("rhel_9", "rhel_9"),
        ] {
            assert_eq!(os_path(osname), format!("/org/projectatomic/rpmostree1/{end}"));
        }
    }
}
