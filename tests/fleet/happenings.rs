//! What comes of each happening.

use std::time::Duration;

use lockkeeper::lifecycle::{Event, NodeTrouble};

use crate::node::away;
use crate::profile::Fault;
use crate::world::{Boot, Happening, World};

impl World {
    pub(crate) fn happen(&mut self, at: usize, what: Happening) {
        match what {
            Happening::Start => self.start(at),
            Happening::Wake(number) => {
                if self.nodes[at].wake == number {
                    self.nodes[at].wakes = false;
                    self.deliver(at, Event::Woke);
                }
            }
            Happening::News => self.see(at),
            Happening::Finish { life, number, effect } => self.finish(at, life, number, &effect),
            Happening::Reach { life, number, message } => self.reach(at, life, number, &message),
            Happening::Told { life, number, lane, event } => {
                if self.nodes[at].life == life && self.nodes[at].pending.get(&lane) == Some(&number)
                {
                    self.nodes[at].pending.remove(&lane);
                    self.deliver(at, event);
                }
            }
            Happening::Prepare(going) => self.prepare(at, going),
            Happening::Down { boots, boot } => {
                if self.nodes[at].boots == boots {
                    self.go_down(at, boot);
                }
            }
            Happening::Up(boot) => self.come_up(at, boot),
            Happening::Ready(boots) => self.become_ready(at, boots),
            Happening::PodsCome => {
                let node = &mut self.nodes[at];
                node.pods |= node.ready && !node.unschedulable;
            }
            Happening::Stage => self.stage(at),
            Happening::DiskIsFree => self.nodes[at].disk_full = false,
            Happening::Synchronised => self.synchronised(at),
            Happening::Resume => self.resume(at),
            Happening::Mishap => self.mishap(at),
            Happening::ApiMishap => self.api_mishap(),
            Happening::People => self.people(at),
        }
    }

    /// The watches tell what changed.
    fn see(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(agent) = &node.agent else { return };
        let (system, seen) = (node.system(), node.node_view());
        let new_system = agent.view.system.as_ref() != Some(&system);
        if self.clock < self.api_away_until {
            let told = matches!(&agent.view.node, Some(Err(NodeTrouble::Unreachable(_))));
            if !told {
                self.deliver(at, Event::NodeTrouble(away()));
            }
        } else if agent.view.node != Some(Ok(seen.clone())) {
            self.deliver(at, Event::Node(seen));
        }
        if new_system {
            self.deliver(at, Event::System(system));
        }
    }

    /// The newest update that is out is staged, unless it was already.
    fn stage(&mut self, at: usize) {
        let update = self.published();
        let node = &mut self.nodes[at];
        let newer = |have: &str| have < update.as_str();
        if !node.on || node.going_down || !newer(&node.booted) {
            return;
        }
        if node.staged.as_deref().is_some_and(|staged| !newer(staged)) {
            return;
        }
        node.staged = Some(update.clone());
        self.tell(at, format!("{update} is staged"));
        self.news(at);
    }

    /// logind begins a shutdown, or abandons it.
    fn prepare(&mut self, at: usize, going: bool) {
        let node = &mut self.nodes[at];
        if !node.going_down {
            return;
        }
        node.going_down = going;
        if !going {
            self.tell(at, "the shutdown is abandoned".to_owned());
        }
        self.deliver(at, Event::PreparingForShutdown(going));
    }

    /// The host goes off.
    pub(crate) fn go_down(&mut self, at: usize, boot: Boot) {
        if !self.nodes[at].on {
            return;
        }
        self.tell(at, format!("the host goes down: {boot:?}"));
        let holds = self.holds(at);
        let node = &mut self.nodes[at];
        node.lose_agent();
        node.on = false;
        node.ready = false;
        node.going_down = false;
        // Down by our doing is what we drained or told to reboot, and no power cut of a node in service.
        node.went_down |= holds;
        if self.fault(Fault::Dead) {
            self.nodes[at].dead = true;
            self.tell(at, "and never comes back".to_owned());
            return;
        }
        let long = self.fault(Fault::Slow);
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
        let (boots, booted) = (node.boots, node.booted.clone());
        self.tell(at, format!("the host comes up with {booted}"));
        let delay = self.random.seconds(2, 20);
        self.soon(at, delay, Happening::Start);
        let delay = self.random.seconds(5, 60);
        self.soon(at, delay, Happening::Ready(boots));
        // Who stages updates does so again.
        let delay = self.random.seconds(60, 900);
        self.soon(at, delay, Happening::Stage);
    }

    fn become_ready(&mut self, at: usize, boots: u32) {
        let clock = self.clock;
        let node = &mut self.nodes[at];
        if !node.on || node.boots != boots {
            return;
        }
        node.ready = true;
        node.ready_at = clock;
        node.pods = !node.unschedulable;
        node.down_by_us = false;
        // What is cordoned still takes no pods; a person's cordon is not our doing.
        node.emptied &= node.mark.is_some();
        self.news(at);
    }

    pub(crate) fn soon_at_all(&mut self, what: &Happening, within: u64) {
        for at in 0..self.nodes.len() {
            let delay = Duration::from_millis(self.random.below(within));
            self.soon(at, delay, what.clone());
        }
    }
}
