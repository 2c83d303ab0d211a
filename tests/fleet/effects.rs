//! How effects turn out, and what must hold at that moment.

use std::time::Duration;

use lockkeeper::coordinator::slots::{Ask, Claim, Decision};
use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::{Operation, ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    BootEvidence, CordonAnswer, DrainEnd, Effect, Event, Health, Lane, NodeTrouble, RebootAnswer,
    Rehearsal, UncordonAnswer, Verification,
};

use crate::broken::Broken;
use crate::world::{ANSWER_WITHIN, Boot, Happening, World};

fn away() -> NodeTrouble {
    NodeTrouble::Unreachable("away".to_owned())
}

fn obstacle() -> Obstacle {
    let kind = ObstacleKind::Budget { budget: Some("web".to_owned()), says: "0 left".to_owned() };
    Obstacle { namespace: "default".to_owned(), pod: "web-1".to_owned(), kind }
}

impl World {
    /// An effect begins. One that is under way in its lane is replaced.
    pub(crate) fn begin(&mut self, at: usize, effect: Effect) {
        let number = self.number();
        let life = self.nodes[at].life;
        self.nodes[at].pending.insert(effect.lane(), number);
        let delay = match &effect {
            Effect::RequestSlot { attempt } => {
                let claimed = attempt.as_str().to_owned();
                return self.send(at, number, Operation::PreReboot, Some(claimed));
            }
            Effect::ReleaseSlot => {
                let agent = self.nodes[at].agent.as_ref();
                let attempt = agent.and_then(|agent| agent.record.core.attempt.as_ref());
                let attempt = attempt.map(|attempt| attempt.id.as_str().to_owned());
                return self.send(at, number, Operation::SteadyState, attempt);
            }
            Effect::Drain { within, .. } => {
                self.tell(at, "the drain begins".to_owned());
                let node = &self.nodes[at];
                if !self.server.holds(&node.group, &node.id) {
                    self.breaks(at, "evicts without the slot (promise 1)");
                }
                self.nodes[at].draining = true;
                self.check_down(at);
                let blocked = self.fault(self.profile.effects);
                if blocked { *within } else { self.random.seconds(5, 120) }
            }
            Effect::StopDrain => {
                self.nodes[at].draining = false;
                Duration::from_millis(100)
            }
            Effect::Inspect
            | Effect::ReadBoot
            | Effect::ReadNode
            | Effect::Rehearse
            | Effect::Cordon { .. }
            | Effect::VerifyEmpty { .. }
            | Effect::Reboot { .. }
            | Effect::UndoReboot { .. }
            | Effect::CheckHealth
            | Effect::Uncordon
            | Effect::RestoreCordon => self.random.seconds(0, 2),
        };
        self.soon(at, delay, Happening::Finish { life, number, effect });
    }

    /// An effect turns out; nothing does that was replaced or whose agent is no more.
    pub(crate) fn finish(&mut self, at: usize, life: u64, number: u64, effect: &Effect) {
        let lane = effect.lane();
        if self.nodes[at].life != life || self.nodes[at].pending.get(&lane) != Some(&number) {
            return;
        }
        self.nodes[at].pending.remove(&lane);
        let fails = self.fault(self.profile.effects);
        let event = self.outcome(at, effect, fails);
        self.deliver(at, event);
    }

    fn outcome(&mut self, at: usize, effect: &Effect, fails: bool) -> Event {
        match effect {
            Effect::Inspect => Event::Inspected(self.nodes[at].gates()),
            Effect::ReadBoot => {
                let failed = self.nodes[at].finalize_failed;
                let finalize_failure = failed.then(|| "no space".to_owned());
                Event::BootRead(BootEvidence { finalize_failure })
            }
            Effect::ReadNode if fails => Event::NodeRead(Err(away())),
            Effect::ReadNode => Event::NodeRead(Ok(self.nodes[at].node_view())),
            Effect::Rehearse if fails => Event::Rehearsed(Rehearsal::Blocked(vec![obstacle()])),
            Effect::Rehearse => Event::Rehearsed(Rehearsal::Passes),
            Effect::Cordon { attempt, .. } => self.cordon(at, attempt.as_str(), fails),
            Effect::Uncordon => self.uncordon(at, fails),
            Effect::RestoreCordon => {
                let lifted = !self.nodes[at].unschedulable;
                self.nodes[at].unschedulable = true;
                self.news(at);
                Event::CordonRestored(Ok(lifted))
            }
            Effect::Drain { within, .. } => self.drained(at, *within, fails),
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { .. } => {
                let node = &self.nodes[at];
                Event::Verified(if fails {
                    Verification::Failed(away())
                } else if !node.unschedulable {
                    Verification::Uncordoned
                } else if node.pods {
                    Verification::NotEmpty(vec![obstacle()])
                } else {
                    Verification::Good
                })
            }
            Effect::Reboot { attempt, target } => {
                self.reboot(at, attempt.as_str(), &target.identity, fails)
            }
            Effect::UndoReboot { .. } => {
                let going = self.nodes[at].going_down || fails;
                let answer = if going { Err("going down".to_owned()) } else { Ok(()) };
                Event::RebootUndone(answer)
            }
            Effect::CheckHealth if fails => {
                Event::HealthChecked(Health::NotWell(vec!["web.service is failed".to_owned()]))
            }
            Effect::CheckHealth => Event::HealthChecked(Health::Well),
            Effect::RequestSlot { .. } | Effect::ReleaseSlot => Event::NotDone(Lane::Slot),
        }
    }

    fn drained(&mut self, at: usize, within: Duration, fails: bool) -> Event {
        let node = &mut self.nodes[at];
        node.draining = false;
        if fails || within.is_zero() {
            return Event::DrainEnded(DrainEnd::DeadlinePassed(Progress::default()));
        }
        // Where somebody uncordoned meanwhile, pods come again.
        node.pods = !node.unschedulable;
        // An empty node that is cordoned is as good as down until it is uncordoned or rebooted.
        Event::DrainEnded(DrainEnd::Empty)
    }

    fn cordon(&mut self, at: usize, attempt: &str, fails: bool) -> Event {
        let lost = fails && self.random.permille(500);
        let node = &mut self.nodes[at];
        let foreign = node.unschedulable && node.mark.is_none();
        if (!fails || lost) && !foreign {
            node.unschedulable = true;
            node.mark = Some(attempt.to_owned());
            self.news(at);
        }
        Event::Cordoned(match (fails, foreign) {
            (true, _) => CordonAnswer::Failed(away()),
            (false, true) => CordonAnswer::Foreign,
            (false, false) => CordonAnswer::Ours,
        })
    }

    fn uncordon(&mut self, at: usize, fails: bool) -> Event {
        let lost = fails && self.random.permille(500);
        let lifts_all = self.broken == Broken::AgentLiftsAll;
        let node = &mut self.nodes[at];
        let (was, marked) = (node.unschedulable, node.mark.is_some() || lifts_all);
        if (!fails || lost) && marked {
            node.unschedulable = false;
            node.mark = None;
            self.news(at);
        }
        Event::Uncordoned(match (fails, was, marked) {
            (true, ..) => UncordonAnswer::Failed(away()),
            (false, true, true) => UncordonAnswer::Lifted,
            (false, true, false) => UncordonAnswer::Foreign,
            (false, false, _) => UncordonAnswer::AlreadySchedulable,
        })
    }

    fn reboot(&mut self, at: usize, attempt: &str, target: &str, fails: bool) -> Event {
        self.tell(at, format!("reboot into {target} is asked for"));
        let node = &self.nodes[at];
        if !self.server.holds(&node.group, &node.id) {
            self.breaks(at, "reboots without the slot (promise 1)");
        } else if node.fell_back.iter().any(|fell| fell == target) {
            self.breaks(at, "reboots into a target that fell back (promise 7)");
        } else if node.pods {
            self.breaks(at, "reboots with pods that should have gone (promise 1)");
        }
        let way = if fails { 1 + self.random.below(3) } else { 0 };
        let answer = match way {
            1 => RebootAnswer::Refused("blocked".to_owned()),
            2 => RebootAnswer::Unknown("no reply".to_owned()),
            _ => RebootAnswer::Accepted,
        };
        if way != 1 {
            let count = self.nodes[at].reboots.entry(attempt.to_owned()).or_insert(0);
            *count += 1;
            if *count > 1 {
                self.breaks(at, "reboots twice for one attempt (promise 5)");
            }
        }
        let node = &mut self.nodes[at];
        let comes = matches!(way, 0 | 2) && node.staged.as_deref() == Some(target);
        if comes && !node.going_down {
            node.going_down = true;
            node.down_by_us = true;
            self.counts.reboots += 1;
            self.check_down(at);
            let boot = if self.random.permille(self.profile.bad_boot) {
                Boot::FellBack
            } else if self.fault(self.profile.effects) {
                Boot::NotWritten
            } else {
                Boot::Staged
            };
            self.soon(at, Duration::from_millis(100), Happening::Prepare);
            let delay = self.random.seconds(2, 40);
            self.soon(at, delay, Happening::Down(boot));
        }
        Event::RebootAnswered(answer)
    }

    // === The slot server ===

    fn send(&mut self, at: usize, number: u64, operation: Operation, attempt: Option<String>) {
        let node = &self.nodes[at];
        let boot = Some(node.boot_mark().id);
        let claim = Claim { attempt, boot, node: Some(node.name.clone()) };
        let ask = Ask { group: node.group.clone(), id: node.id.clone(), operation, claim };
        let life = node.life;
        if self.fault(self.profile.network) {
            // Lost, or on its way for as long as a server may hold it.
            self.give_up(at, number, operation);
            if self.random.permille(500) {
                self.tell(at, format!("{operation:?} is lost"));
                return;
            }
            let delay = self.random.seconds(1, ANSWER_WITHIN / 1000 - 5);
            return self.soon(at, delay, Happening::Reach { life, number, ask });
        }
        let twice = self.fault(self.profile.network);
        for _ in 0..=usize::from(twice) {
            let ask = ask.clone();
            let delay = if twice { 50 } else { 10 + self.random.below(500) };
            self.soon(at, Duration::from_millis(delay), Happening::Reach { life, number, ask });
        }
    }

    /// The client gives up when no answer has come in time.
    fn give_up(&mut self, at: usize, number: u64, operation: Operation) {
        self.fails_to_answer(at, number, operation, true, Duration::from_millis(ANSWER_WITHIN));
    }

    fn fails_to_answer(
        &mut self,
        at: usize,
        number: u64,
        operation: Operation,
        lost: bool,
        after: Duration,
    ) {
        let life = self.nodes[at].life;
        let (kind, error) = ("timeout".to_owned(), "no answer".to_owned());
        let event = match operation {
            Operation::PreReboot => {
                Event::SlotAnswered(SlotAnswer::Failed { kind, error, answer_lost: lost })
            }
            Operation::SteadyState => {
                Event::SlotReleased(ReleaseAnswer::Failed { kind, error, retry_after: None })
            }
        };
        self.soon(at, after, Happening::Told { life, number, lane: Lane::Slot, event });
    }

    /// A request is at the server's door.
    pub(crate) fn reach(&mut self, at: usize, life: u64, number: u64, ask: &Ask) {
        let soon = Duration::from_millis(200);
        if self.clock < self.server.down_until {
            return self.fails_to_answer(at, number, ask.operation, false, soon);
        }
        let crashes = self.fault(self.profile.server).then(|| self.random.permille(500));
        let until = self.clock + 1000 * (5 + self.random.below(120));
        if crashes == Some(false) {
            self.tell(at, "the slot server is killed before it decides".to_owned());
            self.server.crash(until);
            return self.fails_to_answer(at, number, ask.operation, true, soon);
        }
        if ask.operation == Operation::SteadyState && self.server.holds(&ask.group, &ask.id) {
            let node = &self.nodes[at];
            if !node.ready {
                self.breaks(at, "gives the slot back before it is well (promise 6)");
            } else if node.mark.is_some() && node.unschedulable {
                self.breaks(at, "gives the slot back while its cordon stands (promise 6)");
            }
        }
        let decision = self.server.decide(ask, self.now(at).wall);
        if !matches!(decision, Decision::Full { .. }) {
            // Who waits hears that three times a minute.
            self.tell(at, format!("{:?}: {}", ask.operation, word(&decision)));
        }
        if crashes.is_some() {
            self.tell(at, "the slot server is killed before it answers".to_owned());
            self.server.crash(until);
            return self.fails_to_answer(at, number, ask.operation, true, soon);
        }
        if self.fault(self.profile.network) {
            return self.give_up(at, number, ask.operation);
        }
        let event = match ask.operation {
            Operation::PreReboot => Event::SlotAnswered(slot_answer(&decision)),
            Operation::SteadyState => Event::SlotReleased(ReleaseAnswer::Released),
        };
        self.soon(at, soon, Happening::Told { life, number, lane: Lane::Slot, event });
    }
}

fn slot_answer(decision: &Decision) -> SlotAnswer {
    match decision {
        Decision::Granted { .. } => SlotAnswer::Granted,
        Decision::Full { .. }
        | Decision::OtherAttempt { .. }
        | Decision::UnknownGroup
        | Decision::Released { .. }
        | Decision::NotHeld
        | Decision::NotTheirs { .. } => SlotAnswer::Denied {
            kind: word(decision).to_owned(),
            value: "not now".to_owned(),
            retry_after: Some(Duration::from_secs(20)),
        },
    }
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Granted { .. } => "granted",
        Decision::Full { .. } => "full",
        Decision::OtherAttempt { .. } => "other attempt",
        Decision::Released { .. } => "released",
        Decision::NotHeld => "not held",
        Decision::NotTheirs { .. } => "not theirs",
        Decision::UnknownGroup => "unknown group",
    }
}
