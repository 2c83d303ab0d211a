//! The deployment dictionaries of rpm-ostreed, understood. Pure.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;

use zbus::{OwnedVariant, Variant};

use crate::model::Deployment;

/// Longest identity that is taken for one: `sha256:` and 64 digits are 71 characters.
const IDENTITY_LENGTH: usize = 256;

/// Longest version that is kept; it is for people only.
const VERSION_LENGTH: usize = 128;

/// A deployment as rpm-ostreed lists it: everything by which it can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// `container-image-reference-digest`.
    pub(crate) digest: Option<String>,
    /// `base-checksum`.
    pub(crate) base: Option<String>,
    /// `checksum`: the commit that is deployed, with layered packages.
    pub(crate) checksum: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) booted: bool,
    pub(crate) staged: bool,
}

/// Why the list of deployments cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeploymentsError {
    /// A key has another type than it should.
    #[error("deployment {index}: {key} has type {found}, expected {expected}")]
    OddType {
        /// Place in the list.
        index: usize,
        /// Key of the dictionary.
        key: &'static str,
        /// D-Bus signature that was found.
        found: String,
        /// D-Bus signature that was expected.
        expected: &'static str,
    },
    /// A key has a value that cannot be.
    #[error("deployment {index}: {key} is no identity: empty, too long or not plain text")]
    OddIdentity {
        /// Place in the list.
        index: usize,
        /// Key of the dictionary.
        key: &'static str,
    },
    /// There is nothing to call it by.
    #[error(
        "deployment {index}: neither container-image-reference-digest nor base-checksum nor checksum"
    )]
    NoIdentity {
        /// Place in the list.
        index: usize,
    },
    /// More than one runs.
    #[error("deployments {first} and {second} both say that they are booted")]
    TwoBooted {
        /// Place in the list.
        first: usize,
        /// Place in the list.
        second: usize,
    },
    /// None runs.
    #[error("no deployment says that it is booted")]
    NoneBooted,
    /// A staged deployment that is not the one that boots next.
    #[error("deployment {index} is staged, but only the first one can be")]
    StagedBehind {
        /// Place in the list.
        index: usize,
    },
}

/// Understands the property `Deployments`.
///
/// A deployment that neither runs nor boots next is left out if it cannot be read: an odd old one
/// must not stop updates. The others are reported, never guessed.
///
/// # Errors
/// What a decision would hang on cannot be read.
pub fn parse_deployments(
    list: &[HashMap<String, OwnedVariant>],
) -> Result<Vec<Deployment>, DeploymentsError> {
    Ok(self::list(&parse_entries(list)?))
}

/// What the heart looks at.
pub(crate) fn list(entries: &[Entry]) -> Vec<Deployment> {
    entries.iter().filter_map(Entry::deployment).collect()
}

/// As [`parse_deployments`], with all names of each deployment.
pub(crate) fn parse_entries(
    list: &[HashMap<String, OwnedVariant>],
) -> Result<Vec<Entry>, DeploymentsError> {
    let mut entries = Vec::with_capacity(list.len());
    let mut booted = None;
    for (index, dictionary) in list.iter().enumerate() {
        let is_booted = boolean(index, dictionary, "booted")?;
        let is_staged = boolean(index, dictionary, "staged")?;
        if is_staged && index != 0 {
            return Err(DeploymentsError::StagedBehind { index });
        }
        if is_booted && let Some(first) = booted.replace(index) {
            return Err(DeploymentsError::TwoBooted { first, second: index });
        }
        match entry(index, dictionary, is_booted, is_staged) {
            Ok(entry) => entries.push(entry),
            Err(error) if is_booted || index == 0 => return Err(error),
            Err(_) => {}
        }
    }
    if booted.is_none() {
        return Err(DeploymentsError::NoneBooted);
    }
    Ok(entries)
}

// === impl Entry ===

impl Entry {
    /// What it is compared by.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.digest.as_deref().or(self.base.as_deref()).or(self.checksum.as_deref())
    }

    /// Whether it can be called so.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        [&self.digest, &self.base, &self.checksum].into_iter().flatten().any(|own| own == name)
    }

    fn deployment(&self) -> Option<Deployment> {
        Some(Deployment {
            identity: self.identity()?.to_owned(),
            version: self.version.clone(),
            place: None,
            booted: self.booted,
            staged: self.staged,
        })
    }
}

fn entry(
    index: usize,
    dictionary: &HashMap<String, OwnedVariant>,
    booted: bool,
    staged: bool,
) -> Result<Entry, DeploymentsError> {
    let entry = Entry {
        digest: identity(index, dictionary, "container-image-reference-digest")?,
        base: identity(index, dictionary, "base-checksum")?,
        checksum: identity(index, dictionary, "checksum")?,
        version: version(dictionary),
        booted,
        staged,
    };
    match entry.identity() {
        Some(_) => Ok(entry),
        None => Err(DeploymentsError::NoIdentity { index }),
    }
}

/// A missing flag is false, as older versions leave `staged` out.
fn boolean(
    index: usize,
    dictionary: &HashMap<String, OwnedVariant>,
    key: &'static str,
) -> Result<bool, DeploymentsError> {
    let Some(value) = dictionary.get(key) else { return Ok(false) };
    bool::try_from(&**value).map_err(|_| odd_type(index, key, value, "b"))
}

fn identity(
    index: usize,
    dictionary: &HashMap<String, OwnedVariant>,
    key: &'static str,
) -> Result<Option<String>, DeploymentsError> {
    let Some(value) = dictionary.get(key) else { return Ok(None) };
    let Some(text) = string(value) else { return Err(odd_type(index, key, value, "s")) };
    let plain = text.chars().all(|c| c.is_ascii_graphic());
    if text.is_empty() || text.len() > IDENTITY_LENGTH || !plain {
        return Err(DeploymentsError::OddIdentity { index, key });
    }
    Ok(Some(text.to_owned()))
}

/// For people only, so that an odd one is left out.
fn version(dictionary: &HashMap<String, OwnedVariant>) -> Option<String> {
    let text = string(dictionary.get("version")?)?;
    let clean: String = text.chars().filter(|c| !c.is_control()).take(VERSION_LENGTH).collect();
    (!clean.is_empty()).then_some(clean)
}

fn string(value: &OwnedVariant) -> Option<&str> {
    #[allow(clippy::wildcard_enum_match_arm)] // not ours
    match &**value {
        Variant::Str(text) => Some(text.as_str()),
        _ => None,
    }
}

fn odd_type(
    index: usize,
    key: &'static str,
    found: &OwnedVariant,
    expected: &'static str,
) -> DeploymentsError {
    DeploymentsError::OddType { index, key, found: found.value_signature().to_string(), expected }
}
