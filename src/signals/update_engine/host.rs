//! What a Flatcar host's files say: which system runs, on which partition, and whether one waits.

use std::path::Path;

use super::Trouble;
use super::status::known_version;
use crate::config::file::read_bounded;
use crate::signals::bus::{below, one_line};

/// Where the running system says what it is. The first is part of the partition that booted; the
/// second usually links to it, and may be an older copy where somebody replaced the link.
const OS_RELEASE: [&str; 2] = ["/usr/lib/os-release", "/etc/os-release"];

/// The kernel's command line says which partition booted.
const COMMAND_LINE: &str = "/proc/cmdline";

/// The daemon makes this file when an update is complete and removes it when that is taken back. It
/// lies in memory, so that a boot removes it too.
const MARK: &str = "/run/update_engine_autoupdate_completed";

/// Longest file that is read, in bytes. The kernel takes 4 KiB of a command line at most, and an
/// os-release has one.
const FILE_MAX: u64 = 64 << 10;

/// Keys of the command line that name the partition of /usr.
const USR_KEYS: [&str; 3] = ["usr", "mount.usr", "verity.usr"];

/// One of the two places for a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Partition {
    /// USR-A.
    A,
    /// USR-B.
    B,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Booted {
    /// `VERSION` of its os-release.
    pub(super) version: String,
    /// `None`: it does not run from one of the two partitions.
    pub(super) partition: Option<Partition>,
}

// === impl Partition ===

impl Partition {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "USR-A",
            Self::B => "USR-B",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its unique id, the same on every disk: Flatcar's disk layout fixes both.
    fn uuid(self) -> &'static str {
        match self {
            Self::A => "7130c94a-213a-4e5a-8e26-6cce9662f132",
            Self::B => "e03dd35c-7c2d-4a47-b3fe-27f15780a57c",
        }
    }
}

// === impl Booted ===

impl Booted {
    /// Reads it below the host's root. That no partition can be told is no error.
    ///
    /// # Errors
    /// No os-release says a version.
    pub(super) fn read(root: &Path) -> Result<Self, Trouble> {
        let mut first = None;
        for path in OS_RELEASE {
            let why = match read_bounded(&below(root, path), FILE_MAX) {
                Ok(bytes) => match version(&String::from_utf8_lossy(&bytes)) {
                    Some(version) => {
                        let line = read_bounded(&below(root, COMMAND_LINE), FILE_MAX);
                        let line = line.unwrap_or_default();
                        let partition = partition(&String::from_utf8_lossy(&line));
                        return Ok(Self { version, partition });
                    }
                    None => "found no VERSION".to_owned(),
                },
                Err(error) => one_line(&error),
            };
            first.get_or_insert(Trouble::Booted { path: path.to_owned(), why });
        }
        Err(first.unwrap_or_else(|| Trouble::Booted {
            path: OS_RELEASE[0].to_owned(),
            why: "found nothing".to_owned(),
        }))
    }
}

/// Whether an update is complete, by the word of a daemon that may not run any more.
pub(super) fn update_is_marked(root: &Path) -> bool {
    below(root, MARK).symlink_metadata().is_ok()
}

/// `VERSION` of an os-release, in quotes or not; the last one counts, as for a shell.
fn version(os_release: &str) -> Option<String> {
    let mut lines = os_release.lines().filter_map(|line| line.trim().split_once('='));
    let (_, value) = lines.rfind(|(key, _)| *key == "VERSION")?;
    known_version(value.trim().trim_matches(['"', '\'']))
}

/// The partition that a command line names; `None`: none, another one, or two.
fn partition(command_line: &str) -> Option<Partition> {
    let mut named = command_line.split_ascii_whitespace().filter_map(|word| {
        let (key, value) = word.trim_matches('"').split_once('=')?;
        let uuid = value.strip_prefix("PARTUUID=")?;
        USR_KEYS.contains(&key).then(|| {
            let is = |partition: &Partition| partition.uuid().eq_ignore_ascii_case(uuid);
            [Partition::A, Partition::B].into_iter().find(is)
        })
    });
    let first = named.next()??;
    named.all(|next| next == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    const A: &str = "7130c94a-213a-4e5a-8e26-6cce9662f132";
    const B: &str = "e03dd35c-7c2d-4a47-b3fe-27f15780a57c";

    /// Newer systems quote what older ones did not.
    #[test]
    fn the_version_is_read_with_and_without_quotes() {
        for (text, expected) in [
            ("NAME=\"Flatcar\"\nVERSION=4230.2.0\nVERSION_ID=1\n", Some("4230.2.0")),
            ("VERSION=\"4230.2.0\"", Some("4230.2.0")),
            ("VERSION='4230.2.0'\r\n", Some("4230.2.0")),
            ("  VERSION=\"4230.2.0+nightly-20260101\"  ", Some("4230.2.0+nightly-20260101")),
            ("VERSION=\"12 (bookworm)\"", Some("12 (bookworm)")),
            ("VERSION=1\nVERSION=2", Some("2")),
            ("#VERSION=1\nVERSION_ID=2\nXVERSION=3\nVERSION", None),
            ("VERSION=", None),
            ("VERSION=\"\"", None),
            ("VERSION=\"", None),
            ("VERSION=0.0.0", None),
            ("VERSION=unknown", None),
            ("VERSION=\"1\u{1b}[2J\"", None),
            ("", None),
        ] {
            assert_eq!(version(text).as_deref(), expected, "{text:?}");
        }
        assert_eq!(version(&format!("VERSION={}", "1".repeat(129))), None);
    }

    #[test]
    fn the_partition_is_that_of_the_command_line() {
        for (text, expected) in [
            (format!("rootflags=rw mount.usrflags=ro mount.usr=PARTUUID={A} quiet"), Some("USR-A")),
            (format!("usr=PARTUUID={B}"), Some("USR-B")),
            (format!("mount.usr=/dev/mapper/usr verity.usr=PARTUUID={B}\n"), Some("USR-B")),
            (format!("usr=PARTUUID={A} verity.usr=PARTUUID={A}"), Some("USR-A")),
            (format!("verity.usr=PARTUUID={}", B.to_uppercase()), Some("USR-B")),
            (format!("\"mount.usr=PARTUUID={A}\""), Some("USR-A")),
            (format!("usr=PARTUUID={A} verity.usr=PARTUUID={B}"), None),
            (format!("usr=PARTUUID={A} verity.usr=PARTUUID=0{B}"), None),
            ("usr=PARTUUID=".to_owned(), None),
            (format!("root=PARTUUID={A} xusr=PARTUUID={B} usr={B}"), None),
            ("root=/dev/sda9 usr".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(partition(&text).map(Partition::name), expected, "{text:?}");
        }
        assert_eq!(Partition::A.other(), Partition::B);
        assert_eq!(Partition::B.other(), Partition::A);
    }

    #[test]
    fn what_runs_is_the_word_of_its_own_partition() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || Booted::read(root.path()).map(|booted| (booted.version, booted.partition));
        let error = one_line(&read().unwrap_err());
        assert!(error.starts_with("/usr/lib/os-release: ") && error.contains("VERSION"), "{error}");
        write("etc/os-release", "VERSION=1");
        assert_eq!(read().unwrap(), ("1".to_owned(), None));
        write("usr/lib/os-release", "NAME=x");
        assert_eq!(read().unwrap().0, "1");
        write("usr/lib/os-release", "VERSION=2");
        write("proc/cmdline", &format!("usr=PARTUUID={A}"));
        assert_eq!(read().unwrap(), ("2".to_owned(), Some(Partition::A)));
        // Longer than any os-release, and what is no file at all.
        write("usr/lib/os-release", &format!("VERSION=3\n{}", "#".repeat(1 << 17)));
        assert_eq!(read().unwrap().0, "1");
        fs::remove_file(root.path().join("etc/os-release")).unwrap();
        fs::create_dir(root.path().join("etc/os-release")).unwrap();
        let error = one_line(&read().unwrap_err());
        assert!(error.contains("more than 65536 bytes"), "{error}");
    }
}
