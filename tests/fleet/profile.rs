//! What a fleet is like and how much goes wrong in it. Rates are in thousandths.

/// One kind of fleet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    /// Slots of each group; node n is of group n modulo their number.
    pub(crate) slots: &'static [u32],
    /// Hours in which faults come; after that people put right what only they can.
    pub(crate) hours: u64,
    /// Updates, an hour apart: the later ones come while the first still rolls.
    pub(crate) updates: usize,
    /// So many pairs of machines have one id.
    pub(crate) clones: usize,
    /// Reboots only in a window.
    pub(crate) window: bool,

    /// A request or an answer is lost; a request comes twice or late.
    pub(crate) network: u64,
    /// The server is killed, by request; it is away for up to two minutes.
    pub(crate) server: u64,
    /// The server cannot write, by request.
    pub(crate) store: u64,

    /// The agent is killed, by step; half of these between the record and what follows from it.
    pub(crate) kill: u64,
    /// An effect on host or API server fails.
    pub(crate) effects: u64,
    /// A drain is still blocked at its deadline.
    pub(crate) drains: u64,
    /// A reboot that logind accepted does not come, or is abandoned.
    pub(crate) no_reboot: u64,
    /// A shutdown does not write the update.
    pub(crate) finalize: u64,
    /// A boot into an update falls back.
    pub(crate) bad_boot: u64,
    /// A host that goes down comes back after hours.
    pub(crate) slow: u64,
    /// A host that goes down does not come back by itself.
    pub(crate) dead: u64,

    /// Per hour: the API server is away from everybody for some minutes.
    pub(crate) api: u64,
    /// Per node and hour: power cut, wall clock set or not synchronised, disk full for a while, a
    /// person who meddles.
    pub(crate) mishaps: u64,
    /// Per node and hour: its update is withdrawn, and staged again later.
    pub(crate) withdrawn: u64,
    /// Per node and hour: the record on disk is damaged.
    pub(crate) damage: u64,
    /// Per node and hour: a person releases its slot, wrongly.
    pub(crate) robbed: u64,
}

const CALM: Profile = Profile {
    name: "calm",
    nodes: 20,
    slots: &[1],
    hours: 3,
    updates: 1,
    clones: 0,
    window: false,
    network: 0,
    server: 0,
    store: 0,
    kill: 0,
    effects: 0,
    drains: 0,
    no_reboot: 0,
    finalize: 0,
    bad_boot: 0,
    slow: 0,
    dead: 0,
    api: 0,
    mishaps: 0,
    withdrawn: 0,
    damage: 0,
    robbed: 0,
};

/// Every kind of fleet.
pub(crate) const ALL: &[Profile] = &[
    CALM,
    Profile {
        name: "bad-network",
        nodes: 40,
        slots: &[2],
        hours: 6,
        updates: 3,
        network: 80,
        server: 10,
        store: 20,
        ..CALM
    },
    Profile {
        name: "crashes",
        nodes: 40,
        slots: &[3],
        hours: 8,
        updates: 3,
        kill: 15,
        server: 5,
        no_reboot: 50,
        finalize: 50,
        mishaps: 60,
        ..CALM
    },
    Profile {
        name: "bad-hosts",
        nodes: 40,
        slots: &[3, 1],
        hours: 12,
        updates: 2,
        effects: 60,
        drains: 100,
        no_reboot: 100,
        finalize: 60,
        slow: 60,
        dead: 20,
        api: 300,
        mishaps: 40,
        ..CALM
    },
    Profile {
        name: "never-written",
        nodes: 10,
        slots: &[2],
        hours: 4,
        finalize: 1000,
        kill: 5,
        ..CALM
    },
    Profile {
        name: "bad-update",
        nodes: 30,
        slots: &[2],
        hours: 6,
        bad_boot: 1000,
        network: 20,
        server: 5,
        kill: 5,
        ..CALM
    },
    Profile {
        name: "meddlers",
        nodes: 40,
        slots: &[4, 2],
        hours: 8,
        updates: 3,
        mishaps: 100,
        withdrawn: 100,
        damage: 40,
        robbed: 60,
        kill: 5,
        ..CALM
    },
    Profile {
        name: "clones",
        nodes: 30,
        slots: &[3],
        hours: 8,
        updates: 3,
        clones: 4,
        network: 20,
        kill: 5,
        mishaps: 40,
        ..CALM
    },
    Profile {
        name: "windows",
        nodes: 40,
        slots: &[4],
        hours: 12,
        updates: 2,
        window: true,
        mishaps: 100,
        network: 20,
        drains: 50,
        ..CALM
    },
    Profile {
        name: "everything",
        nodes: 300,
        slots: &[12, 6, 3],
        hours: 12,
        updates: 3,
        network: 20,
        server: 2,
        store: 2,
        kill: 4,
        effects: 15,
        drains: 20,
        no_reboot: 20,
        finalize: 10,
        bad_boot: 5,
        slow: 10,
        dead: 3,
        api: 200,
        mishaps: 20,
        withdrawn: 10,
        ..CALM
    },
];

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Network,
    Server,
    Store,
    Kill,
    Effects,
    Drains,
    NoReboot,
    Finalize,
    BadBoot,
    Slow,
    Dead,
    Api,
    Mishaps,
    Withdrawn,
    Damage,
    Robbed,
}

// === impl Profile ===

impl Profile {
    /// How often it comes, in thousandths.
    pub(crate) fn rate(&self, fault: Fault) -> u64 {
        match fault {
            Fault::Network => self.network,
            Fault::Server => self.server,
            Fault::Store => self.store,
            Fault::Kill => self.kill,
            Fault::Effects => self.effects,
            Fault::Drains => self.drains,
            Fault::NoReboot => self.no_reboot,
            Fault::Finalize => self.finalize,
            Fault::BadBoot => self.bad_boot,
            Fault::Slow => self.slow,
            Fault::Dead => self.dead,
            Fault::Api => self.api,
            Fault::Mishaps => self.mishaps,
            Fault::Withdrawn => self.withdrawn,
            Fault::Damage => self.damage,
            Fault::Robbed => self.robbed,
        }
    }
}

// === impl Fault ===

impl Fault {
    /// Every kind.
    pub(crate) const ALL: [Self; 16] = [
        Self::Network,
        Self::Server,
        Self::Store,
        Self::Kill,
        Self::Effects,
        Self::Drains,
        Self::NoReboot,
        Self::Finalize,
        Self::BadBoot,
        Self::Slow,
        Self::Dead,
        Self::Api,
        Self::Mishaps,
        Self::Withdrawn,
        Self::Damage,
        Self::Robbed,
    ];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "request or answer lost, late or twice",
            Self::Server => "slot server killed",
            Self::Store => "slot server cannot write",
            Self::Kill => "agent killed",
            Self::Effects => "effect fails",
            Self::Drains => "drain blocked to its deadline",
            Self::NoReboot => "reboot does not come",
            Self::Finalize => "update not written",
            Self::BadBoot => "update falls back",
            Self::Slow => "host back after hours",
            Self::Dead => "host dead",
            Self::Api => "API server away",
            Self::Mishaps => "mishap of a host or a person",
            Self::Withdrawn => "update withdrawn",
            Self::Damage => "record damaged",
            Self::Robbed => "slot released by a person",
        }
    }
}
