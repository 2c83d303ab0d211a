//! What hits.

use crate::lab::{lab, until};
use crate::station::Station;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL for the agent; systemd starts it again.
    Kill,
    /// The host loses its power, and gets it back.
    Cut,
    /// The agent is stopped in order and started.
    Restart,
    /// The host's message bus is restarted.
    Bus,
    /// SIGKILL for rpm-ostreed; it is started again.
    Daemon,
    /// logind is restarted.
    Logind,
    /// The kubelet is restarted.
    Kubelet,
    /// SIGKILL for the API server; it is started again. Hits every host.
    Api,
    /// SIGKILL for the coordinator; it is started again. Hits every host.
    Coordinator,
}

// === impl Fault ===

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::Cut,
        Self::Restart,
        Self::Bus,
        Self::Daemon,
        Self::Logind,
        Self::Kubelet,
        Self::Api,
        Self::Coordinator,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Cut => "cut",
            Self::Restart => "restart",
            Self::Bus => "dbus",
            Self::Daemon => "rpm-ostreed",
            Self::Logind => "logind",
            Self::Kubelet => "kubelet",
            Self::Api => "apiserver",
            Self::Coordinator => "coordinator",
        }
    }

    /// Whether it is a server of all hosts that it hits.
    pub fn hits_all(self) -> bool {
        matches!(self, Self::Api | Self::Coordinator)
    }

    /// Hits this host; returns once what was hit is back.
    pub fn hit_host(self, station: &Station<'_>) {
        let host = station.host;
        match self {
            Self::Kill => {
                let pid = || host.sh("systemctl show --property=MainPID --value lockkeeper");
                let before = pid();
                host.lab("agent", &["kill"]);
                // By systemd, not by us.
                until(60, "systemd starts the agent again", || {
                    let now = pid();
                    (now != before && now.trim() != "0").then_some(())
                });
            }
            Self::Cut => {
                host.lab("cut", &[]);
                lab(&["boot", &host.name]).good();
            }
            Self::Restart => host.lab("agent", &["restart"]),
            // logind of systemd 257 lives on without a bus and is not started anew for the next one:
            // who restarts the bus must restart it, too.
            Self::Bus => drop(host.sh("systemctl restart dbus systemd-logind")),
            Self::Daemon => drop(host.sh("systemctl start rpm-ostreed
                systemctl kill --signal=KILL rpm-ostreed
                systemctl reset-failed rpm-ostreed || true
                systemctl start rpm-ostreed")),
            Self::Logind => drop(host.sh("systemctl restart systemd-logind")),
            Self::Kubelet => drop(host.sh("systemctl restart kubelet")),
            Self::Api | Self::Coordinator => unreachable!("it hits all"),
        }
        until(60, "the agent answers", || host.status());
    }

    /// Hits a server of all hosts; returns once it answers again.
    pub fn hit_all(self, folder: &std::path::Path) {
        let component = self.name();
        let record = folder.join(format!("run/{component}.pid"));
        let record = std::fs::read_to_string(record).expect("its process id");
        let pid = record.split(' ').next().expect("an id");
        let killed = std::process::Command::new("kill").args(["-KILL", pid]).status();
        assert!(killed.is_ok_and(|status| status.success()), "kill -KILL {pid}");
        until(20, "it is gone", || {
            // Its sockets are closed when the last of its threads has ended.
            let process = std::path::Path::new("/proc").join(pid);
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
            (stat.is_empty() || (threads < 2 && stat.contains(") Z "))).then_some(())
        });
        lab(&["start", component]).good();
    }
}
