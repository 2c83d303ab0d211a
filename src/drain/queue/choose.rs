//! Whom to ask now, when to look again, and what to tell people.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Ask, BudgetKey, Claim, Entry, FINISHED_WAIT, How, Queue, Standing, State};
use crate::drain::classify::Tier;
use crate::drain::progress::{Obstacle, ObstacleKind, Progress, in_order};

impl Queue {
    /// The requests to send now; each of them is under way until it is answered.
    pub fn next(&mut self, now: Duration) -> Vec<Ask> {
        self.let_go_of_finished(now);
        if !self.listed || self.is_hopeless() || now < self.hold_until {
            return Vec::new();
        }
        let Some(tier) = self.turn() else { return Vec::new() };
        self.presume(now);
        // While no server answers, one request finds out as well as many.
        let parallel = if self.outages > 0 { 1 } else { self.limits.parallel };
        let room = parallel.saturating_sub(self.in_flight.len());
        let mut uids = self.probes(tier, now);
        uids.extend(self.due(tier, now));
        uids.truncate(room);
        uids.into_iter().filter_map(|uid| self.send(&uid)).collect()
    }

    /// When [`Queue::next`] may say more without an event; `None`: only an event can tell.
    pub fn wake(&self, now: Duration) -> Option<Duration> {
        let finished = self.pods.values().filter_map(|entry| match &entry.state {
            State::Finished { since } => Some(*since + FINISHED_WAIT),
            State::Due { .. }
            | State::Behind(_)
            | State::Asking { .. }
            | State::Leaving
            | State::Completing
            | State::Forbidden(_) => None,
        });
        let turn = self.turn().filter(|_| self.listed && !self.is_hopeless());
        let mine = move |entry: &&Entry| turn.is_some_and(|tier| entry.tier <= tier);
        let asks = self.pods.values().filter(mine).filter_map(|entry| match &entry.state {
            State::Due { from, .. } => Some((*from).max(self.hold_until)),
            State::Behind(key) => {
                let budget = self.budgets.get(key).filter(|budget| budget.probe.is_none())?;
                Some(budget.pace.next.max(self.hold_until))
            }
            State::Asking { .. }
            | State::Leaving
            | State::Completing
            | State::Finished { .. }
            | State::Forbidden(_) => None,
        });
        // What is due already waits for a free place, and an answer will make one.
        finished.chain(asks).filter(|at| *at > now).min()
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How the drain stands.
    pub fn standing(&self) -> Standing {
        if !self.listed {
            Standing::Busy
        } else if self.is_hopeless() {
            let forbidden = self.pods.values().filter_map(|entry| match &entry.state {
                State::Forbidden(_) => self.obstacle_of(entry),
                State::Due { .. }
                | State::Behind(_)
                | State::Asking { .. }
                | State::Leaving
                | State::Completing
                | State::Finished { .. } => None,
            });
            Standing::Impossible(in_order(
                self.refused.values().cloned().chain(forbidden).collect(),
            ))
        } else if self.pods.is_empty() {
            Standing::Empty
        } else {
            Standing::Busy
        }
    }

    /// How far the drain is, for people.
    pub fn progress(&self) -> Progress {
        let waiting = self.pods.values().filter_map(|entry| self.obstacle_of(entry));
        Progress {
            total: self.pods.len() + self.gone,
            gone: self.gone,
            obstacles: in_order(self.refused.values().cloned().chain(waiting).collect()),
            volumes: Vec::new(),
        }
    }

    /// The claims of the pods that stay: their volumes stay attached.
    pub fn staying_claims(&self) -> Vec<Claim> {
        self.staying.values().flatten().cloned().collect()
    }

    fn is_hopeless(&self) -> bool {
        !self.refused.is_empty()
            || self.pods.values().any(|entry| matches!(entry.state, State::Forbidden(_)))
    }

    /// The tier whose turn it is, with all before it.
    fn turn(&self) -> Option<Tier> {
        match self.limits.how {
            How::Evict => self.pods.values().map(|entry| entry.tier).min(),
            How::Delete => self.pods.values().map(|entry| entry.tier).max(),
        }
    }

    /// Puts pods behind a budget that refused a sibling, without asking each of them. One that is
    /// not ready asks for itself once: a budget may let such a pod go at any time.
    fn presume(&mut self, now: Duration) {
        for entry in self.pods.values_mut() {
            let fresh = matches!(entry.state, State::Due { from, .. } if from <= now);
            if entry.asked > 0 || !entry.ready || entry.how == How::Delete || !fresh {
                continue;
            }
            if let Some(key) = entry.owner.as_ref().and_then(|owner| self.owners.get(owner)) {
                entry.state = State::Behind(key.clone());
            }
        }
    }

    /// One pod for each exhausted budget that is to be probed, in turns.
    fn probes(&mut self, tier: Tier, now: Duration) -> Vec<String> {
        let due = |key: &BudgetKey| {
            let budget = self.budgets.get(key);
            budget.is_some_and(|b| b.probe.is_none() && b.pace.next <= now)
        };
        let mut chosen: BTreeMap<&BudgetKey, &Entry> = BTreeMap::new();
        for entry in self.pods.values().filter(|entry| entry.tier <= tier) {
            let State::Behind(key) = &entry.state else { continue };
            if due(key) {
                let best = chosen.entry(key).or_insert(entry);
                if (entry.asked, entry.rank()) < (best.asked, best.rank()) {
                    *best = entry;
                }
            }
        }
        chosen.into_values().map(|entry| entry.id.uid.clone()).collect()
    }

    /// Pods that ask for themselves, the least important first.
    fn due(&self, tier: Tier, now: Duration) -> Vec<String> {
        let is_due = |entry: &&Entry| {
            entry.tier <= tier && matches!(entry.state, State::Due { from, .. } if from <= now)
        };
        let mut due: Vec<&Entry> = self.pods.values().filter(is_due).collect();
        due.sort_by(|a, b| a.rank().cmp(&b.rank()));
        due.into_iter().map(|entry| entry.id.uid.clone()).collect()
    }

    fn send(&mut self, uid: &str) -> Option<Ask> {
        // A pod can have come back to be due while an old request for it is under way.
        if self.in_flight.contains(uid) {
            return None;
        }
        let because = self.pods.get(uid).and_then(|entry| self.obstacle_of(entry)).map(|o| o.kind);
        let entry = self.pods.get_mut(uid)?;
        if let State::Behind(key) = &entry.state
            && let Some(budget) = self.budgets.get_mut(key)
        {
            budget.probe = Some(uid.to_owned());
        }
        entry.asked = entry.asked.saturating_add(1);
        entry.state = State::Asking { because };
        self.in_flight.insert(uid.to_owned());
        Some(Ask { pod: entry.id.clone(), how: entry.how })
    }

    fn let_go_of_finished(&mut self, now: Duration) {
        let over = |entry: &&Entry| matches!(entry.state, State::Finished { since } if since + FINISHED_WAIT <= now);
        let uids: Vec<String> =
            self.pods.values().filter(over).map(|entry| entry.id.uid.clone()).collect();
        for uid in uids {
            self.gone(&uid);
        }
    }

    fn obstacle_of(&self, entry: &Entry) -> Option<Obstacle> {
        let kind = match &entry.state {
            State::Due { because, .. } | State::Asking { because } => because.clone()?,
            State::Behind(key) => ObstacleKind::Budget {
                budget: Some(key.name.clone()),
                says: self.budgets.get(key).map(|b| b.says.clone()).unwrap_or_default(),
            },
            State::Leaving | State::Finished { .. } => ObstacleKind::Terminating,
            State::Completing => ObstacleKind::Completing,
            State::Forbidden(says) => ObstacleKind::Forbidden { says: says.clone() },
        };
        Some(Obstacle::of(&entry.id, kind))
    }
}

impl Entry {
    /// The order within a tier: least important first, then by name.
    fn rank(&self) -> (i32, &str, &str) {
        (self.priority, &self.id.namespace, &self.id.name)
    }

    /// One that ends by itself is not asked; one that no longer says so is, from now on.
    pub(super) fn complete(&mut self, now: Duration) {
        self.state = match std::mem::replace(&mut self.state, State::Leaving) {
            State::Due { .. } | State::Behind(_) | State::Forbidden(_) if self.completes => {
                State::Completing
            }
            State::Completing if !self.completes => State::Due { from: now, because: None },
            state @ (State::Due { .. }
            | State::Behind(_)
            | State::Asking { .. }
            | State::Leaving
            | State::Completing
            | State::Finished { .. }
            | State::Forbidden(_)) => state,
        };
    }
}
