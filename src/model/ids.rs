//! Identities that travel through records, annotations, events and log lines.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found:?}")]
pub struct IdError {
    /// What was to be read.
    pub what: &'static str,
    /// What it should have looked like.
    pub expected: &'static str,
    /// What was found, cut to 64 characters.
    pub found: String,
}

/// A kernel boot id: 32 lower-case hex digits.
///
/// `/proc/sys/kernel/random/boot_id` and `status.nodeInfo.bootID` write it with dashes, the journal
/// without; both are read, one form is kept, so that they compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(String);

/// One try at one target, unique on its host: the start of the boot id and a count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptId(String);

/// `metadata.uid` of a Node, so that a Node that was deleted and registered again is told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeUid(pub String);

// === impl BootId ===

impl BootId {
    /// Reads a boot id, with or without dashes.
    ///
    /// # Errors
    /// Anything but 32 hex digits.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let digits: String =
            text.trim().chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
        if digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Ok(Self(digits));
        }
        Err(IdError {
            what: "boot id",
            expected: "32 hex digits",
            found: text.chars().take(64).collect(),
        })
    }

    /// The 32 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BootId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> Self {
        id.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl AttemptId ===

impl AttemptId {
    /// The attempt with this ordinal (counted over the life of the record) that began in `boot`.
    pub fn new(boot: &BootId, ordinal: u32) -> Self {
        let start: String = boot.as_str().chars().take(8).collect();
        Self(format!("{start}-{ordinal}"))
    }

    /// The id as it is written everywhere.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn boot_ids_compare_across_spellings() {
        let kernel = BootId::parse("3F2A9C1E-0b1c-4d5e-8f90-a1b2c3d4e5f6\n").unwrap();
        let journal = BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap();
        assert_eq!(kernel, journal);
        assert_eq!(AttemptId::new(&kernel, 7).as_str(), "3f2a9c1e-7");
    }

    #[test]
    fn what_is_no_boot_id_says_so() {
        for text in ["", "abc", "3f2a9c1e0b1c4d5e8f90a1b2c3d4e5fg", "é"] {
            let error = BootId::parse(text).unwrap_err();
            assert!(error.to_string().starts_with("boot id: expected 32 hex digits, found"));
        }
    }
}
