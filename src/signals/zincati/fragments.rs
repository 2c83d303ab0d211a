//! What Zincati's own configuration says: its fragments, and who it asks as.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::Table;

use crate::config::file::read_text_bounded;
use crate::fleetlock::{clean_value, zincati_id};

/// Where its configuration lies, the stronger behind the weaker: a file of the same name replaces
/// one of an earlier folder, and files are read in the order of their names.
const FOLDERS: [&str; 3] =
    ["usr/lib/zincati/config.d", "run/zincati/config.d", "etc/zincati/config.d"];

/// Largest fragment that is read.
const FRAGMENT_LENGTH: u64 = 256 * 1024;

/// Where a host keeps its machine id.
const MACHINE_ID_FILE: &str = "etc/machine-id";

/// A machine id and its end of line are 33.
const MACHINE_ID_BYTES_MAX: u64 = 256;

/// The group that Zincati asks in unless it is told another one.
const DEFAULT_GROUP: &str = "default";

/// Who the Zincati of a host asks as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `identity.node_uuid` as it is sent: 32 lower-case hex digits; by default made of the machine id.
    pub id: String,
    /// `identity.group`.
    pub group: String,
}

// === impl Identity ===

impl Identity {
    /// Reads it under the host's root.
    ///
    /// # Errors
    /// The file that cannot be read or understood, and what was expected.
    pub fn read(root: &Path) -> Result<Self, String> {
        let (mut id, mut group) = (None, None);
        for file in fragments(root)? {
            let text = read(&file)?;
            merge(&mut id, &mut group, &text)
                .map_err(|why| clean_value(&format!("{}: {why}", file.display())))?;
        }
        let id = match id.filter(|id| !id.is_empty()) {
            Some(id) => node_uuid(&id)?,
            None => default_id(root)?,
        };
        let group = group.filter(|group| !group.is_empty());
        Ok(Self { id, group: group.unwrap_or_else(|| DEFAULT_GROUP.to_owned()) })
    }
}

/// The fragments in the order in which Zincati reads them.
///
/// # Errors
/// The folder that cannot be read.
pub(crate) fn fragments(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        let entries = match folder.read_dir() {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        };
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if bytes.ends_with(b".toml") && !bytes.starts_with(b".") {
                found.insert(name, entry.path());
            }
        }
    }
    Ok(found.into_values().collect())
}

/// A fragment's text. Devices and the like count as empty: a link to /dev/null masks a fragment.
///
/// # Errors
/// The file, and why it cannot be read.
pub(crate) fn read(file: &Path) -> Result<String, String> {
    let failed = |error| format!("{}: {error}", file.display());
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Ok(String::new());
    }
    read_text_bounded(file, FRAGMENT_LENGTH).map_err(failed)
}

/// Takes what a fragment says of the identity: later fragments win, key by key. Keys that Zincati
/// does not know it ignores, and so do we.
fn merge(id: &mut Option<String>, group: &mut Option<String>, text: &str) -> Result<(), String> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| format!("no TOML: {}", error.message()))?;
    let Some(identity) = table.get("identity") else { return Ok(()) };
    let odd = |key: &str| format!("{key} is of another type than Zincati's");
    let identity = identity.as_table().ok_or_else(|| odd("identity"))?;
    for (key, value) in [("node_uuid", id), ("group", group)] {
        if let Some(found) = identity.get(key) {
            let text = found.as_str().ok_or_else(|| odd(&format!("identity.{key}")))?;
            *value = Some(text.to_owned());
        }
    }
    Ok(())
}

/// The id as Zincati sends it: it takes dashes and capitals, and sends neither.
fn node_uuid(text: &str) -> Result<String, String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(digits.to_ascii_lowercase());
    }
    let found: String = text.chars().take(64).collect();
    Err(format!("Zincati's identity.node_uuid: expected 32 hex digits, found {found:?}"))
}

fn default_id(root: &Path) -> Result<String, String> {
    let file = root.join(MACHINE_ID_FILE);
    let text = read_text_bounded(&file, MACHINE_ID_BYTES_MAX);
    let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
    zincati_id(&text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use proptest::prelude::*;

    use super::*;

    const MACHINE: &str = "1c09ca98649c4c7abc779cd04c96812e\n";
    const MACHINES_ID: &str = "978a225b3d7b40e9acd7ce9b62f68444";

    fn identity(files: &[(&str, &str)]) -> Result<(String, String), String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let read = Identity::read(root.path());
        read.map(|identity| (identity.id, identity.group))
            .map_err(|error| error.replace(root.path().to_str().unwrap(), ""))
    }

    #[test]
    fn zincati_asks_as_its_machine_unless_told_otherwise() {
        let machine = ("etc/machine-id", MACHINE);
        let named = |text: &'static str| [machine, ("etc/zincati/config.d/50-a.toml", text)];
        let own = |id: &str, group: &str| Ok((id.to_owned(), group.to_owned()));
        assert_eq!(identity(&[machine]), own(MACHINES_ID, "default"));
        for (text, id, group) in [
            ("", MACHINES_ID, "default"),
            ("[identity]\ngroup = \"Workers.1\"\n", MACHINES_ID, "Workers.1"),
            ("[identity]\ngroup = \"\"\nnode_uuid = \"\"\n", MACHINES_ID, "default"),
            ("[identity]\nrollout_wariness = 0.5\nx = 1\n", MACHINES_ID, "default"),
            (
                "identity.node_uuid = \"27E3AC02-AF39-46AF-995B-9940E18B0CCE\"",
                "27e3ac02af3946af995b9940e18b0cce",
                "default",
            ),
        ] {
            assert_eq!(identity(&named(text)), own(id, group), "{text}");
        }
    }

    #[test]
    fn the_later_fragment_wins_key_by_key() {
        let files = [
            ("etc/machine-id", MACHINE),
            ("usr/lib/zincati/config.d/10-a.toml", "[identity]\ngroup = \"first\"\n"),
            ("run/zincati/config.d/90-b.toml", "[identity]\ngroup = \"last\"\n"),
            (
                "etc/zincati/config.d/50-c.toml",
                "[identity]\ngroup = \"mid\"\nnode_uuid = \"27e3ac02af3946af995b9940e18b0cce\"\n",
            ),
        ];
        let expected = ("27e3ac02af3946af995b9940e18b0cce".to_owned(), "last".to_owned());
        assert_eq!(identity(&files), Ok(expected));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        let fragment = "etc/zincati/config.d/50-a.toml";
        for (files, expected) in [
            (vec![], "/etc/machine-id: No such file or directory (os error 2)"),
            (vec![("etc/machine-id", "")], "/etc/machine-id: the machine id is not set yet"),
            (vec![(fragment, "[identity")], "/etc/zincati/config.d/50-a.toml: no TOML: "),
            (
                vec![(fragment, "[identity]\ngroup = 1\n")],
                "/etc/zincati/config.d/50-a.toml: identity.group is of another type than Zincati's",
            ),
            (
                vec![(fragment, "[identity]\nnode_uuid = \"node-1\"\n")],
                "Zincati's identity.node_uuid: expected 32 hex digits, found \"node-1\"",
            ),
        ] {
            let error = identity(&files).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_fragment_is_understood_or_named(
            text in "(\\PC|\n|\"|\\[|=|identity|\\.|group|node_uuid|true|-|a| ){0,24}",
        ) {
            let files = [("etc/machine-id", MACHINE), ("etc/zincati/config.d/a.toml", &text)];
            let shown = identity(&files).map_or_else(|error| error, |(id, _)| id);
            prop_assert!(!shown.is_empty() && !shown.chars().any(char::is_control), "{shown:?}");
        }
    }
}
