//! What comes of each happening.

use std::time::Duration;

use lockkeeper::lifecycle::{Command, Event, Stage};

use crate::world::{Boot, HOUR, Happening, World};

impl World {
    pub(crate) fn happen(&mut self, at: usize, what: Happening) {
        match what {
            Happening::Start => self.start(at),
            Happening::Wake(number) => {
                if self.nodes[at].wake == number {
                    self.deliver(at, Event::Woke);
                }
            }
            Happening::News => self.see(at),
            Happening::Finish { life, number, effect } => self.finish(at, life, number, &effect),
            Happening::Reach { life, number, ask } => self.reach(at, life, number, &ask),
            Happening::Told { life, number, lane, event } => {
                if self.nodes[at].life == life && self.nodes[at].pending.get(&lane) == Some(&number)
                {
                    self.nodes[at].pending.remove(&lane);
                    self.deliver(at, event);
                }
            }
            Happening::Prepare => {
                if self.nodes[at].going_down {
                    self.deliver(at, Event::PreparingForShutdown(true));
                }
            }
            Happening::Down(boot) => self.go_down(at, boot),
            Happening::Up(boot) => self.come_up(at, boot),
            Happening::Ready => self.become_ready(at),
            Happening::Stage(version) => self.stage(at, version),
            Happening::DiskIsFree => self.nodes[at].disk_full = false,
            Happening::Resume => self.deliver(at, Event::Person(Command::Resume)),
            Happening::Mishap => self.mishap(at),
            Happening::People => self.people(at),
        }
    }

    fn see(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(agent) = &node.agent else { return };
        let (system, seen) = (node.system(), node.node_view());
        let new_system = agent.view.system.as_ref() != Some(&system);
        if agent.view.node != Some(Ok(seen.clone())) {
            self.deliver(at, Event::Node(seen));
        }
        if new_system {
            self.deliver(at, Event::System(system));
        }
    }

    fn stage(&mut self, at: usize, version: &'static str) {
        let latest = self.latest;
        let node = &mut self.nodes[at];
        // What is older than what was staged or booted is not staged again, and nothing while the
        // host goes down: the daemon that stages goes first.
        if !node.on || node.going_down || node.booted == latest || node.booted == version {
            return;
        }
        if node.staged.as_deref() == Some(latest) {
            return;
        }
        node.staged = Some(version.to_owned());
        self.tell(at, format!("{version} is staged"));
        self.news(at);
    }

    /// The host goes off.
    pub(crate) fn go_down(&mut self, at: usize, boot: Boot) {
        if !self.nodes[at].on {
            return;
        }
        self.tell(at, format!("the host goes down: {boot:?}"));
        let holds = self.server.holds(&self.nodes[at].group, &self.nodes[at].id);
        let node = &mut self.nodes[at];
        node.lose_agent();
        node.on = false;
        node.ready = false;
        node.going_down = false;
        node.down_by_us |= holds;
        self.check_down(at);
        if self.fault(self.profile.dead) {
            self.nodes[at].dead = true;
            self.tell(at, "and never comes back".to_owned());
            return;
        }
        let long = self.fault(self.profile.effects);
        let delay =
            if long { self.random.seconds(3600, 10_800) } else { self.random.seconds(20, 120) };
        self.soon(at, delay, Happening::Up(boot));
    }

    fn come_up(&mut self, at: usize, boot: Boot) {
        let clock = self.clock;
        let node = &mut self.nodes[at];
        let staged = node.staged.take();
        node.written = None;
        node.finalize_failed = false;
        match (staged, boot) {
            (None, _) | (Some(_), Boot::Unchanged) => {}
            (Some(target), Boot::Staged) => node.booted = target,
            (Some(_), Boot::NotWritten) => node.finalize_failed = true,
            (Some(target), Boot::FellBack) => {
                node.written = Some(target.clone());
                node.fell_back.push(target);
            }
        }
        node.on = true;
        node.boots += 1;
        node.boot_at = clock;
        let booted = node.booted.clone();
        self.tell(at, format!("the host comes up with {booted}"));
        let delay = self.random.seconds(2, 20);
        self.soon(at, delay, Happening::Start);
        let delay = self.random.seconds(5, 60);
        self.soon(at, delay, Happening::Ready);
        if booted != self.latest {
            // Who stages updates does so again.
            let delay = self.random.seconds(60, 900);
            self.soon(at, delay, Happening::Stage(self.latest));
        }
    }

    fn become_ready(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.on {
            return;
        }
        node.ready = true;
        node.pods = true;
        node.down_by_us = false;
        self.news(at);
    }

    // === Mishaps and people ===

    /// One each hour and node, with the profile's rate.
    fn mishap(&mut self, at: usize) {
        if !self.faulty() {
            return;
        }
        self.soon(at, Duration::from_millis(HOUR), Happening::Mishap);
        if !self.fault(self.profile.mishaps) || !self.nodes[at].on {
            return;
        }
        match self.random.below(8) {
            0 => self.go_down(at, Boot::Unchanged),
            1 => {
                let hours = i64::try_from(self.random.below(7)).expect("few") - 3;
                self.nodes[at].wall_off += hours * 3600;
                self.tell(at, format!("the clock is set by {hours} h"));
                self.deliver(at, Event::ClockSet);
            }
            2 => {
                self.nodes[at].disk_full = true;
                self.tell(at, "the disk is full".to_owned());
                let delay = self.random.seconds(60, 3600);
                self.soon(at, delay, Happening::DiskIsFree);
            }
            3 => self.person_cordons(at),
            4 => {
                let node = &mut self.nodes[at];
                node.unschedulable = false;
                node.person_cordoned = false;
                self.tell(at, "a person uncordons".to_owned());
                self.news(at);
            }
            5 => {
                let by = "somebody".to_owned();
                let hold = Command::Hold { reason: "let me see".to_owned(), by };
                self.tell(at, "a person holds".to_owned());
                self.deliver(at, Event::Person(hold));
                let delay = self.random.seconds(600, 7200);
                self.soon(at, delay, Happening::Resume);
            }
            6 => {
                self.tell(at, "a person reboots".to_owned());
                self.nodes[at].going_down = true;
                self.soon(at, Duration::from_millis(100), Happening::Prepare);
                self.soon(at, Duration::from_secs(10), Happening::Down(Boot::Staged));
            }
            _ => self.kill(at, "by somebody"),
        }
    }

    /// What carries our mark is cordoned already, and a left-over mark would make it ours.
    fn person_cordons(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.mark.is_some() || node.unschedulable || node.down_by_us {
            return;
        }
        node.unschedulable = true;
        node.person_cordoned = true;
        self.tell(at, "a person cordons".to_owned());
        self.news(at);
    }

    /// Once faults have stopped: what only people can do, every quarter of an hour.
    fn people(&mut self, at: usize) {
        self.soon(at, Duration::from_secs(900), Happening::People);
        let node = &mut self.nodes[at];
        node.disk_full = false;
        if node.dead {
            // `lockkeeper slots release`
            node.written_off = true;
            let (group, id) = (node.group.clone(), node.id.clone());
            if let Some(group) = self.server.kept.groups.get_mut(&group) {
                group.holders.retain(|holder| holder.id != id);
            }
            return;
        }
        let held = node.agent.as_ref().is_some_and(|agent| agent.record.hold.is_some());
        if held || node.stage() == Some(Stage::Halted) {
            self.tell(at, "a person says resume".to_owned());
            self.deliver(at, Event::Person(Command::Resume));
        }
    }
}
