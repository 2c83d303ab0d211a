//! Where everything lies, below one root, so that a test can have a whole host in a folder.

use std::path::{Path, PathBuf};

/// The state root that the stand-in plays.
pub(crate) const OSNAME: &str = "fedora-coreos";

/// All paths of one host.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    root: PathBuf,
}

impl Paths {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root itself, `/` on a host.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The folder whose attributes libostree changes to tell others of a change.
    pub(crate) fn deploy(&self) -> PathBuf {
        self.at("ostree/deploy")
    }

    /// The deployments that survive a reboot, in boot order.
    pub(crate) fn deployments(&self) -> PathBuf {
        self.deploy().join(OSNAME).join("deployments.json")
    }

    /// The lock of the system root, held by a transaction.
    pub(crate) fn lock(&self) -> PathBuf {
        self.at("ostree/lock")
    }

    /// The staged deployment; gone after a reboot, as everything below /run.
    pub(crate) fn staged(&self) -> PathBuf {
        self.at("run/ostree/staged-deployment")
    }

    /// The lock file of older versions, which the shutdown job still honours.
    pub(crate) fn legacy_lock(&self) -> PathBuf {
        self.at("run/ostree/staged-deployment-locked")
    }

    /// Says which deployment this boot runs.
    pub(crate) fn booted(&self) -> PathBuf {
        self.at("run/ostree-booted")
    }

    pub(crate) fn boot(&self) -> PathBuf {
        self.at("boot")
    }

    /// Why the last finalization failed.
    pub(crate) fn failure_stamp(&self) -> PathBuf {
        self.at("boot/ostree/finalize-failure.stamp")
    }

    pub(crate) fn transaction_socket(&self) -> PathBuf {
        self.at("run/rpm-ostree-transaction.sock")
    }

    pub(crate) fn daemon_config(&self) -> PathBuf {
        self.at("etc/rpm-ostreed.conf")
    }

    pub(crate) fn faults(&self) -> PathBuf {
        self.at("var/lib/standin/faults.json")
    }

    /// Present while the booted deployment makes the node unwell.
    pub(crate) fn unhealthy(&self) -> PathBuf {
        self.at("run/standin/unhealthy")
    }

    /// Present while /boot is full (the mount itself may be denied to a test).
    pub(crate) fn boot_full(&self) -> PathBuf {
        self.at("run/standin/boot-full")
    }

    pub(crate) fn os_release(&self) -> PathBuf {
        self.at("usr/lib/os-release")
    }

    /// The os-release of the real system, before the first boot changed it.
    pub(crate) fn os_release_base(&self) -> PathBuf {
        self.at("usr/lib/standin/os-release.base")
    }

    pub(crate) fn etc_os_release(&self) -> PathBuf {
        self.at("etc/os-release")
    }

    pub(crate) fn boot_id(&self) -> PathBuf {
        self.at("proc/sys/kernel/random/boot_id")
    }

    /// Set before a soft reboot: the deployment it will run.
    pub(crate) fn next_root(&self) -> PathBuf {
        self.at("run/ostree/nextroot-booted")
    }

    pub(crate) fn journal_socket(&self) -> PathBuf {
        self.at("run/systemd/journal/socket")
    }
}
