//! A Zincati on this host that asks a slot server of its own: two would reboot one node.

use crate::config::without_secret;
use crate::fleetlock::clean_value;
use crate::signals::bus::systemd::Systemd;
use crate::signals::bus::{Host, plain};
use crate::signals::zincati::{fragments, read};

const UNIT: &str = "zincati.service";

/// What Zincati's configuration says about slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Updates {
    enabled: Option<bool>,
    strategy: Option<String>,
    base_url: Option<String>,
}

/// The slot server that an active Zincati asks, if it is not ours; without what is secret in its URL.
///
/// # Errors
/// It is active and what it does cannot be read.
pub(super) async fn other_server(
    host: &Host,
    systemd: &Systemd,
    own_server: Option<&str>,
) -> Result<Option<String>, String> {
    let unit = systemd.unit(UNIT).await.map_err(|error| error.text())?;
    if matches!(unit.active.as_str(), "inactive" | "failed") {
        return Ok(None);
    }
    let mut merged = Updates::default();
    for file in fragments(&host.root)? {
        let text = read(&file)?;
        merge(&mut merged, &text)
            .map_err(|why| clean_value(&format!("{}: {why}", file.display())))?;
    }
    Ok(server(merged, own_server))
}

fn server(updates: Updates, own_server: Option<&str>) -> Option<String> {
    if updates.enabled == Some(false) || updates.strategy.as_deref() != Some("fleet_lock") {
        return None;
    }
    let url = updates.base_url.unwrap_or_default();
    let is_own =
        own_server.is_some_and(|own| own.trim_end_matches('/') == url.trim_end_matches('/'));
    (!is_own).then(|| plain(&without_secret(&url)))
}

/// Later fragments win, key by key.
fn merge(merged: &mut Updates, text: &str) -> Result<(), String> {
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| format!("no TOML: {}", error.message()))?;
    let Some(updates) = table.get("updates") else { return Ok(()) };
    let odd = |key: &str| format!("{key} is of another type than Zincati's");
    let updates = updates.as_table().ok_or_else(|| odd("updates"))?;
    if let Some(enabled) = updates.get("enabled") {
        merged.enabled = Some(enabled.as_bool().ok_or_else(|| odd("updates.enabled"))?);
    }
    if let Some(strategy) = updates.get("strategy") {
        let text = strategy.as_str().ok_or_else(|| odd("updates.strategy"))?;
        merged.strategy = Some(text.to_owned());
    }
    if let Some(fleet_lock) = updates.get("fleet_lock") {
        let table = fleet_lock.as_table().ok_or_else(|| odd("updates.fleet_lock"))?;
        if let Some(url) = table.get("base_url") {
            let text = url.as_str().ok_or_else(|| odd("updates.fleet_lock.base_url"))?;
            merged.base_url = Some(text.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::type_complexity)]

    use std::fs;

    use super::*;

    fn merged(files: &[(&str, &str)], own: Option<&str>) -> Result<Option<String>, String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if *text == "masked" {
                std::os::unix::fs::symlink("/dev/null", path).unwrap();
            } else {
                fs::write(path, text).unwrap();
            }
        }
        let mut merged = Updates::default();
        for file in fragments(root.path())? {
            merge(&mut merged, &read(&file)?)?;
        }
        Ok(server(merged, own))
    }

    #[test]
    fn a_password_is_not_told() {
        let text = LOCK.replace("http://", "http://user:secret@");
        let told = merged(&[("etc/zincati/config.d/50-a.toml", &text)], None).unwrap().unwrap();
        assert_eq!(told, "http://***@192.0.2.1/");
    }

    const LOCK: &str = "[updates]\nstrategy = \"fleet_lock\"\n\
                        [updates.fleet_lock]\nbase_url = \"http://192.0.2.1/\"\n";

    #[test]
    fn the_last_word_counts() {
        let other = Ok(Some("http://192.0.2.1/".to_owned()));
        let table: [(&[(&str, &str)], Option<&str>, Result<Option<String>, String>); 8] = [
            (&[], None, Ok(None)),
            (&[("etc/zincati/config.d/50-a.toml", LOCK)], None, other.clone()),
            (&[("etc/zincati/config.d/50-a.toml", LOCK)], Some("http://192.0.2.1"), Ok(None)),
            (&[("etc/zincati/config.d/50-a.yaml", LOCK)], None, Ok(None)),
            (
                &[
                    ("usr/lib/zincati/config.d/50-a.toml", LOCK),
                    ("etc/zincati/config.d/50-a.toml", "masked"),
                ],
                None,
                Ok(None),
            ),
            (
                &[
                    ("etc/zincati/config.d/50-a.toml", LOCK),
                    ("run/zincati/config.d/90-b.toml", "[updates]\nstrategy = \"immediate\"\n"),
                ],
                None,
                Ok(None),
            ),
            (
                &[
                    ("etc/zincati/config.d/90-off.toml", "[updates]\nenabled = false\n"),
                    ("usr/lib/zincati/config.d/50-a.toml", LOCK),
                ],
                None,
                Ok(None),
            ),
            (
                &[
                    ("etc/zincati/config.d/50-a.toml", "[updates]\nenabled = \"no\"\n"),
                    ("run/zincati/config.d/50-a.toml", LOCK),
                ],
                None,
                Err("updates.enabled is of another type than Zincati's".to_owned()),
            ),
        ];
        for (files, own, expected) in table {
            assert_eq!(merged(files, own), expected, "{files:?}");
        }
    }

    #[test]
    fn broken_fragments_are_named() {
        let error = merged(&[("etc/zincati/config.d/50-a.toml", "[updates")], None).unwrap_err();
        assert!(error.starts_with("no TOML: "), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_fragment_is_understood_or_named(
            text in "(\\PC|\n|\"|\\[|=|updates|\\.|fleet_lock|strategy|base_url|enabled|true| ){0,24}",
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60),
        ) {
            for content in [text.as_bytes(), &bytes] {
                let root = tempfile::tempdir().unwrap();
                let file = root.path().join("50-a.toml");
                fs::write(&file, content).unwrap();
                let read = read(&file).and_then(|text| merge(&mut Updates::default(), &text));
                proptest::prop_assert!(read.is_ok_and(|()| true) || !content.is_empty());
            }
        }
    }
}
