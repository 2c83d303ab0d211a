//! Who may be down: the decision of one semaphore. Pure.
//!
//! One group's holders are one object of the store, so that every change is one compare-and-swap.
//! The number of slots is no part of it: it is the configuration's and counts from the next request
//! on. Fewer slots than holders evict nobody; there is just no new holder until enough have left.
//!
//! # One id, two machines
//!
//! FleetLock knows a holder by its id alone, and cloned machines share theirs. Our own agents send
//! their attempt and boot id along; where both sides are known:
//!
//! | asks | same boot as the holder's | another boot |
//! |---|---|---|
//! | lock | theirs; a new attempt takes over (the release of the last one was lost) | refused by name: a boot that ended never asks again, so this is another machine |
//! | release | theirs | theirs, if it names the holder's attempt or an earlier one of its boot (the usual release after the reboot) or none and the holder's node (an agent without a record frees the stale slot of its id); with another attempt, or without one from another node (a clone's first start), it is another machine's and frees nothing |
//!
//! Where one side is not known (Zincati sends neither), the id decides alone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fleetlock::{Operation, is_node_name};
use crate::model::BootId;

#[cfg(test)]
mod tests;

/// `XXXXXXXX-N`, and room for what a later agent may make of it.
const ATTEMPT_LENGTH_MAX: usize = 64;

/// So many earlier attempts of a holder are kept: those of one boot that may still have a request on
/// its way.
const EARLIER_MAX: usize = 8;

/// An id up to this length is shown whole beside the node's name.
const ID_SHOWN_WHOLE: usize = 12;
/// So many characters are shown of one that is longer.
const ID_START: usize = 8;

/// Who holds what, of all groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// By the group's name. A group that once had a holder stays, so that its last release is
    /// understood even after it has left the configuration.
    pub groups: BTreeMap<String, Group>,
}

/// One group's holders.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Group {
    /// Oldest first; no id twice.
    pub holders: Vec<Holder>,
}

/// One holder of a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The node's id.
    pub id: String,
    /// When it got the slot.
    pub since: Timestamp,
    /// For which attempt and boot.
    #[serde(flatten)]
    pub claim: Claim,
    /// Attempts of the same boot that asked before the one in `claim`, at most eight. A
    /// request that was held up on its way arrives after that of a newer attempt, which must still
    /// be able to release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

/// What our own agents tell beside the protocol; both `None` for other clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// The attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The boot in which it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
    /// The node's name, for people. It decides one thing: who releases from another boot and names no
    /// attempt is another machine, if its name is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What the configuration says about one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPolicy {
    /// How many may hold a slot at once.
    pub slots: u32,
}

/// Groups of the configuration.
pub type Policies = BTreeMap<String, GroupPolicy>;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// In which group.
    pub group: String,
    /// The node's id.
    pub id: String,
    /// Lock or unlock.
    pub operation: Operation,
    /// What it tells about itself.
    pub claim: Claim,
}

/// How a slot came to be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// It was free.
    New,
    /// It was held by this id already.
    Confirmed,
    /// It was held by this id for an older attempt of the same boot.
    TakenOver,
}

/// The verdict on one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Lock: the id holds a slot.
    Granted {
        /// How it came to it.
        grant: Grant,
        /// Since when.
        since: Timestamp,
    },
    /// Lock: no slot is free.
    Full {
        /// Slots of the group.
        slots: u32,
        /// Who holds them, oldest first.
        holders: Vec<Holder>,
    },
    /// Lock: the id is held from another boot.
    OtherAttempt {
        /// The one that holds it.
        holder: Holder,
    },
    /// Unlock: it held a slot until now.
    Released {
        /// What it held.
        holder: Holder,
    },
    /// Unlock: it held none. As good as released.
    NotHeld,
    /// Unlock: the id is held by another machine, and stays so. As good as released for who asked.
    NotTheirs {
        /// The one that holds it.
        holder: Holder,
    },
    /// There is no such group.
    UnknownGroup,
}

/// Why a state is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("group {group:?} has the holder {id:?} twice")]
pub struct HeldTwice {
    /// The group.
    pub group: String,
    /// The id.
    pub id: String,
}

/// Decides one request over the holders of its group; the second is the group as it is then.
pub fn decide(group: &Group, policy: GroupPolicy, ask: &Ask, now: Timestamp) -> (Decision, Group) {
    match ask.operation {
        Operation::PreReboot => lock(group, policy, ask, now),
        Operation::SteadyState => unlock(group, ask),
    }
}

// === impl Slots ===

impl Slots {
    /// Decides one request and applies what it changes; `true` if it changed something.
    ///
    /// A group that is not configured grants nothing. Its holders from earlier can still release.
    pub fn decide(&mut self, policies: &Policies, ask: &Ask, now: Timestamp) -> (Decision, bool) {
        let empty = Group::default();
        let (group, policy) = match (self.groups.get(&ask.group), policies.get(&ask.group)) {
            (group, Some(policy)) => (group.unwrap_or(&empty), *policy),
            (Some(group), None) if ask.operation == Operation::SteadyState => {
                (group, GroupPolicy { slots: 0 })
            }
            (_, None) => return (Decision::UnknownGroup, false),
        };
        let (decision, next) = decide(group, policy, ask, now);
        let changed = next != *group;
        if changed {
            self.groups.insert(ask.group.clone(), next);
        }
        (decision, changed)
    }

    /// Holds a state that was read against what must be true of every state.
    ///
    /// # Errors
    /// A group has a holder twice.
    pub fn check(&self) -> Result<(), HeldTwice> {
        for (name, group) in &self.groups {
            let mut seen = BTreeSet::new();
            if let Some(twice) = group.holders.iter().find(|h| !seen.insert(&h.id)) {
                return Err(HeldTwice { group: name.clone(), id: twice.id.clone() });
            }
        }
        Ok(())
    }
}

// === impl Holder ===

impl Holder {
    /// Another attempt takes over: the one that holds is an earlier one from here on.
    fn outdate(&mut self) {
        let Some(attempt) = self.claim.attempt.take() else { return };
        self.earlier.retain(|earlier| *earlier != attempt);
        self.earlier.push(attempt);
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.remove(0);
        }
    }

    /// For people: the node's name and the beginning of its id; the id alone if that is all.
    pub fn name(&self) -> String {
        let id = &self.id;
        match &self.claim.node {
            Some(node) if node != id && id.chars().count() > ID_SHOWN_WHOLE => {
                let start: String = id.chars().take(ID_START).collect();
                format!("{node} ({start}…)")
            }
            Some(node) if node != id => format!("{node} ({id})"),
            Some(_) | None => id.clone(),
        }
    }
}

// === impl Claim ===

impl Claim {
    /// Reads the three headers.
    ///
    /// # Errors
    /// Names the header and what was expected.
    pub fn read(
        attempt: Option<&str>,
        boot: Option<&str>,
        node: Option<&str>,
    ) -> Result<Self, String> {
        let attempt = attempt.map(str::to_owned);
        let fits = |text: &String| {
            (1..=ATTEMPT_LENGTH_MAX).contains(&text.len())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if attempt.as_ref().is_some_and(|text| !fits(text)) {
            return Err(format!(
                "{}: expected 1 to {ATTEMPT_LENGTH_MAX} of [A-Za-z0-9._-]",
                crate::fleetlock::ATTEMPT_HEADER
            ));
        }
        let boot = boot.map(BootId::parse).transpose().map_err(|_| {
            format!("{}: expected a boot id, 32 hex digits", crate::fleetlock::BOOT_HEADER)
        })?;
        if node.is_some_and(|name| !is_node_name(name)) {
            return Err(format!(
                "{}: expected the name of a node, 1 to 253 of visible ASCII",
                crate::fleetlock::NODE_HEADER
            ));
        }
        Ok(Self { attempt, boot, node: node.map(str::to_owned) })
    }

    /// Takes over what the other one knows and this one does not.
    fn complete(&mut self, other: &Self) {
        if other.attempt.is_some() {
            self.attempt.clone_from(&other.attempt);
        }
        if other.boot.is_some() {
            self.boot.clone_from(&other.boot);
        }
        if other.node.is_some() {
            self.node.clone_from(&other.node);
        }
    }
}

fn lock(group: &Group, policy: GroupPolicy, ask: &Ask, now: Timestamp) -> (Decision, Group) {
    let mut next = group.clone();
    let Some(held) = next.holders.iter_mut().find(|h| h.id == ask.id) else {
        if group.holders.len() >= usize::try_from(policy.slots).unwrap_or(usize::MAX) {
            let holders = group.holders.clone();
            return (Decision::Full { slots: policy.slots, holders }, next);
        }
        let (id, claim) = (ask.id.clone(), ask.claim.clone());
        next.holders.push(Holder { id, since: now, claim, earlier: Vec::new() });
        return (Decision::Granted { grant: Grant::New, since: now }, next);
    };
    if differ(held.claim.boot.as_ref(), ask.claim.boot.as_ref()) {
        return (Decision::OtherAttempt { holder: held.clone() }, next);
    }
    let taken_over = differ(held.claim.attempt.as_ref(), ask.claim.attempt.as_ref());
    if taken_over {
        held.outdate();
    }
    // Since stays: the slot has been away from the others all the time.
    held.claim.complete(&ask.claim);
    let since = held.since;
    let grant = if taken_over { Grant::TakenOver } else { Grant::Confirmed };
    (Decision::Granted { grant, since }, next)
}

fn unlock(group: &Group, ask: &Ask) -> (Decision, Group) {
    let Some(held) = group.holders.iter().find(|h| h.id == ask.id) else {
        return (Decision::NotHeld, group.clone());
    };
    let other_attempt = match &ask.claim.attempt {
        Some(attempt) => {
            differ(held.claim.attempt.as_ref(), Some(attempt)) && !held.earlier.contains(attempt)
        }
        None => differ(held.claim.node.as_ref(), ask.claim.node.as_ref()),
    };
    let other_boot = differ(held.claim.boot.as_ref(), ask.claim.boot.as_ref());
    if other_boot && other_attempt {
        return (Decision::NotTheirs { holder: held.clone() }, group.clone());
    }
    let holders = group.holders.iter().filter(|h| h.id != ask.id).cloned().collect();
    (Decision::Released { holder: held.clone() }, Group { holders })
}

/// Both are known and not the same.
fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}
