//! Images made up from a version: the same version always gives the same digest and commit.

use anyhow::{Result, ensure};

use crate::paths::OSNAME;
use crate::state::{Deployment, Layered, Origin};

/// What kind of image to make up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// A container image, or a branch of a remote.
    pub(crate) container: bool,
    /// With a package on top.
    pub(crate) layered: bool,
}

/// Builds a deployment of `version`; `taken` are those that it must not clash with.
pub(crate) fn deployment(version: &str, kind: Kind, taken: &[Deployment]) -> Result<Deployment> {
    ensure!(
        !version.is_empty()
            && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)),
        "version {version:?}: expected letters, digits, '.', '-' and '_'"
    );
    let base = hex64(&format!("commit of {version}"));
    let (checksum, layered) = if kind.layered {
        let packages = vec!["htop".to_owned()];
        let checksum = hex64(&format!("commit of {version} with {packages:?}"));
        (checksum, Some(Layered { base_checksum: base, packages }))
    } else {
        (base, None)
    };
    let origin = if kind.container {
        Origin::Container {
            reference: "ostree-image-signed:docker://quay.example/fedora/fedora-coreos:stable"
                .to_owned(),
            digest: format!("sha256:{}", hex64(&format!("image of {version}"))),
        }
    } else {
        Origin::Branch { refspec: "fedora:fedora/x86_64/coreos/stable".to_owned() }
    };
    let serial = taken
        .iter()
        .filter(|other| other.checksum == checksum)
        .map(|other| other.serial + 1)
        .max()
        .unwrap_or(0);
    Ok(Deployment {
        osname: OSNAME.to_owned(),
        checksum,
        serial,
        version: version.to_owned(),
        timestamp: 1_760_000_000 + mix(version.as_bytes(), 7) % 30_000_000,
        origin,
        layered,
        pinned: false,
    })
}

/// 64 hexadecimal digits that depend on `text` only: names, no cryptography.
pub(crate) fn hex64(text: &str) -> String {
    (1..=4).map(|seed| format!("{:016x}", mix(text.as_bytes(), seed))).collect()
}

/// FNV-1a with a seed and the finish of splitmix64.
fn mix(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn same_version_gives_same_names_and_others_differ() {
        let kind = Kind { container: true, layered: false };
        let one = deployment("40.2", kind, &[]).unwrap();
        assert_eq!(one, deployment("40.2", kind, &[]).unwrap());
        let other = deployment("40.3", kind, &[]).unwrap();
        assert_ne!(one.checksum, other.checksum);
        assert_ne!(one.reference(), other.reference());
        assert_eq!(one.reference().len(), "sha256:".len() + 64);
        assert_eq!(one.checksum.len(), 64);
    }

    #[test]
    fn a_second_deployment_of_the_same_commit_has_the_next_serial() {
        let kind = Kind { container: true, layered: false };
        let one = deployment("40.2", kind, &[]).unwrap();
        assert_eq!(deployment("40.2", kind, &[one]).unwrap().serial, 1);
    }

    #[test]
    fn layered_differs_from_its_base() {
        let plain = deployment("40.2", Kind { container: false, layered: false }, &[]).unwrap();
        let layered = deployment("40.2", Kind { container: false, layered: true }, &[]).unwrap();
        assert_ne!(layered.checksum, plain.checksum);
        assert_eq!(layered.reference(), plain.checksum);
    }
}
