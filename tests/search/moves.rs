//! Everything that can happen next, each with the faults that it takes.

use std::time::Duration;

use lockkeeper::lifecycle::{self, Effect, Event, Lane, Start};

use crate::effects::outcomes;
use crate::world::{Boot, Broken, Heart, World};

/// What can happen to one host.
struct Moves<'a> {
    world: &'a World,
    heart: Heart,
    at: usize,
    found: Vec<(String, Result<World, Broken>)>,
}

impl World {
    /// Every world that can follow this one, with the words for what happened.
    pub(crate) fn successors(&self, heart: Heart) -> Vec<(String, Result<World, Broken>)> {
        let mut found = Vec::new();
        for at in 0..self.hosts.len() {
            let mut moves = Moves { world: self, heart, at, found };
            moves.agent();
            moves.news();
            moves.host();
            moves.others();
            moves.effects();
            found = moves.found;
        }
        found.extend(self.time_passes(heart).map(|next| ("time passes".to_owned(), Ok(next))));
        found
    }

    /// Time passes only when nothing else is under way, and until somebody wants to be woken.
    fn time_passes(&self, heart: Heart) -> Option<World> {
        let quiet = self.hosts.iter().all(|host| host.pending.is_empty() && host.agent.is_some());
        let wake = self.hosts.iter().filter_map(|host| host.wake).min().filter(|_| quiet)?;
        let mut next = self.clone();
        next.clock = wake.max(self.clock + Duration::from_secs(1));
        for at in 0..next.hosts.len() {
            if next.hosts[at].wake.is_some_and(|wake| wake <= next.clock) {
                next.deliver(heart, at, Event::Woke);
            }
        }
        Some(next)
    }

    fn start(&mut self, at: usize) {
        let host = &self.hosts[at];
        let start = Start {
            boot: host.boot_mark(),
            kubelet_unit: true,
            record_set_aside: None,
            seed: u64::try_from(at).unwrap_or(0),
        };
        let record = host.disk.clone().unwrap_or_default();
        let step = lifecycle::start(&self.policy(), record, start, self.now());
        self.accept(at, step);
    }

    fn kill(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if let Some(Effect::RequestSlot { .. }) = host.pending.get(&Lane::Slot) {
            host.late_grant = true;
        }
        host.agent = None;
        host.pending.clear();
        host.wake = None;
    }

    fn reboots(&mut self, at: usize, boot: Boot, by_shutdown: bool) {
        let holds = self.holder == Some(at);
        let host = &mut self.hosts[at];
        host.down_with_slot = holds;
        host.come_up(boot, by_shutdown);
    }
}

impl Moves<'_> {
    /// This can happen, if so many faults are left.
    fn may(&mut self, faults: u8, words: &str, change: impl FnOnce(&mut World)) {
        self.may_break(faults, words, |world| {
            change(world);
            None
        });
    }

    /// As [`Self::may`], and may show a broken promise.
    fn may_break(
        &mut self,
        faults: u8,
        words: &str,
        change: impl FnOnce(&mut World) -> Option<Broken>,
    ) {
        let Some(left) = self.world.faults.checked_sub(faults) else { return };
        let mut next = self.world.clone();
        next.faults = left;
        let result = match change(&mut next) {
            Some(broken) => Err(broken),
            None => Ok(next),
        };
        self.found.push((format!("n{}: {words}", self.at), result));
    }

    fn agent(&mut self) {
        let (at, host) = (self.at, &self.world.hosts[self.at]);
        if host.going_down {
            return;
        }
        if host.agent.is_none() {
            self.may(0, "agent starts", |w| w.start(at));
        } else {
            self.may(1, "agent is killed", |w| w.kill(at));
        }
    }

    /// What is there to be seen, and is seen.
    fn news(&mut self) {
        let (at, heart, host) = (self.at, self.heart, &self.world.hosts[self.at]);
        let again = self.world.releasing && host.boot == 2 && !host.fell_back.is_empty();
        if host.staged.is_none() && (again || host.boot == 1) && host.booted == "old" {
            self.may(0, "an update is staged", |w| w.hosts[at].staged = Some("new"));
        }
        let Some(agent) = &host.agent else { return };
        if agent.view.system != Some(host.system()) {
            self.may(0, "the update system is read", |w| {
                w.deliver(heart, at, Event::System(host.system()));
            });
        }
        if agent.view.node != Some(Ok(host.node())) {
            self.may(0, "the watch shows the Node", |w| {
                w.deliver(heart, at, Event::Node(host.node()));
            });
        }
    }

    /// How the host goes down and comes up.
    fn host(&mut self) {
        let (at, heart, host) = (self.at, self.heart, &self.world.hosts[self.at]);
        if !host.going_down {
            if !host.ready {
                self.may(0, "the kubelet reports", |w| {
                    w.hosts[at].ready = true;
                    w.hosts[at].pods = true;
                    w.hosts[at].down_with_slot = false;
                });
            }
            self.may(1, "power is cut", |w| w.reboots(at, Boot::Target, false));
            return;
        }
        if host.agent.as_ref().is_some_and(|agent| !agent.view.preparing_for_shutdown) {
            self.may(0, "logind prepares", |w| {
                w.deliver(heart, at, Event::PreparingForShutdown(true));
            });
        }
        self.may(0, "the host reboots", |w| w.reboots(at, Boot::Target, true));
        self.may(1, "the host reboots, unfinalized", |w| w.reboots(at, Boot::FinalizeFails, true));
        self.may(1, "the host falls back", |w| w.reboots(at, Boot::FallsBack, true));
    }

    /// What people and the slot server do.
    fn others(&mut self) {
        let (at, host) = (self.at, &self.world.hosts[self.at]);
        if host.staged.is_some() && !host.going_down {
            self.may(1, "the update is withdrawn", |w| w.hosts[at].staged = None);
        }
        if host.mark.is_some() && host.unschedulable && !host.going_down {
            self.may(1, "a person uncordons", |w| w.hosts[at].unschedulable = false);
        }
        if host.late_grant && self.world.holder.is_none() {
            self.may(1, "a lost request is granted late", |w| {
                w.hosts[at].late_grant = false;
                w.holder = Some(at);
            });
        }
    }

    fn effects(&mut self) {
        let (at, heart, host) = (self.at, self.heart, &self.world.hosts[self.at]);
        for effect in host.pending.values() {
            for (faults, words, way) in outcomes(effect) {
                self.may_break(faults, words, |w| w.happen(heart, at, effect, way));
            }
        }
    }
}
