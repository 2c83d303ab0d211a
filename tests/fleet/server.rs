//! The slot server: the real decisions, over a store that survives.

use lockkeeper::coordinator::slots::{Ask, Decision, GroupPolicy, Policies, Slots};

use crate::broken::Broken;
use crate::profile::Profile;

/// The coordinator.
#[derive(Debug)]
pub(crate) struct Server {
    policies: Policies,
    /// What is on disk: an answer goes out only after it is there.
    pub(crate) kept: Slots,
    /// Until when it is down, milliseconds of the world.
    pub(crate) down_until: u64,
    broken: Broken,
}

// === impl Server ===

impl Server {
    pub(crate) fn new(profile: &Profile, broken: Broken) -> Self {
        let groups = profile.slots.iter().enumerate();
        let policies = groups.map(|(n, slots)| (group(n), GroupPolicy { slots: *slots })).collect();
        Self { policies, kept: Slots::default(), down_until: 0, broken }
    }

    /// Decides and writes.
    pub(crate) fn decide(&mut self, ask: &Ask, now: jiff::Timestamp) -> Decision {
        self.kept.decide(&self.policies, ask, now).0
    }

    /// Killed and started again: what it keeps is what it wrote.
    pub(crate) fn crash(&mut self, until: u64) {
        self.down_until = until;
        match self.broken {
            Broken::ServerForgets => self.kept = Slots::default(),
            Broken::ServerGrantsOneMore => {
                self.policies.values_mut().for_each(|policy| policy.slots += 1);
            }
            _ => {}
        }
    }

    /// The ids that hold a slot of this group.
    pub(crate) fn holders(&self, group: &str) -> Vec<String> {
        let group = self.kept.groups.get(group);
        group.iter().flat_map(|group| &group.holders).map(|holder| holder.id.clone()).collect()
    }

    /// Whether this id holds a slot.
    pub(crate) fn holds(&self, group: &str, id: &str) -> bool {
        let group = self.kept.groups.get(group);
        group.is_some_and(|group| group.holders.iter().any(|holder| holder.id == id))
    }
}

/// The name of group number n.
pub(crate) fn group(n: usize) -> String {
    format!("g{n}")
}
