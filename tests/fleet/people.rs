//! Mishaps of one host, and what people do.

use std::time::Duration;

use lockkeeper::lifecycle::{Command, Event, Stage};

use crate::profile::Fault;
use crate::world::{Boot, HOUR, Happening, World};

impl World {
    /// Each hour and node, with the profile's rates.
    pub(crate) fn mishap(&mut self, at: usize) {
        if !self.faulty() {
            return;
        }
        self.soon(at, Duration::from_millis(HOUR), Happening::Mishap);
        if !self.nodes[at].on {
            return;
        }
        if self.fault(Fault::Withdrawn) && !self.nodes[at].going_down {
            self.tell(at, "the update is withdrawn".to_owned());
            self.nodes[at].staged = None;
            self.news(at);
            let delay = self.random.seconds(600, 3600);
            self.soon(at, delay, Happening::Stage);
        }
        if self.fault(Fault::Damage) {
            self.tell(at, "the record on disk is damaged, and the agent restarts".to_owned());
            self.nodes[at].damaged = true;
            self.kill(at, "by somebody");
        }
        if self.fault(Fault::Robbed) && self.holds(at) {
            self.tell(at, "a person releases its slot, wrongly".to_owned());
            let node = &mut self.nodes[at];
            node.robbed = true;
            let (group, id) = (node.group.clone(), node.id.clone());
            self.server.free(&group, &id);
        }
        if self.fault(Fault::Mishaps) {
            self.one_mishap(at);
        }
    }

    fn one_mishap(&mut self, at: usize) {
        match self.random.below(9) {
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
                self.nodes[at].person_cordoned = false;
                self.tell(at, "a person uncordons".to_owned());
                self.let_pods_in(at);
            }
            5 => {
                let by = "somebody".to_owned();
                let hold = Command::Hold { reason: "let me see".to_owned(), by };
                self.tell(at, "a person holds".to_owned());
                self.deliver(at, Event::Person(hold));
                let delay = self.random.seconds(600, 7200);
                self.soon(at, delay, Happening::Resume);
            }
            6 if !self.nodes[at].going_down => {
                self.tell(at, "a person reboots".to_owned());
                let boots = self.nodes[at].boots;
                self.nodes[at].going_down = true;
                self.soon(at, Duration::from_millis(100), Happening::Prepare(true));
                let boot = Boot::Staged;
                self.soon(at, Duration::from_secs(10), Happening::Down { boots, boot });
            }
            7 => {
                self.nodes[at].unsynchronised = true;
                self.tell(at, "the clock is not synchronised".to_owned());
                let delay = self.random.seconds(60, 7200);
                self.soon(at, delay, Happening::Synchronised);
            }
            _ => self.kill(at, "by somebody"),
        }
    }

    pub(crate) fn synchronised(&mut self, at: usize) {
        self.nodes[at].unsynchronised = false;
        self.deliver(at, Event::ClockSet);
    }

    /// The API server is away from everybody.
    pub(crate) fn api_mishap(&mut self) {
        if !self.faulty() {
            return;
        }
        self.soon(0, Duration::from_millis(HOUR), Happening::ApiMishap);
        if self.fault(Fault::Api) {
            let length = 1000 * (30 + self.random.below(1500));
            self.api_away_until = self.clock + length;
            self.soon_at_all(&Happening::News, 5000);
            for at in 0..self.nodes.len() {
                let back = Duration::from_millis(length + 1 + self.random.below(5000));
                self.soon(at, back, Happening::News);
            }
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
    pub(crate) fn people(&mut self, at: usize) {
        self.soon(at, Duration::from_secs(900), Happening::People);
        let node = &mut self.nodes[at];
        node.disk_full = false;
        if node.dead {
            // `lockkeeper slots release`
            node.robbed = true;
            if self.holds(at) {
                let (group, id) = (self.nodes[at].group.clone(), self.nodes[at].id.clone());
                self.server.free(&group, &id);
            }
            return;
        }
        if node.unsynchronised {
            self.synchronised(at);
        }
        let node = &self.nodes[at];
        let held = node.agent.as_ref().is_some_and(|agent| agent.record.hold.is_some());
        if held || node.stage() == Some(Stage::Halted) {
            self.resume(at);
        }
        self.soon(at, Duration::from_secs(1), Happening::Stage);
    }

    pub(crate) fn resume(&mut self, at: usize) {
        self.tell(at, "a person says resume".to_owned());
        self.deliver(at, Event::Person(Command::Resume));
    }
}
