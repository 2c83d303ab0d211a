//! Zincati's configuration, from its own TOML fragments. Keys that it does not know it ignores.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use toml::{Table, Value};

/// Weaker folders first; a file of the same name replaces one of an earlier folder.
const FOLDERS: [&str; 3] = ["usr/lib", "run", "etc"];

const APP_ID: u128 = 0xde35_106b_6ec2_4688_b63a_fdda_a156_679b;

/// What of the configuration bears on reboots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// `identity.node_uuid`: 32 hex digits, by default made of the machine id.
    pub(crate) id: String,
    /// `identity.group`.
    pub(crate) group: String,
    /// `updates.enabled`.
    pub(crate) enabled: bool,
    /// `updates.fleet_lock.base_url`; `None`: the strategy is another one, and nobody is asked.
    pub(crate) base_url: Option<String>,
    /// `agent.timing.steady_interval_secs`.
    pub(crate) steady_interval: u64,
}

/// The configuration of the host below a root.
pub(crate) fn load(root: &Path) -> Result<Config> {
    let mut merged = Table::new();
    for file in fragments(root)? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let table: Table = text.parse().with_context(|| file.display().to_string())?;
        merge(&mut merged, table);
    }
    read(&merged, root)
}

/// Sorted by name; a link to /dev/null hides those before it, since it reads as empty.
fn fragments(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        let Ok(entries) = root.join(folder).join("zincati/config.d").read_dir() else { continue };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".toml") && !name.starts_with('.') {
                found.insert(name, entry.path());
            }
        }
    }
    Ok(found.into_values().collect())
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn read(merged: &Table, root: &Path) -> Result<Config> {
    let at = |path: &str| {
        let mut parts = path.split('.');
        let first = merged.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    };
    let text = |path: &str| at(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let group = text("identity.group").unwrap_or("default").to_owned();
    let is_group = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    ensure!(group.chars().all(is_group), "identity.group: found {group:?}");
    let id = match text("identity.node_uuid") {
        Some(id) => u128::from_str_radix(&id.replace('-', ""), 16)
            .map(|id| format!("{id:032x}"))
            .with_context(|| format!("identity.node_uuid: found {id:?}"))?,
        None => default_id(root)?,
    };
    let base_url = match text("updates.strategy").unwrap_or("immediate") {
        "immediate" => None,
        "fleet_lock" => {
            let url = text("updates.fleet_lock.base_url");
            let url = url.context("updates.fleet_lock.base_url: the strategy needs it")?;
            Some(url.replace("${group}", &group).replace("${basearch}", std::env::consts::ARCH))
        }
        other => bail!("updates.strategy: {other:?} is not played"),
    };
    let interval = at("agent.timing.steady_interval_secs").and_then(Value::as_integer);
    Ok(Config {
        id,
        group,
        enabled: at("updates.enabled").and_then(Value::as_bool).unwrap_or(true),
        base_url,
        steady_interval: interval.and_then(|secs| u64::try_from(secs).ok()).unwrap_or(300),
    })
}

/// The machine id, made Zincati's own as sd_id128_get_machine_app_specific(3) does it.
fn default_id(root: &Path) -> Result<String> {
    let file = root.join("etc/machine-id");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let machine = u128::from_str_radix(text.trim(), 16).context("the machine id")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&machine.to_be_bytes())?;
    mac.update(&APP_ID.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let half = digest.iter().take(16).fold(0u128, |id, byte| id << 8 | u128::from(*byte));
    // Version 4 and variant 1 of RFC 4122.
    let id = half & !(0xf << 76) & !(0xc << 60) | 0x4 << 76 | 0x8 << 60;
    Ok(format!("{id:032x}"))
}
