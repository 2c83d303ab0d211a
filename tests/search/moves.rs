//! Everything that can happen next, each with the faults that it takes.

use std::time::Duration;

use jiff::SignedDuration;
use lockkeeper::lifecycle::{self, Effect, Event, Lane, Record, Start};

use crate::effects::outcomes;
use crate::rules::Kind;
use crate::time::shift_wall;
use crate::world::{BOOT, Boot, CLOCK, Memory, Play, World, boot_mark, now};

/// How far the wall clock jumps.
const JUMP: SignedDuration = SignedDuration::from_hours(24);

/// What happened: to which host, and the words for it.
pub(crate) type Told = (u8, &'static str);

/// What can happen to one host.
struct Moves<'a> {
    world: &'a World,
    play: &'a Play,
    at: usize,
    /// Only the first that can happen is asked for.
    first: bool,
    found: Vec<(Told, World)>,
}

impl World {
    /// Every world that can follow this one in its normal form, with the words for what happened.
    pub(crate) fn successors(&self, play: &Play) -> Vec<(Told, World)> {
        self.moves(play, false)
    }

    /// Those of one host alone, where nobody else sees what can happen to it next, nor can change it:
    /// whether the other hosts move before or after is one and the same then.
    ///
    /// - It has no business with the slot under way: the slot's holder is all that hosts share.
    /// - It can neither go down nor come up, which is what the promise about all hosts counts.
    /// - Time stands still until it moves: that is shared, too.
    ///
    /// Something that takes no fault is always among them, so that a fault never has to come now.
    pub(crate) fn private_successors(&self, play: &Play, at: usize) -> Vec<(Told, World)> {
        let host = &self.hosts[at];
        let pending = |lane| host.pending.contains_key(&lane);
        let busy = !host.pending.is_empty() || host.agent.is_none();
        let slot = pending(Lane::Slot) || host.late_grant.is_some();
        let can_fall = self.holder == Some(at) && host.faults > 0;
        let is_down = host.going_down || (host.down_with_slot && host.ready.is_none());
        let may_go_down = pending(Lane::Reboot) || host.zincati_may || can_fall;
        let strange = !play.rules.kinds.is_empty();
        if !play.reduced || slot || is_down || may_go_down || strange {
            return Vec::new();
        }
        let mut moves = Moves { world: self, play, at, first: false, found: Vec::new() };
        moves.all();
        let holds_time_up = busy || (play.rules.prompt && self.goes_on(&moves.found));
        moves.lost_request();
        if holds_time_up { moves.found } else { Vec::new() }
    }

    /// Whether something happens without a fault.
    fn goes_on(&self, found: &[(Told, World)]) -> bool {
        found.iter().any(|(_, next)| next.faults() == self.faults())
    }

    /// The first of them.
    pub(crate) fn first_successor(&self, play: &Play) -> Option<(Told, World)> {
        self.moves(play, true).into_iter().next()
    }

    fn moves(&self, play: &Play, first: bool) -> Vec<(Told, World)> {
        let mut moves = Moves { world: self, play, at: 0, first, found: Vec::new() };
        for at in 0..self.hosts.len() {
            moves.at = at;
            moves.all();
        }
        let time_may_pass = match play.rules.prompt {
            true => !self.goes_on(&moves.found),
            false => !first || moves.found.is_empty(),
        };
        for at in 0..self.hosts.len() {
            moves.at = at;
            moves.lost_request();
        }
        if time_may_pass {
            moves.found.extend(self.time_passes(play).map(|next| ((0, "time passes"), next)));
        }
        moves.found
    }

    /// Time passes only when nothing else is under way, and until somebody wants to be woken.
    fn time_passes(&self, play: &Play) -> Option<World> {
        let quiet = self.hosts.iter().all(|host| host.pending.is_empty() && host.agent.is_some());
        let wake = self.hosts.iter().filter_map(|host| host.wake).min().filter(|_| quiet)?;
        let mut next = self.clone();
        next.ended = None;
        next.pass(wake.saturating_sub(CLOCK).max(Duration::from_secs(1)));
        for at in 0..next.hosts.len() {
            if next.hosts[at].wake.is_some_and(|wake| wake <= CLOCK) {
                next.deliver(play, at, Event::Woke);
            }
        }
        next.check(play);
        next.normalise(play);
        Some(next)
    }

    fn start(&mut self, play: &Play, at: usize) {
        let start = Start {
            boot: boot_mark(BOOT),
            kubelet_unit: true,
            record_set_aside: None,
            config_wrong: None,
            seed: u64::try_from(at).unwrap_or(0),
        };
        let host = &mut self.hosts[at];
        if host.memory == Memory::Forgot {
            host.memory = Memory::ForgotBeforeALook;
        }
        let disk = host.disk.take();
        let record = disk.clone().unwrap_or_default();
        let step = lifecycle::start(&play.policy, record, start, now());
        self.accept(play, at, disk, step);
    }

    fn zincati_asks(&mut self, play: &Play, at: usize) {
        self.hosts[at].zincati_waits = true;
        self.deliver(play, at, Event::ZincatiWaits(true));
    }

    fn reboots(&mut self, play: &Play, at: usize, boot: Boot, by_shutdown: bool) {
        let holds = self.holder == Some(at);
        let host = &mut self.hosts[at];
        host.down_with_slot = holds;
        host.come_up(&play.policy, boot, by_shutdown);
    }
}

impl Moves<'_> {
    fn all(&mut self) {
        self.agent();
        self.news();
        self.host();
        self.others();
        self.zincati();
        self.strangers();
        self.effects();
    }

    /// This can happen, if so many faults are left.
    fn may(&mut self, faults: u8, words: &'static str, change: impl FnOnce(&mut World)) {
        let Some(left) = self.world.hosts[self.at].faults.checked_sub(faults) else { return };
        if self.first && !self.found.is_empty() {
            return;
        }
        let mut next = self.world.clone();
        next.hosts[self.at].faults = left;
        next.ended = None;
        change(&mut next);
        next.check(self.play);
        next.normalise(self.play);
        let at = u8::try_from(self.at).unwrap_or(u8::MAX);
        self.found.push(((at, words), next));
    }

    /// As [`Self::may`], in worlds where such things happen.
    fn strange(&mut self, kind: Kind, change: impl FnOnce(&mut World)) {
        if self.play.rules.may(kind) {
            self.may(1, kind.told(), change);
        }
    }

    fn agent(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        if host.going_down {
            return;
        }
        if host.agent.is_none() {
            self.may(0, "agent starts", |w| w.start(play, at));
        } else {
            self.may(1, "agent is killed", |w| w.hosts[at].agent_ends(&play.policy));
        }
    }

    /// What is there to be seen, and is seen.
    fn news(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        let again = play.rules.rounds == 0 || host.rounds < play.rules.rounds;
        if host.staged.is_none() && host.booted == "old" && !host.going_down && again {
            self.may(0, "an update is staged", |w| w.hosts[at].staged = Some("new"));
        }
        if host.disk_full {
            self.may(0, "there is room on the disk again", |w| w.room_again(play, at));
        }
        if host.node_gone && host.ready.is_some() && !host.going_down {
            self.may(0, "the Node registers again", |w| w.hosts[at].register());
        }
        let Some(agent) = &host.agent else { return };
        let system = host.system();
        if agent.view.system.as_ref() != Some(&system) {
            self.may(0, "the update system is read", |w| {
                w.deliver(play, at, Event::System(system))
            });
        }
        let node = host.node();
        if agent.view.node.as_ref() != Some(&node) {
            self.may(0, "the watch shows the Node", |w| {
                w.deliver(play, at, node.map_or_else(Event::NodeTrouble, Event::Node));
            });
        }
    }

    /// How the host goes down and comes up.
    fn host(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        if !host.going_down {
            if host.ready.is_none() {
                self.may(0, "the kubelet reports", |w| {
                    if w.hosts[at].node_gone {
                        w.hosts[at].register();
                    }
                    w.hosts[at].ready = Some(CLOCK);
                    w.hosts[at].pods = true;
                });
            }
            self.may(1, "power is cut", |w| w.reboots(play, at, Boot::Target, false));
            return;
        }
        if host.agent.as_ref().is_some_and(|agent| !agent.view.preparing_for_shutdown) {
            self.may(0, "logind prepares", |w| {
                w.deliver(play, at, Event::PreparingForShutdown(true));
            });
        }
        self.may(0, "the host reboots", |w| w.reboots(play, at, Boot::Target, true));
        self.may(1, "the host reboots, unfinalized", |w| {
            w.reboots(play, at, Boot::FinalizeFails, true);
        });
        self.may(1, "the host falls back", |w| w.reboots(play, at, Boot::FallsBack, true));
        self.may(1, "power is cut while it goes down", |w| {
            w.reboots(play, at, Boot::Target, false);
        });
    }

    /// What people and the slot server do in every world.
    fn others(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        if host.staged.is_some() && !host.going_down {
            self.may(1, "the update is withdrawn", |w| w.hosts[at].staged = None);
        }
        if host.marked && host.unschedulable && !host.going_down {
            self.may(1, "a person uncordons", |w| w.hosts[at].unschedulable = false);
        }
        if host.late_grant.is_some() && self.world.holder.is_none() {
            self.may(1, "a lost request is granted late", |w| {
                w.hosts[at].late_grant = None;
                w.grant(play, at);
            });
        }
    }

    /// A request whose answer was lost has ended, granted or not.
    fn lost_request(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        let ends = host.lost_request_ends();
        if ends.is_none() && host.late_grant.is_none() {
            return;
        }
        self.may(0, "a lost request has ended", |w| {
            let host = &mut w.hosts[at];
            let awaited = host.wake.is_some() && host.wake == ends;
            host.set_lost_request(Duration::ZERO);
            if awaited && host.agent.is_some() {
                w.deliver(play, at, Event::Woke);
            }
        });
    }

    /// What Zincati does where it decides: it asks, has its answer, and reboots in its own time.
    fn zincati(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        if !play.rules.zincati || host.going_down || host.ready.is_none() {
            return;
        }
        let idle = !host.zincati_waits && !host.zincati_may && !host.zincati_gone;
        if idle && host.staged.is_some() && host.agent.is_some() {
            self.may(0, "Zincati asks", |w| w.zincati_asks(play, at));
        }
        if host.zincati_waits {
            self.may(1, "Zincati hangs up", |w| {
                w.hosts[at].zincati_waits = false;
                w.deliver(play, at, Event::ZincatiWaits(false));
            });
        }
        if !host.zincati_may {
            return;
        }
        self.may(0, "Zincati reboots", |w| w.zincati_reboots(play, at));
        self.may(1, "Zincati is gone", |w| {
            w.hosts[at].zincati_may = false;
            w.hosts[at].zincati_gone = true;
        });
        if host.agent.is_none() {
            return;
        }
        self.may(1, "Zincati asks again", |w| {
            w.hosts[at].zincati_may = false;
            w.zincati_asks(play, at);
        });
        self.may(1, "Zincati begins anew", |w| {
            w.hosts[at].zincati_may = false;
            w.deliver(play, at, Event::ZincatiSteady);
        });
    }

    fn effects(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        for effect in host.pending.values() {
            for (faults, words, way) in outcomes(host, effect) {
                self.may(*faults, words, |w| w.happen(play, at, effect, *way));
            }
        }
    }
}

// === In some worlds only ===

impl Moves<'_> {
    fn strangers(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        if host.going_down {
            return;
        }
        if self.world.holder == Some(self.world.hosts.len()) {
            self.may(0, "somebody else gives the slot back", |w| w.holder = None);
        }
        if !host.unschedulable && !host.marked && !host.node_gone {
            self.strange(Kind::PersonCordons, |w| {
                w.hosts[at].unschedulable = true;
                w.hosts[at].person_cordoned = true;
            });
        }
        self.strange(Kind::PersonReboots, |w| {
            w.reboots(play, at, Boot::Target, true);
        });
        if self.world.holder == Some(at) {
            self.strange(Kind::ServerForgets, |w| {
                w.holder = Some(w.hosts.len());
                w.hosts[at].memory = Memory::Forgot;
            });
        }
        if !host.disk_full {
            self.strange(Kind::DiskFull, |w| w.hosts[at].disk_full = true);
        }
        if host.agent.is_some() {
            self.strange(Kind::RecordLost, |w| {
                w.hosts[at].agent_ends(&play.policy);
                w.hosts[at].disk = None;
                w.hosts[at].forgets_targets(&Record::default());
            });
        }
        self.snapshots();
        if !host.node_gone {
            self.strange(Kind::NodeReplaced, |w| w.hosts[at].unregister());
        }
        if host.staged == Some("new") {
            self.strange(Kind::NewerUpdate, |w| {
                w.hosts[at].staged = Some("newer");
            });
        }
        self.strange(Kind::ClockAhead, |w| w.jump(play, at, -JUMP));
        self.strange(Kind::ClockBack, |w| w.jump(play, at, JUMP));
        if !host.inhibited {
            self.strange(Kind::StaysInhibited, |w| {
                w.hosts[at].inhibited = true;
                w.deliver(play, at, Event::HostChanged);
            });
        }
        if !host.pods_stay {
            self.strange(Kind::PodsStay, |w| w.hosts[at].pods_stay = true);
        }
    }

    fn snapshots(&mut self) {
        let (at, play, host) = (self.at, self.play, &self.world.hosts[self.at]);
        // One that nobody can restore any more is none.
        let can_come = host.faults > 0;
        let settled = host.ready.is_some() && host.staged.is_none() && host.written.is_none();
        if let Some((record, booted)) = &host.snapshot {
            let (record, booted) = (record.clone(), *booted);
            self.strange(Kind::Snapshot, |w| {
                let holds = w.holder == Some(at);
                let host = &mut w.hosts[at];
                host.down_with_slot = holds;
                host.agent_ends(&play.policy);
                (host.staged, host.booted) = (None, booted);
                host.forgets_targets(&record);
                host.disk = Some(record);
                host.come_up(&play.policy, Boot::Target, false);
            });
        } else if let (true, Some(record)) = (settled && can_come, host.on_disk())
            && play.rules.may(Kind::Snapshot)
        {
            let record = record.clone();
            self.may(0, "a snapshot is taken", |w| {
                let host = &mut w.hosts[at];
                host.snapshot = Some((record, host.booted));
            });
        }
    }
}

impl World {
    fn room_again(&mut self, play: &Play, at: usize) {
        let host = &mut self.hosts[at];
        host.disk_full = false;
        if host.agent.is_none() {
            return;
        }
        host.disk = None;
        self.deliver(play, at, Event::RecordWritten);
    }

    /// What the record says of the wall moves the other way.
    fn jump(&mut self, play: &Play, at: usize, by: SignedDuration) {
        let host = &mut self.hosts[at];
        let agent = host.agent.as_mut().map(|agent| &mut agent.record);
        for record in agent.into_iter().chain(&mut host.disk) {
            shift_wall(record, by);
        }
        self.deliver(play, at, Event::ClockSet);
    }
}

impl crate::world::Host {
    /// Only the record knows which targets fell back and how often one was tried: what it does not say any
    /// more nobody can know. From now on the promises about targets count anew.
    fn forgets_targets(&mut self, record: &Record) {
        self.fell_back.retain(|target| record.denied.contains_key(*target));
        self.tries.retain(|target, _| record.tries.contains_key(*target));
    }

    fn unregister(&mut self) {
        self.node_gone = true;
        self.unschedulable = false;
        self.marked = false;
        self.person_cordoned = false;
        self.lifted_by_server = false;
        self.pods = false;
    }

    fn register(&mut self) {
        self.node_gone = false;
        self.uid += 1;
        self.pods = true;
        let reboot = self.pending.get(&Lane::Reboot);
        self.pods_came_late = matches!(reboot, Some(Effect::Reboot { .. }));
    }
}
