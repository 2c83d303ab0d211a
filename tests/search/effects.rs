//! How each effect turns out, and what must hold at that moment.

use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    BootEvidence, CordonAnswer, DrainEnd, Effect, Event, Health, NodeTrouble, RebootAnswer,
    Rehearsal, UncordonAnswer, Verification,
};

use crate::world::{Broken, Heart, World};

/// Which way an effect turns out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It works.
    Works,
    /// It works, and its agent is not told.
    WorksButAnswerLost,
    /// It does not work.
    Fails,
    /// It is accepted and nothing follows; for a rehearsal: none can be held.
    NeverComes,
}

/// How this effect can turn out: the faults that it takes, the words for it, the way.
pub(crate) fn outcomes(effect: &Effect) -> Vec<(u8, &'static str, Way)> {
    match effect {
        Effect::Inspect => vec![(0, "host is looked at", Way::Works), (1, "inhibited", Way::Fails)],
        Effect::ReadBoot => vec![(0, "boot is read", Way::Works)],
        Effect::ReadNode => vec![(0, "Node is read", Way::Works), (1, "API away", Way::Fails)],
        Effect::Rehearse => vec![
            (0, "rehearsal passes", Way::Works),
            (1, "rehearsal is blocked", Way::Fails),
            (1, "no rehearsal: API away", Way::NeverComes),
        ],
        Effect::RequestSlot { .. } => vec![
            (0, "slot is asked for", Way::Works),
            (1, "slot is asked for, answer lost", Way::WorksButAnswerLost),
            (1, "slot server away", Way::Fails),
        ],
        Effect::ReleaseSlot => vec![
            (0, "slot is released", Way::Works),
            (1, "slot is released, answer lost", Way::WorksButAnswerLost),
            (1, "slot server away", Way::Fails),
        ],
        Effect::Cordon { .. } | Effect::Uncordon | Effect::RestoreCordon => vec![
            (0, "cordon is changed", Way::Works),
            (1, "cordon is changed, answer lost", Way::WorksButAnswerLost),
            (1, "cordon: API away", Way::Fails),
        ],
        Effect::Drain { .. } => {
            vec![(0, "drain ends empty", Way::Works), (1, "drain passes deadline", Way::Fails)]
        }
        Effect::StopDrain => vec![(0, "drain stops", Way::Works)],
        Effect::VerifyEmpty { .. } => {
            vec![(0, "node is verified", Way::Works), (1, "verify: API away", Way::Fails)]
        }
        Effect::Reboot { .. } => vec![
            (0, "reboot is accepted", Way::Works),
            (1, "reboot is accepted, answer lost", Way::WorksButAnswerLost),
            (1, "reboot is refused", Way::Fails),
            (1, "reboot is accepted and never comes", Way::NeverComes),
        ],
        Effect::UndoReboot { .. } => {
            vec![(0, "reboot is undone", Way::Works), (1, "undo fails", Way::Fails)]
        }
        Effect::CheckHealth => vec![(0, "health is well", Way::Works), (1, "not well", Way::Fails)],
    }
}

fn away() -> NodeTrouble {
    NodeTrouble::Unreachable("away".to_owned())
}

impl World {
    /// Lets an effect happen, and checks what must hold at that moment.
    pub(crate) fn happen(
        &mut self,
        heart: Heart,
        at: usize,
        effect: &Effect,
        way: Way,
    ) -> Option<Broken> {
        self.hosts[at].pending.remove(&effect.lane());
        let event = match self.outcome(at, effect, way) {
            Ok(event) => event,
            Err(broken) => return Some(broken),
        };
        self.deliver(heart, at, event);
        None
    }

    fn outcome(&mut self, at: usize, effect: &Effect, way: Way) -> Result<Event, Broken> {
        let fails = way == Way::Fails;
        Ok(match effect {
            Effect::Inspect => Event::Inspected(self.hosts[at].gates(fails)),
            Effect::ReadBoot => {
                let failed = self.hosts[at].finalize_failed;
                let finalize_failure = failed.then(|| "no space".to_owned());
                Event::BootRead(BootEvidence { finalize_failure })
            }
            Effect::ReadNode if fails => Event::NodeRead(Err(away())),
            Effect::ReadNode => Event::NodeRead(Ok(self.hosts[at].node())),
            Effect::Rehearse => Event::Rehearsed(match way {
                Way::Fails => Rehearsal::Blocked(vec![obstacle()]),
                Way::NeverComes => Rehearsal::Failed(away()),
                Way::Works | Way::WorksButAnswerLost => Rehearsal::Passes,
            }),
            Effect::RequestSlot { .. } => self.request(at, way),
            Effect::ReleaseSlot => self.release(at, way)?,
            Effect::Cordon { attempt, .. } => self.cordon(at, attempt.as_str(), way),
            Effect::Uncordon => self.uncordon(at, way),
            Effect::RestoreCordon => self.restore(at, way),
            Effect::Drain { .. } => self.drain(at, way)?,
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { pods_may_stay, .. } => self.verify(at, *pods_may_stay, way),
            Effect::Reboot { attempt, target } => {
                self.ask_reboot(at, attempt.as_str(), &target.identity, way)?
            }
            Effect::UndoReboot { .. } if fails || self.hosts[at].going_down => {
                Event::RebootUndone(Err("going down".to_owned()))
            }
            Effect::UndoReboot { .. } => Event::RebootUndone(Ok(())),
            Effect::CheckHealth if fails => {
                Event::HealthChecked(Health::NotWell(vec!["web.service is failed".to_owned()]))
            }
            Effect::CheckHealth => Event::HealthChecked(Health::Well),
        })
    }

    fn drain(&mut self, at: usize, way: Way) -> Result<Event, Broken> {
        if self.holder != Some(at) {
            return Err(format!("n{at} evicts without the slot"));
        }
        if way == Way::Works {
            // Somebody uncordoned: pods may come again, the last look has to see it.
            self.hosts[at].pods = !self.hosts[at].unschedulable;
        }
        Ok(Event::DrainEnded(match way {
            Way::Fails => DrainEnd::DeadlinePassed(Progress::default()),
            Way::Works | Way::WorksButAnswerLost | Way::NeverComes => DrainEnd::Empty,
        }))
    }

    fn verify(&self, at: usize, pods_may_stay: bool, way: Way) -> Event {
        let host = &self.hosts[at];
        Event::Verified(match way {
            Way::Fails => Verification::Failed(away()),
            _ if !host.unschedulable => Verification::Uncordoned,
            _ if host.pods && !pods_may_stay => Verification::NotEmpty(vec![obstacle()]),
            Way::Works | Way::WorksButAnswerLost | Way::NeverComes => Verification::Good,
        })
    }

    fn request(&mut self, at: usize, way: Way) -> Event {
        let failed = |answer_lost| SlotAnswer::Failed {
            kind: "timeout".to_owned(),
            error: "no answer".to_owned(),
            answer_lost,
        };
        let free = self.holder.is_none_or(|holder| holder == at);
        Event::SlotAnswered(match way {
            Way::Fails | Way::NeverComes => failed(false),
            Way::WorksButAnswerLost => {
                if free {
                    self.holder = Some(at);
                } else {
                    self.hosts[at].late_grant = true;
                }
                failed(true)
            }
            Way::Works if free => {
                self.holder = Some(at);
                SlotAnswer::Granted
            }
            Way::Works => SlotAnswer::Denied {
                kind: "full".to_owned(),
                value: "held".to_owned(),
                retry_after: None,
            },
        })
    }

    fn release(&mut self, at: usize, way: Way) -> Result<Event, Broken> {
        if self.holder == Some(at) && way != Way::Fails {
            if self.hosts[at].down_with_slot {
                return Err(format!("n{at} releases before it is ready again"));
            }
            if self.hosts[at].mark.is_some() && self.hosts[at].unschedulable {
                return Err(format!("n{at} releases while its cordon stands"));
            }
            self.holder = None;
        }
        Ok(Event::SlotReleased(match way {
            Way::Works | Way::NeverComes => ReleaseAnswer::Released,
            Way::WorksButAnswerLost | Way::Fails => ReleaseAnswer::Failed {
                kind: "timeout".to_owned(),
                error: "no answer".to_owned(),
                retry_after: None,
            },
        }))
    }

    fn cordon(&mut self, at: usize, attempt: &str, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let foreign = host.unschedulable && host.mark.is_none();
        if way != Way::Fails && !foreign {
            host.unschedulable = true;
            host.mark = Some(attempt.to_owned());
        }
        Event::Cordoned(match way {
            Way::WorksButAnswerLost | Way::Fails => CordonAnswer::Failed(away()),
            Way::Works | Way::NeverComes if foreign => CordonAnswer::Foreign,
            Way::Works | Way::NeverComes => CordonAnswer::Ours,
        })
    }

    fn uncordon(&mut self, at: usize, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let (was, marked) = (host.unschedulable, host.mark.is_some());
        if way != Way::Fails && marked {
            host.unschedulable = false;
            host.mark = None;
        }
        Event::Uncordoned(match way {
            Way::WorksButAnswerLost | Way::Fails => UncordonAnswer::Failed(away()),
            Way::Works | Way::NeverComes => match (was, marked) {
                (true, true) => UncordonAnswer::Lifted,
                (true, false) => UncordonAnswer::Foreign,
                (false, _) => UncordonAnswer::AlreadySchedulable,
            },
        })
    }

    fn restore(&mut self, at: usize, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let lifted = !host.unschedulable;
        if way != Way::Fails {
            host.unschedulable = true;
        }
        Event::CordonRestored(match way {
            Way::WorksButAnswerLost | Way::Fails => Err("away".to_owned()),
            Way::Works | Way::NeverComes => Ok(lifted),
        })
    }

    fn ask_reboot(
        &mut self,
        at: usize,
        attempt: &str,
        target: &str,
        way: Way,
    ) -> Result<Event, Broken> {
        if self.holder != Some(at) {
            return Err(format!("n{at} reboots without the slot"));
        }
        if self.hosts[at].fell_back.contains(&target) {
            return Err(format!("n{at} reboots into a target that fell back"));
        }
        let host = &mut self.hosts[at];
        if way != Way::Fails {
            let count = host.reboots.entry(attempt.to_owned()).or_insert(0);
            *count += 1;
            if *count > 1 {
                return Err(format!("n{at} reboots twice for {attempt}"));
            }
        }
        if host.pods {
            return Err(format!("n{at} reboots with pods that should have gone"));
        }
        let staged = host.staged == Some("new");
        host.going_down = staged && matches!(way, Way::Works | Way::WorksButAnswerLost);
        Ok(Event::RebootAnswered(match way {
            Way::Fails => RebootAnswer::Refused("blocked".to_owned()),
            _ if !staged => RebootAnswer::Refused("nothing is staged".to_owned()),
            Way::WorksButAnswerLost => RebootAnswer::Unknown("NoReply".to_owned()),
            Way::Works | Way::NeverComes => RebootAnswer::Accepted,
        }))
    }
}

fn obstacle() -> Obstacle {
    let kind = ObstacleKind::Budget { budget: Some("web".to_owned()), says: "0 left".to_owned() };
    Obstacle { namespace: "default".to_owned(), pod: "web-1".to_owned(), kind }
}
