//! How effects turn out, and what must hold at that moment.

use std::time::Duration;

use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::Operation;
use lockkeeper::lifecycle::{
    BootEvidence, CordonAnswer, DrainEnd, Effect, Event, Health, Lane, OnDeadline, RebootAnswer,
    Rehearsal, UncordonAnswer, Verification,
};
use lockkeeper::schedule::Openness;

use crate::broken::Broken;
use crate::node::away;
use crate::profile::Fault;
use crate::world::{Boot, Happening, World};

/// Pods that were let in again take so long to come; a last look that is still true when the
/// reboot is asked for is younger than that.
const PODS_COME: (u64, u64) = (5, 30);

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
        self.nodes[at].under_way.insert(effect.lane(), effect.clone());
        let delay = match &effect {
            Effect::RequestSlot { attempt } => {
                let claimed = attempt.as_str().to_owned();
                return self.send(at, number, Operation::PreReboot, Some(claimed));
            }
            Effect::ReleaseSlot => {
                self.check_release(at);
                let agent = self.nodes[at].agent.as_ref();
                let attempt = agent.and_then(|agent| agent.releases_for());
                let attempt = attempt.map(|attempt| attempt.as_str().to_owned());
                return self.send(at, number, Operation::SteadyState, attempt);
            }
            Effect::Drain { within, .. } => {
                self.tell(at, "the drain begins".to_owned());
                if !self.holds(at) && !self.nodes[at].robbed {
                    self.breaks(at, "evicts without the slot (promise 1)");
                }
                let node = &mut self.nodes[at];
                (node.draining, node.emptied) = (true, true);
                let blocked = self.fault(Fault::Drains);
                if blocked { *within } else { self.random.seconds(5, 120) }
            }
            Effect::StopDrain => {
                self.nodes[at].draining = false;
                Duration::from_millis(100)
            }
            Effect::Reboot { .. } => {
                let open = self.policy.windows.openness(self.now(at).wall, Duration::ZERO);
                if matches!(open, Openness::Closed { .. }) {
                    self.breaks(at, "reboots outside its window (a gate, looked at twice)");
                }
                self.random.seconds(0, 2)
            }
            Effect::Inspect
            | Effect::ReadBoot
            | Effect::ReadNode
            | Effect::Rehearse
            | Effect::Cordon { .. }
            | Effect::VerifyEmpty { .. }
            | Effect::AllowZincati { .. }
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
        self.nodes[at].under_way.remove(&lane);
        let event = self.outcome(at, effect);
        self.deliver(at, event);
    }

    /// What it does to the world, and what is told of it.
    pub(crate) fn outcome(&mut self, at: usize, effect: &Effect) -> Event {
        let fails = self.fault(Fault::Effects);
        let unseen = fails || self.clock < self.api_away_until;
        match effect {
            Effect::Inspect => Event::Inspected(self.nodes[at].gates()),
            Effect::ReadBoot => {
                let failed = self.nodes[at].finalize_failed;
                let finalize_failure = failed.then(|| "no space".to_owned());
                Event::BootRead(BootEvidence { finalize_failure })
            }
            Effect::ReadNode if unseen => Event::NodeRead(Err(away())),
            Effect::ReadNode => Event::NodeRead(Ok(self.nodes[at].node_view())),
            Effect::Rehearse if fails => Event::Rehearsed(Rehearsal::Blocked(vec![obstacle()])),
            Effect::Rehearse if unseen => Event::Rehearsed(Rehearsal::Failed(away())),
            Effect::Rehearse => Event::Rehearsed(Rehearsal::Passes),
            Effect::Cordon { attempt, .. } => self.cordon(at, attempt.as_str(), unseen),
            Effect::Uncordon => self.uncordon(at, unseen),
            Effect::RestoreCordon if unseen => Event::CordonRestored(Err("away".to_owned())),
            Effect::RestoreCordon => {
                let lifted = !self.nodes[at].unschedulable;
                self.nodes[at].unschedulable = true;
                self.news(at);
                Event::CordonRestored(Ok(lifted))
            }
            Effect::Drain { within, delete, .. } => self.drained(at, *within, *delete),
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { pods_may_stay, .. } => {
                let node = &self.nodes[at];
                Event::Verified(if unseen {
                    Verification::Failed(away())
                } else if !node.unschedulable {
                    Verification::Uncordoned
                } else if node.pods && !pods_may_stay {
                    Verification::NotEmpty(vec![obstacle()])
                } else {
                    Verification::Good
                })
            }
            // No Zincati drives these nodes.
            Effect::AllowZincati { .. } => Event::ZincatiAllowed(false),
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

    fn drained(&mut self, at: usize, within: Duration, delete: bool) -> Event {
        let node = &mut self.nodes[at];
        node.draining = false;
        // One that was blocked lasted as long as it might; a deletion is not blocked by budgets.
        let blocked = within.is_zero() || self.profile.drains > 0 && self.random.permille(100);
        if blocked && !delete {
            return Event::DrainEnded(DrainEnd::DeadlinePassed(Progress::default()));
        }
        let node = &mut self.nodes[at];
        // Where somebody uncordoned meanwhile, pods come again.
        node.pods = !node.unschedulable;
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
        if self.broken == Broken::AgentLeavesItsCordon {
            return Event::Uncordoned(UncordonAnswer::AlreadySchedulable);
        }
        let lost = fails && self.random.permille(500);
        let lifts_all = self.broken == Broken::AgentLiftsAll;
        let node = &self.nodes[at];
        let (was, marked) = (node.unschedulable, node.mark.is_some() || lifts_all);
        if (!fails || lost) && marked {
            self.nodes[at].mark = None;
            self.let_pods_in(at);
        }
        Event::Uncordoned(match (fails, was, marked) {
            (true, ..) => UncordonAnswer::Failed(away()),
            (false, true, true) => UncordonAnswer::Lifted,
            (false, true, false) => UncordonAnswer::Foreign,
            (false, false, _) => UncordonAnswer::AlreadySchedulable,
        })
    }

    /// The Node is schedulable again, by whomever.
    pub(crate) fn let_pods_in(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.unschedulable = false;
        // A drain that still runs goes on evicting.
        node.emptied = node.draining;
        let delay = self.random.seconds(PODS_COME.0, PODS_COME.1);
        self.soon(at, delay, Happening::PodsCome);
        self.news(at);
    }

    fn reboot(&mut self, at: usize, attempt: &str, target: &str, fails: bool) -> Event {
        self.tell(at, format!("reboot into {target} is asked for"));
        let node = &self.nodes[at];
        if !self.holds(at) && !node.robbed {
            self.breaks(at, "reboots without the slot (promise 1)");
        } else if node.fell_back.iter().any(|fell| fell == target) {
            self.breaks(at, "reboots into a target that fell back (promise 7)");
        } else if node.pods && self.policy.on_deadline != OnDeadline::Reboot {
            self.breaks(at, "reboots with pods that should have gone (promise 1)");
        }
        let way = if fails { 1 + self.random.below(2) } else { 0 };
        let answer = match way {
            1 => RebootAnswer::Refused("blocked".to_owned()),
            2 => RebootAnswer::Unknown("no reply".to_owned()),
            _ => RebootAnswer::Accepted,
        };
        if way != 1 {
            self.count_reboot(at, attempt, target);
            let node = &self.nodes[at];
            if node.staged.as_deref() == Some(target) && !node.going_down {
                self.shut_down(at);
            }
        }
        Event::RebootAnswered(answer)
    }

    fn count_reboot(&mut self, at: usize, attempt: &str, target: &str) {
        let node = &mut self.nodes[at];
        let of_attempt = node.reboots.entry(attempt.to_owned()).or_insert(0);
        *of_attempt += 1;
        let twice = *of_attempt > 1;
        let of_target = node.tries.entry(target.to_owned()).or_insert(0);
        *of_target += 1;
        let often = *of_target > self.policy.attempt_limit;
        if twice {
            self.breaks(at, "reboots twice for one attempt (promise 5)");
        } else if often {
            self.breaks(at, "reboots into one target without end (promise 5)");
        }
    }

    /// logind was asked: the host goes down, or not.
    fn shut_down(&mut self, at: usize) {
        let never = self.fault(Fault::NoReboot);
        if never && self.random.permille(500) {
            return self.tell(at, "the shutdown does not come".to_owned());
        }
        let boots = self.nodes[at].boots;
        let node = &mut self.nodes[at];
        node.going_down = true;
        self.soon(at, Duration::from_millis(100), Happening::Prepare(true));
        if never {
            let delay = self.random.seconds(1, 90);
            return self.soon(at, delay, Happening::Prepare(false));
        }
        self.nodes[at].down_by_us = true;
        self.counts.reboots += 1;
        let boot = if self.fault(Fault::Finalize) {
            Boot::NotWritten
        } else if self.profile.bad_boot == 1000 || self.fault(Fault::BadBoot) {
            Boot::FellBack
        } else {
            Boot::Staged
        };
        let delay = self.random.seconds(2, 40);
        self.soon(at, delay, Happening::Down { boots, boot });
    }
}
