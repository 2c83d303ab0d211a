//! The deployment dictionary: the same keys on the bus and in `rpm-ostree status --json`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zbus::wire::{ObjectPath, Variant};

use crate::image::hex64;
use crate::state::{Deployment, Origin, System};

/// A dictionary of named values.
pub(crate) type Table = BTreeMap<String, Field>;

/// A value with the type it has on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Text(String),
    Flag(bool),
    Int(i32),
    Time(u64),
    Texts(Vec<String>),
    Path(String),
    Triple(String, String, String),
    Table(Table),
    Tables(Vec<Table>),
}

// === impl Field ===

impl Field {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Path(text) => json!(text),
            Self::Flag(flag) => json!(flag),
            Self::Int(number) => json!(number),
            Self::Time(number) => json!(number),
            Self::Texts(texts) => json!(texts),
            Self::Triple(one, two, three) => json!([one, two, three]),
            Self::Table(table) => table_to_json(table),
            Self::Tables(tables) => tables.iter().map(table_to_json).collect(),
        }
    }

    pub(crate) fn to_variant(&self) -> Variant<'static> {
        match self {
            Self::Text(text) => Variant::from(text.clone()),
            Self::Flag(flag) => Variant::from(*flag),
            Self::Int(number) => Variant::from(*number),
            Self::Time(number) => Variant::from(*number),
            Self::Texts(texts) => Variant::from(texts.clone()),
            Self::Path(path) => match ObjectPath::try_from(path.clone()) {
                Ok(path) => Variant::from(path),
                // A wrong path is shown as what it is, a text.
                Err(_) => Variant::from(path.clone()),
            },
            Self::Triple(one, two, three) => {
                Variant::from((one.clone(), two.clone(), three.clone()))
            }
            Self::Table(table) => Variant::from(table_to_variants(table)),
            Self::Tables(tables) => {
                Variant::from(tables.iter().map(table_to_variants).collect::<Vec<_>>())
            }
        }
    }
}

pub(crate) fn table_to_json(table: &Table) -> Value {
    table.iter().map(|(key, field)| (key.clone(), field.to_json())).collect()
}

/// A table as the bus carries it, `a{sv}`.
pub(crate) fn table_to_variants(table: &Table) -> BTreeMap<String, Variant<'static>> {
    table.iter().map(|(key, field)| (key.clone(), field.to_variant())).collect()
}

/// The dictionary of one deployment.
pub(crate) fn of_deployment(system: &System, deployment: &Deployment) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, field: Field| {
        table.insert(key.to_owned(), field);
    };
    let staged = system.is_staged(deployment);
    put("id", Field::text(deployment.id()));
    put("osname", Field::text(&deployment.osname));
    put("checksum", Field::text(&deployment.checksum));
    put("serial", Field::Int(deployment.serial));
    put("booted", Field::Flag(system.is_booted(deployment)));
    put("staged", Field::Flag(staged));
    put("pinned", Field::Flag(deployment.pinned));
    put("unlocked", Field::text("none"));
    put("version", Field::text(&deployment.version));
    put("timestamp", Field::Time(deployment.timestamp));
    put("regenerate-initramfs", Field::Flag(false));
    put("base-commit-meta", Field::Table(commit_meta(deployment)));
    for key in [
        "base-removals",
        "base-local-replacements",
        "base-remote-replacements",
        "requested-local-packages",
        "requested-base-removals",
        "requested-base-local-replacements",
    ] {
        put(key, Field::Texts(Vec::new()));
    }
    let packages = deployment.layered.as_ref().map(|layered| layered.packages.clone());
    put("packages", Field::Texts(packages.clone().unwrap_or_default()));
    put("requested-packages", Field::Texts(packages.unwrap_or_default()));
    if let Some(layered) = &deployment.layered {
        put("base-checksum", Field::text(&layered.base_checksum));
        put("base-version", Field::text(&deployment.version));
        put("base-timestamp", Field::Time(deployment.timestamp));
        let meta = [("rpmostree.clientlayer".to_owned(), Field::Flag(true))];
        put("layered-commit-meta", Field::Table(meta.into()));
    }
    match &deployment.origin {
        Origin::Branch { refspec } => put("origin", Field::text(refspec)),
        Origin::Container { reference, digest } => {
            put("container-image-reference", Field::text(reference));
            put("container-image-reference-digest", Field::text(digest));
        }
    }
    // Computed from the old file only, so it is normally absent although locked.
    if staged && system.legacy_lock {
        put("finalization-locked", Field::Flag(true));
    }
    table
}

/// The metadata of the base commit; for containers tens of kilobytes of JSON in strings.
fn commit_meta(deployment: &Deployment) -> Table {
    let mut table = Table::new();
    table.insert("version".to_owned(), Field::text(&deployment.version));
    table.insert("fedora-coreos.stream".to_owned(), Field::text("stable"));
    let Origin::Container { digest, .. } = &deployment.origin else {
        return table;
    };
    let layers: Vec<Value> = (0..65)
        .map(|number| {
            json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": format!("sha256:{}", hex64(&format!("{digest} layer {number}"))),
                "size": 1_000_000 + number * 4096,
                "annotations": {
                    "ostree.components": format!("component-{number},component-{number}-libs"),
                    "ostree.frequency": "monthly",
                },
            })
        })
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": format!("sha256:{}", hex64(&format!("{digest} config"))),
            "size": 18_000,
        },
        "layers": layers,
    });
    let history: Vec<Value> = (0..65)
        .map(|number| {
            json!({
                "created": "2025-10-01T00:00:00Z",
                "created_by": format!("ostree export of component-{number}"),
                "comment": hex64(&format!("{digest} history {number}")),
            })
        })
        .collect();
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Labels": { "org.opencontainers.image.version": deployment.version,
                                "ostree.commit": deployment.base_checksum() } },
        "history": history,
    });
    table.insert("ostree.manifest".to_owned(), Field::text(manifest.to_string()));
    table.insert("ostree.manifest-digest".to_owned(), Field::text(digest));
    table.insert("ostree.container.image-config".to_owned(), Field::text(config.to_string()));
    table
}
