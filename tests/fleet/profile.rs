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
    /// A request or an answer is lost; a request comes twice or late.
    pub(crate) network: u64,
    /// The server is killed, by request.
    pub(crate) server: u64,
    /// The agent is killed, by step; half of these between the record and what follows from it.
    pub(crate) kill: u64,
    /// An effect on host or API server fails.
    pub(crate) effects: u64,
    /// Per node and hour: power cut, wall clock set, disk full for a while, a person who meddles.
    pub(crate) mishaps: u64,
    /// A boot into an update falls back.
    pub(crate) bad_boot: u64,
    /// A host that goes down does not come back by itself.
    pub(crate) dead: u64,
    /// A second update is staged while the first rolls.
    pub(crate) second_update: bool,
}

const CALM: Profile = Profile {
    name: "calm",
    nodes: 20,
    slots: &[1],
    hours: 3,
    network: 0,
    server: 0,
    kill: 0,
    effects: 0,
    mishaps: 0,
    bad_boot: 0,
    dead: 0,
    second_update: false,
};

/// Every kind of fleet.
pub(crate) const ALL: &[Profile] = &[
    CALM,
    Profile {
        name: "bad-network",
        nodes: 40,
        slots: &[2],
        hours: 6,
        network: 80,
        server: 10,
        ..CALM
    },
    Profile {
        name: "crashes",
        nodes: 40,
        slots: &[3],
        hours: 8,
        kill: 15,
        server: 5,
        mishaps: 60,
        ..CALM
    },
    Profile {
        name: "bad-hosts",
        nodes: 40,
        slots: &[3, 1],
        hours: 12,
        effects: 60,
        dead: 20,
        mishaps: 40,
        ..CALM
    },
    Profile { name: "bad-update", nodes: 30, slots: &[2], hours: 6, bad_boot: 1000, ..CALM },
    Profile {
        name: "everything",
        nodes: 300,
        slots: &[8, 2, 1],
        hours: 12,
        network: 20,
        server: 2,
        kill: 4,
        effects: 15,
        mishaps: 20,
        bad_boot: 5,
        dead: 3,
        second_update: true,
    },
];
