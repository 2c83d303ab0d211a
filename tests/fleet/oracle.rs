//! What must be true, by what is true of the world and not by what an agent takes for it.

use std::time::Duration;

use lockkeeper::coordinator::slots::Decision;
use lockkeeper::lifecycle::{Stage, Waiting};

use crate::world::World;

impl World {
    /// Whether this machine holds a slot; a clone of it may hold one under the same id.
    pub(crate) fn holds(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let holder = self.server.holder(&node.group, &node.id);
        holder.is_some_and(|holder| holder.claim.node.as_ref() == Some(&node.name))
    }

    /// After every event of a node.
    pub(crate) fn check(&mut self, at: usize, was_down: bool) {
        let node = &self.nodes[at];
        if node.person_cordoned && !node.unschedulable {
            self.breaks(at, "a person's cordon was lifted (promise 3)");
        } else if node.is_down() && !self.holds(at) {
            self.breaks(at, "is down by our doing without a slot (promise 1)");
        } else if node.is_down() && !was_down {
            self.check_down(at);
        }
        self.check_waiting(at);
    }

    /// No more nodes of a group are drained or down by our doing than it has slots.
    fn check_down(&mut self, at: usize) {
        let of = &self.nodes[at].group;
        let down = self.nodes.iter().filter(|node| node.group == *of && node.is_down()).count();
        let slots = self.profile.slots[at % self.profile.slots.len()];
        if down > usize::try_from(slots).expect("few") {
            self.breaks(at, "more nodes down than the group allows (promise 2)");
        }
    }

    /// What an agent waits for is under way, or its time is set, or somebody else ends it and it
    /// says who.
    fn check_waiting(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (Some(agent), Some(waiting)) = (&node.agent, &node.waiting) else { return };
        if agent.in_flight.iter().any(|lane| !node.pending.contains_key(lane)) {
            self.breaks(at, "waits for what nobody does (promise 8)");
        } else if !node.wakes && node.pending.is_empty() && !others_end(waiting) {
            let text = format!("waits ({}), and nothing will wake it (promise 8)", waiting.code());
            self.breaks(at, &text);
        }
    }

    /// A slot is given back: by a node that has settled, or never went down.
    pub(crate) fn check_release(&mut self, at: usize) {
        let node = &self.nodes[at];
        if !self.holds(at) || node.robbed {
            return;
        }
        let settled = Duration::from_millis(self.clock - node.ready_at) >= self.policy.settle_time;
        if node.went_down && !(node.ready && settled) {
            self.breaks(at, "gives the slot back before it is well (promise 6)");
        } else if node.mark.is_some() && node.unschedulable {
            self.breaks(at, "gives the slot back while its cordon stands (promise 6)");
        }
    }

    /// What a decision of the server changes.
    pub(crate) fn decided(&mut self, at: usize, decision: &Decision) {
        match decision {
            Decision::Granted { .. } => self.nodes[at].robbed = false,
            Decision::Released { holder } => {
                let named = |name: &String| self.nodes.iter().position(|node| node.name == *name);
                let owner = holder.claim.node.as_ref().and_then(named).expect("a node of ours");
                let node = &mut self.nodes[owner];
                node.went_down = false;
                // Where no mark is left, what is cordoned still is so by a person.
                node.emptied &= node.mark.is_some() || node.draining;
                if node.is_down() {
                    let by = format!("{} gives it back", self.nodes[at].name);
                    self.tell(owner, by);
                    for line in self.nodes[at].story.clone().into_iter().rev().take(12).rev() {
                        self.nodes[owner].story.push(format!("  there: {line}"));
                    }
                    self.breaks(owner, "loses its slot to a release while it is down (promise 1)");
                }
            }
            Decision::Full { .. }
            | Decision::OtherAttempt { .. }
            | Decision::NotHeld
            | Decision::NotTheirs { .. }
            | Decision::UnknownGroup => {}
        }
    }

    /// How many nodes of each group a bad update reached, where that is more than its slots.
    pub(crate) fn check_halt(&mut self) {
        for (group, slots) in self.profile.slots.iter().enumerate() {
            let of = self.nodes.iter().skip(group).step_by(self.profile.slots.len());
            let bad = of.filter(|node| !node.fell_back.is_empty()).count();
            if bad > usize::try_from(*slots).expect("few") {
                let text = format!("a bad update reached {bad} nodes of {slots} slots (promise 6)");
                self.breaks(group, &text);
            }
        }
    }

    /// A living node that is not yet where everything must come once faults have stopped and
    /// people have done what only they can, and what is wrong with it; what others wait for first.
    pub(crate) fn unfinished(&self) -> Option<(usize, &'static str)> {
        let living = || (0..self.nodes.len()).filter(|at| !self.nodes[*at].dead);
        let first = |wrong: fn(&Self, usize) -> Option<&'static str>| {
            living().find_map(|at| wrong(self, at).map(|words| (at, words)))
        };
        first(Self::keeps).or_else(|| first(Self::lags))
    }

    /// What a node at rest must not keep.
    fn keeps(&self, at: usize) -> Option<&'static str> {
        let rests = matches!(self.nodes[at].stage(), Some(Stage::Idle | Stage::Waiting));
        match (rests, self.nodes[at].mark.is_some(), self.holds(at)) {
            (true, true, _) => Some("stays cordoned by us"),
            (true, false, true) => Some("keeps a slot that it needs no longer"),
            (true, false, false) | (false, ..) => None,
        }
    }

    fn lags(&self, at: usize) -> Option<&'static str> {
        let node = &self.nodes[at];
        let Some(agent) = node.agent.as_ref() else { return Some("has no agent") };
        let record = &agent.record;
        let tries = record.tries.get(&self.latest).copied().unwrap_or(0);
        let denied = record.denied.contains_key(&self.latest);
        let explained = denied || tries >= self.policy.attempt_limit;
        if !matches!(record.core.stage, Stage::Idle | Stage::Waiting) {
            Some("does not come to rest")
        } else if node.booted != self.latest && !explained {
            Some("is neither updated nor says why")
        } else {
            None
        }
    }

    /// Groups of which every living node runs the last update.
    pub(crate) fn rollouts(&self) -> usize {
        let groups = self.profile.slots.len();
        let done = |group: &usize| {
            let mut of = self.nodes.iter().skip(*group).step_by(groups);
            of.all(|node| node.dead || node.booted == self.latest)
        };
        (0..groups).filter(done).count()
    }

    /// The end has come, and one is not there.
    pub(crate) fn check_end(&mut self) {
        let Some((at, words)) = self.unfinished() else { return };
        let name = &self.nodes[at].name;
        let text = format!("in the end, {name} {words} (promise 4)");
        for holder in self.server.holders(&self.nodes[at].group) {
            let of =
                self.nodes.iter().find(|other| Some(&other.name) == holder.claim.node.as_ref());
            let of = of.expect("a node of ours");
            let story = of.story.join("\n      ");
            let line = format!("{holder:?}, {:?}:\n      {story}", of.stage());
            self.tell(at, line);
        }
        self.breaks(at, &text);
    }
}

/// Whether somebody else ends this, who is named or known by the word, and whose doing wakes us.
fn others_end(waiting: &Waiting) -> bool {
    matches!(
        waiting,
        Waiting::NoUpdate
            | Waiting::SystemUnknown(_)
            | Waiting::Held { .. }
            | Waiting::TargetDenied { .. }
            | Waiting::AttemptLimit { .. }
            | Waiting::Halted { .. }
            | Waiting::NodeUnknown
            | Waiting::Node(_)
            | Waiting::KubeletNotReady(_)
            | Waiting::ShuttingDown
            | Waiting::RecordUnwritable(_)
    )
}
