//! Where a host can be hit: how it is brought there without a race, and let go afterwards.

use lockkeeper::lifecycle::Stage;

use crate::fault::Fault;
use crate::host::text;
use crate::station::{Settings, Station};

/// Seconds until a stage is reached; a loaded machine with two cores is the measure.
const REACHED: u64 = 120;

/// A place in the cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// No update is staged; one is afterwards.
    Idle,
    /// A person's hold keeps it.
    Waiting,
    /// Another holds the group's slot.
    Requesting,
    /// A disruption budget lets nobody go.
    Draining,
    /// rpm-ostreed is slow in the transaction that finalizes.
    Rebooting,
    /// Also rebooting: a delay inhibitor keeps logind between `PrepareForShutdown` and the shutdown.
    GoingDown,
    /// The settle time is long.
    Settling,
    /// The API server refuses to lift this Node's cordon.
    Uncordoning,
    /// The coordinator is away for this host.
    Releasing,
    /// The update is withdrawn in mid-drain, and the API server refuses to lift the cordon.
    Yielding,
    /// The update makes the node unwell.
    Stuck,
    /// The update falls back.
    Halted,
}

// === impl Place ===

impl Place {
    /// All of them, in the order of the cycle.
    pub const ALL: [Self; 12] = [
        Self::Idle,
        Self::Waiting,
        Self::Requesting,
        Self::Draining,
        Self::Rebooting,
        Self::GoingDown,
        Self::Settling,
        Self::Uncordoning,
        Self::Releasing,
        Self::Yielding,
        Self::Stuck,
        Self::Halted,
    ];

    /// The stage that it is in.
    pub fn stage(self) -> Stage {
        match self {
            Self::Idle => Stage::Idle,
            Self::Waiting => Stage::Waiting,
            Self::Requesting => Stage::Requesting,
            Self::Draining => Stage::Draining,
            Self::Rebooting | Self::GoingDown => Stage::Rebooting,
            Self::Settling => Stage::Settling,
            Self::Uncordoning => Stage::Uncordoning,
            Self::Releasing => Stage::Releasing,
            Self::Yielding => Stage::Yielding,
            Self::Stuck => Stage::Stuck,
            Self::Halted => Stage::Halted,
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        if self == Self::GoingDown { "going-down" } else { self.stage().name() }
    }

    /// How it is kept there, for the report.
    pub fn how(self) -> &'static str {
        match self {
            Self::Idle => "no update is staged; one is afterwards",
            Self::Waiting => "a person's hold",
            Self::Requesting => "another holds the slot",
            Self::Draining => "a disruption budget lets nobody go",
            Self::Rebooting => "rpm-ostreed is slow in the transaction that finalizes",
            Self::GoingDown => "a delay inhibitor, between PrepareForShutdown and the shutdown",
            Self::Settling => "a long settle time",
            Self::Uncordoning => "the API server refuses to lift the cordon",
            Self::Releasing => "the coordinator is away for this host",
            Self::Yielding => {
                "the update is withdrawn in mid-drain, and the API server refuses to lift the cordon"
            }
            Self::Stuck => "the update makes the node unwell",
            Self::Halted => "the update falls back",
        }
    }

    /// How an attempt that was hit here by this may end. The first is the usual one.
    pub fn ends(self, fault: Fault) -> &'static [&'static str] {
        match (self, fault) {
            (Self::Waiting | Self::Requesting | Self::Draining | Self::Yielding, Fault::Cut) => {
                &["interrupted"]
            }
            (Self::Rebooting | Self::GoingDown, Fault::Cut) => &["not-finalized"],
            (Self::Rebooting, _) if self.is_undone_after(fault) => &["reboot-never-came"],
            (Self::GoingDown, _) if self.loses_shutdown_by(fault) => &["reboot-never-came"],
            (Self::Yielding, _) => &["withdrawn"],
            (Self::Halted, _) => &["fell-back"],
            _ => &["updated"],
        }
    }

    /// Whether the agent makes the reboot undone: one that starts and finds no shutdown under way
    /// does, and one whose transaction ended without a word.
    fn is_undone_after(self, fault: Fault) -> bool {
        let lost = matches!(fault, Fault::Kill | Fault::Restart | Fault::Daemon | Fault::Bus);
        self == Self::Rebooting && lost
    }

    /// Whether the shutdown is forgotten: it is in logind's memory alone, and goes with it.
    fn loses_shutdown_by(self, fault: Fault) -> bool {
        self == Self::GoingDown && matches!(fault, Fault::Logind | Fault::Bus)
    }

    /// Brings the host there. It stays until `let_go`.
    pub fn bring(self, station: &Station<'_>, version: &str) {
        let host = station.host;
        match self {
            Self::Idle => {}
            Self::Waiting => {
                host.sh("lockkeeper hold the sweep");
                host.stage(version, &[]);
                host.waits_for("held", REACHED);
            }
            Self::Requesting => {
                station.gate.take_slot(&host.name);
                host.stage(version, &[]);
                host.waits_for("slot-denied", REACHED);
            }
            Self::Draining => {
                station.forbid_disruption();
                host.stage(version, &[]);
                station.is_cordoned(REACHED);
            }
            Self::Rebooting => {
                host.sh("/usr/lib/standin/standin fault set slow-transaction=600");
                host.stage(version, &[]);
                host.waits_for("shutdown-pending", REACHED);
            }
            Self::GoingDown => {
                station.delay_shutdowns();
                host.stage(version, &[]);
                host.waits_for("shutting-down", REACHED);
            }
            Self::Settling => {
                station.configure(&Settings { settle_time: "1h", ..Settings::default() });
                host.stage(version, &[]);
                host.waits_for("settle-time", REACHED);
            }
            Self::Uncordoning => {
                station.keep_cordon(true);
                host.stage(version, &[]);
                host.comes_to("uncordoning", REACHED);
                host.waits_for("api-unreachable", REACHED);
            }
            Self::Releasing => {
                station.configure(&Settings { settle_time: "1h", ..Settings::default() });
                host.stage(version, &[]);
                host.waits_for("settle-time", REACHED);
                station.gate.shut();
                station.configure(&Settings::default());
                host.waits_for("slot-failed", REACHED);
            }
            Self::Yielding => {
                station.forbid_disruption();
                station.keep_cordon(true);
                host.stage(version, &[]);
                station.is_cordoned(REACHED);
                host.lab("unstage", &[]);
                host.waits_for("api-unreachable", REACHED);
            }
            Self::Stuck => {
                station.configure(&Settings { settle_deadline: "2s", ..Settings::default() });
                host.stage(version, &["--fault", "unhealthy"]);
                host.comes_to("stuck", REACHED);
            }
            Self::Halted => {
                host.stage(version, &["--fault", "boot-fails"]);
                host.waits_for("halted", REACHED);
            }
        }
        let state = host.status().map(|status| text(&status["state"]).to_owned());
        assert_eq!(state.as_deref(), Some(self.stage().name()), "{} is there", host.name);
    }

    /// Takes away what kept it there.
    pub fn let_go(self, station: &Station<'_>, fault: Fault, version: &str) {
        let host = station.host;
        match self {
            Self::Idle => {
                host.waits_for("no-update", 60);
                host.stage(version, &[]);
            }
            Self::Waiting => drop(host.sh("lockkeeper resume")),
            Self::Requesting => station.gate.give_slot(&host.name),
            Self::Draining => station.allow_disruption(),
            Self::Rebooting => {
                if self.is_undone_after(fault) {
                    host.waits_for("backing-off", REACHED);
                }
                host.sh("/usr/lib/standin/standin fault clear");
            }
            // After a power cut there is none.
            Self::GoingDown => {
                station.delay_no_more();
                if self.loses_shutdown_by(fault) {
                    station.restart_kubelet();
                }
            }
            Self::Settling => station.configure(&Settings::default()),
            Self::Uncordoning => station.keep_cordon(false),
            Self::Releasing => station.gate.open(),
            Self::Yielding => {
                station.keep_cordon(false);
                station.allow_disruption();
            }
            Self::Stuck => drop(host.sh("/usr/lib/standin/standin fault clear")),
            Self::Halted => {
                host.waits_for("halted", 60);
                assert_eq!(station.holders().len(), 1, "the slot is kept until a person's word");
                host.sh("lockkeeper resume");
            }
        }
        if matches!(self, Self::Requesting | Self::Uncordoning | Self::Releasing | Self::Yielding) {
            // Without the pause that failures and denials have brought.
            host.exec(&["lockkeeper", "retry"]);
        }
    }
}
