//! How each effect turns out, and what must hold at that moment.

use std::time::Duration;

use lockkeeper::drain::{Obstacle, ObstacleKind, Progress};
use lockkeeper::fleetlock::{ReleaseAnswer, SlotAnswer};
use lockkeeper::lifecycle::{
    BootEvidence, CordonAnswer, DrainEnd, Effect, Event, Health, NodeTrouble, OnDeadline,
    RebootAnswer, Rehearsal, UncordonAnswer, Verification,
};

use crate::world::{CLOCK, Host, Memory, Play, World};

/// Which way an effect turns out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It works.
    Works,
    /// It works, and its agent is not told.
    WorksButAnswerLost,
    /// It works, and its agent is killed before it hears of it.
    WorksAndKilled,
    /// It does not work.
    Fails,
    /// It is accepted and nothing follows; for a rehearsal: none can be held.
    NeverComes,
}

/// The faults that a way takes, the words for it, the way.
pub(crate) type Turn = (u8, &'static str, Way);

/// How this effect can turn out. That the agent is killed before the effect, or before the record of the
/// step that asks for it is written, is a move of its own: a killed agent's effects do not happen, and the
/// event that led to them is lost with it.
pub(crate) fn outcomes(host: &Host, effect: &Effect) -> &'static [Turn] {
    use Way::{Fails, NeverComes, Works, WorksAndKilled, WorksButAnswerLost};
    match effect {
        Effect::Inspect => &[(0, "host is looked at", Works), (1, "inhibited", Fails)],
        Effect::ReadBoot => &[(0, "boot is read", Works)],
        Effect::ReadNode => &[(0, "Node is read", Works), (1, "API away", Fails)],
        Effect::Rehearse => &[
            (0, "rehearsal passes", Works),
            (1, "rehearsal is blocked", Fails),
            (1, "no rehearsal: API away", NeverComes),
        ],
        Effect::RequestSlot { .. } => &[
            (0, "slot is asked for", Works),
            (1, "slot is asked for, answer lost", WorksButAnswerLost),
            (1, "slot is asked for, agent killed", WorksAndKilled),
            (1, "slot server away", Fails),
        ],
        Effect::ReleaseSlot => &[
            (0, "slot is released", Works),
            (1, "slot is released, answer lost", WorksButAnswerLost),
            (1, "slot is released, agent killed", WorksAndKilled),
            (1, "slot server away", Fails),
        ],
        Effect::Cordon { .. } | Effect::Uncordon | Effect::RestoreCordon => &[
            (0, "cordon is changed", Works),
            (1, "cordon is changed, answer lost", WorksButAnswerLost),
            (1, "cordon is changed, agent killed", WorksAndKilled),
            (1, "cordon: API away", Fails),
        ],
        Effect::Drain { delete: false, .. } if host.pods_stay => {
            &[(0, "drain passes deadline", Fails)]
        }
        Effect::Drain { .. } => &[
            (0, "drain ends empty", Works),
            (1, "drain ends empty, agent killed", WorksAndKilled),
            (1, "drain passes deadline", Fails),
        ],
        Effect::StopDrain => {
            &[(0, "drain stops", Works), (0, "drain ends before it is stopped", NeverComes)]
        }
        Effect::VerifyEmpty { .. } => {
            &[(0, "node is verified", Works), (1, "verify: API away", Fails)]
        }
        Effect::Reboot { .. } => &[
            (0, "reboot is accepted", Works),
            (1, "reboot is accepted, answer lost", WorksButAnswerLost),
            (1, "reboot is accepted, agent killed", WorksAndKilled),
            (1, "reboot is refused", Fails),
            (1, "reboot is accepted and never comes", NeverComes),
        ],
        Effect::AllowZincati { .. } => &[
            (0, "Zincati has leave", Works),
            (1, "Zincati has leave, agent killed", WorksAndKilled),
            (1, "Zincati has hung up", Fails),
        ],
        Effect::UndoReboot { .. } => &[
            (0, "reboot is undone", Works),
            (1, "reboot is undone, agent killed", WorksAndKilled),
            (1, "undo fails", Fails),
        ],
        Effect::CheckHealth => &[(0, "health is well", Works), (1, "not well", Fails)],
    }
}

fn away() -> NodeTrouble {
    NodeTrouble::Unreachable("away".to_owned())
}

impl Way {
    /// Whether the agent is told that it worked.
    fn told(self) -> bool {
        matches!(self, Self::Works | Self::WorksAndKilled | Self::NeverComes)
    }
}

impl World {
    /// Lets an effect happen, and checks what must hold at that moment.
    pub(crate) fn happen(&mut self, play: &Play, at: usize, effect: &Effect, way: Way) {
        self.hosts[at].pending.remove(&effect.lane());
        let event = self.outcome(play, at, effect, way);
        if way == Way::WorksAndKilled {
            self.hosts[at].agent_ends(&play.policy);
        } else {
            self.deliver(play, at, event);
        }
    }

    fn outcome(&mut self, play: &Play, at: usize, effect: &Effect, way: Way) -> Event {
        let fails = way == Way::Fails;
        match effect {
            Effect::Inspect => Event::Inspected(self.hosts[at].gates(fails)),
            Effect::ReadBoot => {
                let failed = self.hosts[at].finalize_failed;
                let finalize_failure = failed.then(|| "no space".to_owned());
                Event::BootRead(BootEvidence { finalize_failure })
            }
            Effect::ReadNode if fails => Event::NodeRead(Err(away())),
            Effect::ReadNode => Event::NodeRead(self.hosts[at].node()),
            Effect::Rehearse => Event::Rehearsed(match way {
                Way::Fails => Rehearsal::Blocked(vec![obstacle()]),
                Way::NeverComes => Rehearsal::Failed(away()),
                _ => self.hosts[at].node().map_or_else(Rehearsal::Failed, |_| Rehearsal::Passes),
            }),
            Effect::RequestSlot { .. } => self.request(play, at, way),
            Effect::ReleaseSlot => self.release(play, at, way),
            Effect::Cordon { uid, .. } => self.cordon(at, uid, way),
            Effect::Uncordon => self.uncordon(play, at, way),
            Effect::RestoreCordon => self.restore(at, way),
            Effect::Drain { .. } => self.drain(play, at, way),
            Effect::StopDrain if way == Way::NeverComes => self.drain(play, at, Way::Works),
            Effect::StopDrain => Event::DrainEnded(DrainEnd::Stopped),
            Effect::VerifyEmpty { pods_may_stay, uid } => self.verify(at, uid, *pods_may_stay, way),
            Effect::Reboot { attempt, target } => {
                self.ask_reboot(play, at, attempt.as_str(), &target.identity, way)
            }
            Effect::AllowZincati { .. } => self.allow(play, at, way),
            Effect::UndoReboot { .. } if fails || self.hosts[at].going_down => {
                Event::RebootUndone(Err("going down".to_owned()))
            }
            Effect::UndoReboot { .. } => Event::RebootUndone(Ok(())),
            Effect::CheckHealth => {
                let settle = play.policy.settle_time;
                let host = &mut self.hosts[at];
                // A look that was too early proves nothing.
                host.well = !fails && host.ready.is_some_and(|since| since + settle <= CLOCK);
                Event::HealthChecked(if fails {
                    Health::NotWell(vec!["web.service is failed".to_owned()])
                } else {
                    Health::Well
                })
            }
        }
    }

    /// Whether this agent may act on its slot: it holds it, or could not know that it does not.
    fn may_act(&self, at: usize) -> bool {
        self.holder == Some(at) || self.hosts[at].memory == Memory::Forgot
    }

    fn drain(&mut self, play: &Play, at: usize, way: Way) -> Event {
        if !self.may_act(at) {
            self.breaks(play, 1, format!("n{at} evicts without the slot"));
        }
        if self.hosts[at].memory == Memory::Forgot {
            // It takes a while: what was confirmed before it is older than its end.
            self.pass(Duration::from_secs(1));
        }
        let host = &mut self.hosts[at];
        if way != Way::Fails {
            // Somebody uncordoned: pods may come again, the last look has to see it.
            host.pods = !host.unschedulable && !host.node_gone;
            if host.memory == Memory::Forgot {
                host.memory = Memory::ForgotBeforeALook;
            }
        }
        Event::DrainEnded(match way {
            Way::Fails => DrainEnd::DeadlinePassed(Progress::default()),
            _ => DrainEnd::Empty,
        })
    }

    fn verify(
        &self,
        at: usize,
        uid: &lockkeeper::model::NodeUid,
        pods_may_stay: bool,
        way: Way,
    ) -> Event {
        let host = &self.hosts[at];
        Event::Verified(match host.node() {
            _ if way == Way::Fails => Verification::Failed(away()),
            Err(trouble) => Verification::Failed(trouble),
            Ok(node) if node.uid != *uid => Verification::OtherNode(node.uid),
            Ok(node) if !node.unschedulable => Verification::Uncordoned,
            Ok(_) if host.pods && !pods_may_stay => Verification::NotEmpty(vec![obstacle()]),
            Ok(_) => Verification::Good,
        })
    }

    /// The server grants what is free, and may cordon by itself.
    pub(crate) fn grant(&mut self, play: &Play, at: usize) {
        let host = &mut self.hosts[at];
        if self.holder != Some(at) && play.rules.server_cordons && !host.node_gone {
            host.unschedulable = true;
        }
        self.holder = Some(at);
        host.memory = Memory::Knows;
    }

    fn request(&mut self, play: &Play, at: usize, way: Way) -> Event {
        let failed = |answer_lost| SlotAnswer::Failed {
            kind: "timeout".to_owned(),
            error: "no answer".to_owned(),
            answer_lost,
        };
        let free = self.holder.is_none_or(|holder| holder == at);
        Event::SlotAnswered(match way {
            Way::Fails => failed(false),
            _ => {
                if free {
                    self.grant(play, at);
                } else if !way.told() {
                    self.hosts[at].late_grant = Some(CLOCK + play.policy.answer_timeout);
                } else {
                    self.hosts[at].memory = Memory::ForgotBeforeALook;
                }
                match (way.told(), free) {
                    (false, _) => failed(true),
                    (true, true) => SlotAnswer::Granted,
                    (true, false) => SlotAnswer::Denied {
                        kind: "full".to_owned(),
                        value: "held".to_owned(),
                        retry_after: None,
                    },
                }
            }
        })
    }

    fn release(&mut self, play: &Play, at: usize, way: Way) -> Event {
        if self.hosts[at].zincati_may && way != Way::Fails {
            self.breaks(play, 9, format!("n{at} releases while Zincati may reboot"));
        }
        if self.holder == Some(at) && way != Way::Fails {
            let host = &self.hosts[at];
            let (unproved, cordoned) =
                (host.down_with_slot && !host.well, host.marked && host.unschedulable);
            if unproved {
                self.breaks(play, 6, format!("n{at} releases before it has proved itself well"));
            }
            if cordoned {
                self.breaks(play, 4, format!("n{at} releases while its cordon stands"));
            }
            let host = &mut self.hosts[at];
            host.down_with_slot = false;
            if play.rules.server_cordons && host.unschedulable {
                host.unschedulable = false;
                host.lifted_by_server = host.person_cordoned;
            }
            self.holder = None;
        }
        if way != Way::Fails {
            self.hosts[at].memory = Memory::Knows;
        }
        Event::SlotReleased(match way {
            _ if way.told() => ReleaseAnswer::Released,
            _ => ReleaseAnswer::Failed {
                kind: "timeout".to_owned(),
                error: "no answer".to_owned(),
                retry_after: None,
            },
        })
    }

    fn cordon(&mut self, at: usize, uid: &lockkeeper::model::NodeUid, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let other = host.node_uid() != *uid;
        let foreign = host.unschedulable && !host.marked;
        if way != Way::Fails && !foreign && !other && !host.node_gone {
            host.unschedulable = true;
            host.marked = true;
        }
        Event::Cordoned(match host.node() {
            _ if !way.told() => CordonAnswer::Failed(away()),
            Err(trouble) => CordonAnswer::Failed(trouble),
            Ok(node) if other => CordonAnswer::OtherNode(node.uid),
            Ok(_) if foreign => CordonAnswer::Foreign,
            Ok(_) => CordonAnswer::Ours,
        })
    }

    fn uncordon(&mut self, play: &Play, at: usize, way: Way) -> Event {
        if self.hosts[at].zincati_may && way != Way::Fails {
            self.breaks(play, 9, format!("n{at} uncordons while Zincati may reboot"));
        }
        let host = &mut self.hosts[at];
        let (was, marked) = (host.unschedulable, host.marked);
        let unproved = was && marked && host.down_with_slot && !host.well;
        if way != Way::Fails && marked {
            host.unschedulable = false;
            host.marked = false;
            if unproved {
                self.breaks(play, 6, format!("n{at} uncordons before it has proved itself well"));
            }
        }
        Event::Uncordoned(match (was, marked) {
            _ if !way.told() => UncordonAnswer::Failed(away()),
            _ if self.hosts[at].node_gone => UncordonAnswer::NoNode,
            (true, true) => UncordonAnswer::Lifted,
            (true, false) => UncordonAnswer::Foreign,
            (false, _) => UncordonAnswer::AlreadySchedulable,
        })
    }

    fn restore(&mut self, at: usize, way: Way) -> Event {
        let host = &mut self.hosts[at];
        let lifted = !host.unschedulable;
        if way != Way::Fails && !host.node_gone {
            host.unschedulable = true;
            host.lifted_by_server = false;
        }
        Event::CordonRestored(match way {
            _ if way.told() && !host.node_gone => Ok(lifted),
            _ => Err("away".to_owned()),
        })
    }

    /// Zincati hears that it may reboot, if it is still there.
    fn allow(&mut self, play: &Play, at: usize, way: Way) -> Event {
        self.may_go_down(play, at);
        let host = &mut self.hosts[at];
        let heard = way != Way::Fails && host.zincati_waits;
        host.zincati_waits = false;
        host.zincati_may |= heard;
        Event::ZincatiAllowed(heard)
    }

    /// Zincati finalizes what is staged and reboots. What must hold for that did when it got its leave;
    /// that nothing is undone since then is a promise of its own.
    pub(crate) fn zincati_reboots(&mut self, play: &Play, at: usize) {
        let host = &mut self.hosts[at];
        host.zincati_may = false;
        if let Some(target) = host.staged {
            host.going_down = true;
            self.count_try(play, at, target);
        }
    }

    /// What must hold when this host may go down.
    fn may_go_down(&mut self, play: &Play, at: usize) {
        if !self.may_act(at) {
            self.breaks(play, 1, format!("n{at} reboots without the slot"));
        }
        let host = &self.hosts[at];
        if host.pods && !host.pods_came_late && play.policy.on_deadline != OnDeadline::Reboot {
            self.breaks(play, 1, format!("n{at} reboots with pods that should have gone"));
        }
    }

    fn count_try(&mut self, play: &Play, at: usize, target: &'static str) {
        let tries = self.hosts[at].tries.entry(target).or_insert(0);
        *tries += 1;
        if u32::from(*tries) > play.policy.attempt_limit {
            self.breaks(play, 5, format!("n{at} reboots into {target} again and again"));
        }
    }

    fn ask_reboot(
        &mut self,
        play: &Play,
        at: usize,
        attempt: &str,
        target: &str,
        way: Way,
    ) -> Event {
        self.may_go_down(play, at);
        if self.hosts[at].fell_back.contains(&target) {
            self.breaks(play, 7, format!("n{at} reboots into a target that fell back"));
        }
        if way != Way::Fails {
            let count = self.hosts[at].reboots.entry(attempt.to_owned()).or_insert(0);
            *count += 1;
            if *count > 1 {
                self.breaks(play, 5, format!("n{at} reboots twice for {attempt}"));
            }
        }
        let host = &mut self.hosts[at];
        host.pods_came_late = false;
        let staged = host.staged.filter(|staged| *staged == target);
        let comes = matches!(way, Way::Works | Way::WorksButAnswerLost | Way::WorksAndKilled);
        host.going_down = comes && staged.is_some();
        if let (true, Some(target)) = (host.going_down, staged) {
            self.count_try(play, at, target);
        }
        Event::RebootAnswered(match way {
            Way::Fails => RebootAnswer::Refused("blocked".to_owned()),
            _ if staged.is_none() => RebootAnswer::Refused("nothing is staged".to_owned()),
            Way::WorksButAnswerLost => RebootAnswer::Unknown("NoReply".to_owned()),
            _ => RebootAnswer::Accepted,
        })
    }
}

fn obstacle() -> Obstacle {
    let kind = ObstacleKind::Budget { budget: Some("web".to_owned()), says: "0 left".to_owned() };
    Obstacle { namespace: "default".to_owned(), pod: "web-1".to_owned(), kind }
}
