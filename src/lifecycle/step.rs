//! One event in, one step out.

use std::time::Duration;

use crate::drain::Progress;
use crate::fleetlock::{ReleaseAnswer, SlotAnswer};
use crate::model::{Now, SENTINEL_PREFIX, SystemView};

use super::effect::Lane;
use super::event::{Command, DrainEnd, Event, NodeTrouble, RebootAnswer, Rehearsal, Verification};
use super::heart::{Heart, later};
use super::node::{LIFTED, REPLACED};
use super::policy::Policy;
use super::record::{Asked, Hold, Slot, Stage};
use super::state::{Because, Rehearsed, State, Step};

/// How soon a slot server that is at work is asked again.
const PENDING_RETRY: Duration = Duration::from_secs(5);

/// A sentinel that comes back sooner after a boot asks for the same reboot once more.
const SENTINEL_CALM: Duration = Duration::from_secs(3600);

/// The longest `Retry-After` that is obeyed, so that a server cannot stop a node for good.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The heart: what follows from this event. Nothing is read, written or waited for.
pub fn step(policy: &Policy, state: &State, now: Now, event: Event) -> Step {
    let mut heart = Heart::new(policy, state.clone(), now);
    heart.absorb(event);
    heart.decide()
}

impl Heart<'_> {
    fn absorb(&mut self, event: Event) {
        let at = self.now.since_boot;
        match event {
            Event::Woke | Event::ClockSet => {}
            Event::PolicyChanged => self.policy_changed(),
            Event::HostChanged => self.state.view.host_changed = true,
            Event::System(system) => self.saw_system(system),
            Event::SystemUnreadable(why) => self.state.view.system_trouble = Some(why),
            Event::Node(node) => self.saw_node(node, false),
            Event::NodeTrouble(trouble) => {
                self.ends_the_drain(&trouble, false);
                self.state.view.node = Some(Err(trouble));
            }
            Event::HoldFile(text) => self.state.view.hold_file = text,
            Event::PreparingForShutdown(going) => self.shutdown(going),
            Event::ZincatiWaits(waits) => self.zincati_waits(waits),
            Event::ZincatiSteady => self.zincati_begins(),
            Event::ZincatiAllowed(heard) => self.zincati_allowed(heard),
            Event::Person(command) => self.person(command),
            Event::RecordUnwritable(why) => self.state.unwritable = Some(why),
            Event::RecordWritten => self.state.unwritable = None,
            Event::NotDone(lane) => {
                self.state.in_flight.remove(&lane);
            }
            Event::Inspected(host) => {
                self.lane_ok(Lane::Host);
                self.state.view.host = Some((host, at));
                self.state.run.other_client_checked |= !self.state.view.host_changed;
            }
            Event::BootRead(evidence) => {
                self.lane_ok(Lane::Boot);
                self.state.view.evidence = Some(evidence);
            }
            Event::NodeRead(answer) => self.read_node(answer),
            Event::Rehearsed(rehearsal) => self.rehearsed(rehearsal),
            Event::SlotAnswered(answer) => self.slot_answered(answer),
            Event::SlotReleased(answer) => self.slot_released(answer),
            Event::Cordoned(answer) => self.cordoned(answer),
            Event::DrainProgress(progress) => self.progressed(progress),
            Event::DrainEnded(end) => self.drain_ended(end),
            Event::Verified(verification) => self.verified(verification),
            Event::RebootAnswered(answer) => self.reboot_answered(answer),
            Event::RebootUndone(result) => self.reboot_undone(result),
            Event::HealthChecked(health) => {
                self.lane_ok(Lane::Health);
                self.state.view.health = Some(health);
                self.state.run.checked = Some(at);
            }
            Event::Uncordoned(answer) => self.uncordoned(answer),
            Event::CordonRestored(result) => match result {
                Ok(_) => {
                    self.lane_ok(Lane::Node);
                    self.state.run.cordon_restored = true;
                    // A release that is under way may lift it once more.
                    let releasing = self.state.in_flight.contains(&Lane::Slot);
                    self.state.record.cordon_owed &= releasing;
                    // The watch may still show what the release had lifted.
                    if let Some(Ok(node)) = &mut self.state.view.node {
                        node.unschedulable = true;
                    }
                }
                Err(why) => self.node_failed(NodeTrouble::Unreachable(why)),
            },
        }
    }

    fn saw_system(&mut self, system: SystemView) {
        let before = self.state.view.system.replace(system);
        let now = self.state.view.system.as_ref();
        self.state.view.system_trouble = None;
        if before.as_ref().and_then(SystemView::target) != now.and_then(SystemView::target) {
            // The unit that finalizes and the room on /boot were looked at without it.
            self.state.view.host_changed = true;
        }
        // A sentinel that is gone while the host runs on has had its reboot; one that comes back with
        // each boot counts on, up to the limit.
        if let (Some(before), true) = (before, self.now.since_boot >= SENTINEL_CALM) {
            let gone = |id: &String| !before.wants.iter().any(|want| want.identity == *id);
            let tries = &mut self.state.record.tries;
            tries.retain(|id, _| !(id.starts_with(SENTINEL_PREFIX) && gone(id)));
        }
    }

    // === People and host ===

    fn person(&mut self, command: Command) {
        match command {
            Command::Hold { reason, by } => {
                self.state.record.hold = Some(Hold { reason, by, since: self.now.wall });
            }
            Command::Resume => {
                // One word ends one thing: who ends a hold did not look at a bad update.
                if self.state.record.hold.take().is_some() {
                    return;
                }
                if self.slot_elsewhere().is_some() {
                    self.forget_slot();
                }
                if self.state.record.core.stage == Stage::Halted {
                    self.go(Stage::Releasing, Because::Resumed, None);
                }
            }
            Command::Reboot { reason, by } => {
                self.state.record.asked = Some(Asked { reason, by, since: self.now.wall });
            }
            Command::CancelReboot => self.state.record.asked = None,
            Command::Retry => {
                let halted = self.state.record.core.attempt.as_ref().map(|a| a.target.clone());
                for target in self.state.reasons().into_iter().chain(halted) {
                    self.state.record.denied.remove(&target.identity);
                    self.state.record.tries.remove(&target.identity);
                }
                self.state.record.backoff_until = None;
                self.state.record.yields = 0;
                self.state.view.blocked_rehearsals = 0;
                self.state.view.rehearsal = None;
                self.state.view.host = None;
                self.state.not_before.clear();
                self.state.failures.clear();
            }
        }
    }

    /// What was looked at by the old rules is looked at anew.
    fn policy_changed(&mut self) {
        self.state.config_wrong = None;
        self.state.view.host_changed = true;
        self.state.view.rehearsal = None;
        self.state.run.verified = false;
        self.state.run.well_since = None;
        self.state.run.checked = None;
    }

    fn shutdown(&mut self, going: bool) {
        let was = std::mem::replace(&mut self.state.view.preparing_for_shutdown, going);
        if going {
            // It comes after all: what was undone before it says nothing any more.
            self.state.run.undone = false;
            self.state.run.undo_failed = None;
        }
        if !going {
            self.state.view.host = None;
        }
        let rebooting = self.state.record.core.stage == Stage::Rebooting;
        if was && !going && rebooting && self.state.run.undo.is_none() {
            self.state.run.undo = Some("the shutdown was abandoned".to_owned());
        }
    }

    // === Drain ===

    fn rehearsed(&mut self, rehearsal: Rehearsal) {
        let at = self.now.since_boot;
        match rehearsal {
            Rehearsal::Passes => {
                self.lane_ok(Lane::Drain);
                self.state.view.blocked_rehearsals = 0;
                self.state.view.rehearsal = Some((Rehearsed::Passes, at));
            }
            Rehearsal::Blocked(obstacles) => {
                self.lane_ok(Lane::Drain);
                let blocked = &mut self.state.view.blocked_rehearsals;
                *blocked = blocked.saturating_add(1);
                self.state.view.rehearsal = Some((Rehearsed::Blocked(obstacles), at));
            }
            Rehearsal::Failed(trouble) => {
                self.lane_failed(Lane::Drain, super::heart::trouble_rest(&trouble));
                self.state.view.rehearsal = Some((Rehearsed::Failed(trouble), at));
            }
        }
    }

    /// News of a drain whose stage is over is none.
    fn progressed(&mut self, progress: Progress) {
        if matches!(self.state.record.core.stage, Stage::Draining | Stage::Yielding) {
            self.state.view.progress = Some(progress);
        }
    }

    fn drain_ended(&mut self, end: DrainEnd) {
        self.lane_ok(Lane::Drain);
        match end {
            DrainEnd::Empty => {
                self.state.run.drained = true;
                self.state.run.drained_at = self.now.since_boot;
                self.state.run.verified = false;
            }
            DrainEnd::DeadlinePassed(progress) => {
                let left: Vec<String> =
                    progress.obstacles.iter().take(8).map(ToString::to_string).collect();
                self.state.view.progress = Some(progress);
                let text = format!("the drain did not finish: {}", left.join(", "));
                self.state.run.broken.get_or_insert((Because::DrainDeadline, text));
            }
            DrainEnd::Impossible(obstacles) => {
                let left: Vec<String> = obstacles.iter().take(8).map(ToString::to_string).collect();
                let text = format!("the drain cannot finish: {}", left.join(", "));
                self.state.run.broken.get_or_insert((Because::DrainImpossible, text));
            }
            DrainEnd::Stopped => {}
        }
    }

    fn verified(&mut self, verification: Verification) {
        self.state.run.node_trouble = None;
        match verification {
            Verification::Good => {
                self.lane_ok(Lane::Drain);
                self.state.run.verified = true;
            }
            Verification::Uncordoned => {
                self.lane_ok(Lane::Drain);
                self.turn_back(Because::ForeignUncordon, LIFTED);
            }
            Verification::NotEmpty(_) => {
                self.lane_ok(Lane::Drain);
                self.state.run.drained = false;
            }
            Verification::OtherNode(_) => {
                self.lane_ok(Lane::Drain);
                self.turn_back(Because::OtherNode, REPLACED);
            }
            Verification::Failed(trouble) => {
                if self.ends_the_drain(&trouble, true) {
                    self.lane_ok(Lane::Drain);
                    return;
                }
                let rest = super::heart::trouble_rest(&trouble);
                self.lane_failed(Lane::Drain, rest);
                self.state.run.node_trouble = Some(trouble);
            }
        }
    }

    // === Slot ===

    fn slot_answered(&mut self, answer: SlotAnswer) {
        let asked_first = std::mem::take(&mut self.state.view.asked_first);
        match &answer {
            SlotAnswer::Granted => {
                self.lane_ok(Lane::Slot);
                let since = self.now.wall;
                let slot = &mut self.state.record.core.slot;
                if !matches!(slot, Slot::Held { .. }) {
                    *slot = Slot::Held { since };
                }
                // A request whose answer was lost may still be on its way, and come after the release.
                self.state.run.confirmed = Some(self.now.since_boot);
                self.state.view.slot_answer = None;
                return;
            }
            SlotAnswer::Denied { retry_after, value, kind } => {
                let delay = retry_after.unwrap_or(self.policy.denial_retry).min(RETRY_AFTER_MAX);
                self.lane_rests(Lane::Slot, delay);
                self.state.failures.remove(&Lane::Slot);
                if self.state.record.core.stage == Stage::Draining {
                    let text = format!("the slot server takes the slot back ({kind}): {value}");
                    self.state.run.broken.get_or_insert((Because::SlotLost, text));
                }
            }
            SlotAnswer::Pending { retry_after, .. } => {
                let delay = retry_after.unwrap_or(PENDING_RETRY).min(RETRY_AFTER_MAX);
                self.lane_rests(Lane::Slot, delay);
                self.state.failures.remove(&Lane::Slot);
            }
            SlotAnswer::Failed { answer_lost, .. } => {
                if *answer_lost {
                    self.lose_answer();
                } else if asked_first {
                    self.forget_slot();
                }
                self.lane_failed(Lane::Slot, None);
            }
        }
        self.state.view.slot_answer = Some(answer);
    }

    /// No slot is ours.
    fn forget_slot(&mut self) {
        self.state.record.core.slot = Slot::None;
        self.state.record.slot_at = None;
    }

    /// A request may yet be granted by its server: release once more when it must have ended.
    pub(super) fn lose_answer(&mut self) {
        let timeout = self.policy.answer_timeout;
        self.state.record.release_again = Some(later(self.now.wall, timeout));
        self.state.view.lost_request_ends = Some(self.now.since_boot.saturating_add(timeout));
    }

    fn slot_released(&mut self, answer: ReleaseAnswer) {
        match answer {
            ReleaseAnswer::Released | ReleaseAnswer::HeldByAnother { .. } => {
                self.lane_ok(Lane::Slot);
                self.forget_slot();
                self.state.run.release_trouble = None;
                if self.lost_request_ended() {
                    self.state.record.release_again = None;
                    self.state.view.lost_request_ends = None;
                }
            }
            ReleaseAnswer::Failed { kind, error, retry_after } => {
                self.lane_failed(Lane::Slot, retry_after.map(|r| r.min(RETRY_AFTER_MAX)));
                self.state.run.release_trouble = Some((kind, error));
            }
        }
    }

    // === Reboot ===

    fn reboot_answered(&mut self, answer: RebootAnswer) {
        self.lane_ok(Lane::Reboot);
        match answer {
            RebootAnswer::Accepted | RebootAnswer::Unknown(_) => {
                self.state.run.reboot_answered = Some(self.now.since_boot);
            }
            RebootAnswer::Refused(why) => {
                self.state.run.broken = Some((Because::RebootRefused, why));
            }
        }
    }

    fn reboot_undone(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.lane_ok(Lane::Reboot);
                self.state.run.undone = !self.state.view.preparing_for_shutdown;
                self.state.run.undo_failed = None;
            }
            Err(why) => {
                self.lane_failed(Lane::Reboot, Some(Duration::from_secs(10)));
                self.state.run.undo_failed = Some(why);
            }
        }
    }
}
