//! Before the node is touched: idle, waiting, requesting.

use super::effect::{Effect, Lane};
use super::event::NodeView;
use super::gates::Shut;
use super::heart::{Heart, Verdict};
use super::record::{Cordon, Outcome, Slot, Stage};
use super::state::Because;
use super::waiting::Waiting;
use crate::fleetlock::SlotAnswer;
use crate::model::Target;

impl Heart<'_> {
    pub(super) fn idle(&mut self) -> Verdict {
        if let Some(reason) = self.release_once_more() {
            return Verdict::Wait(reason);
        }
        if self.state.record.release_again.is_none() {
            self.state.record.core.cordon = Cordon::None;
        }
        let reasons = match self.reasons() {
            Err(unknown) => return Verdict::Wait(unknown),
            Ok(reasons) => reasons,
        };
        let mut reasons = reasons.into_iter();
        match (reasons.next(), self.state.view.system_trouble.clone()) {
            (Some(target), _) => {
                self.begin_attempt(target, reasons.collect());
                Verdict::Go(Stage::Waiting, Because::UpdateSeen, None)
            }
            // An update may wait where nobody could look.
            (None, Some(why)) => Verdict::Wait(Waiting::SystemUnknown(Some(why))),
            (None, None) if !self.state.reasons().is_empty() => {
                Verdict::Wait(Waiting::ZincatiHasNotAsked)
            }
            (None, None) => Verdict::Wait(Waiting::NoUpdate),
        }
    }

    pub(super) fn waiting(&mut self) -> Verdict {
        let owed = self.release_once_more();
        if let Some(verdict) = self.follow_target() {
            return verdict;
        }
        if let Some(reason) = owed {
            return Verdict::Wait(reason);
        }
        if self.state.in_flight.contains(&Lane::Slot) {
            // The release of a lost answer must not overtake the next request.
            return Verdict::Wait(Waiting::ReleasingSlot);
        }
        match self.gates_before() {
            Ok(()) => Verdict::Go(Stage::Requesting, Because::GatesOpen, None),
            Err(shut) => Verdict::Wait(shut.reason()),
        }
    }

    pub(super) fn requesting(&mut self) -> Verdict {
        if let Slot::Held { .. } = self.state.record.core.slot {
            let verdict = Verdict::Go(Stage::Draining, Because::Granted, None);
            let record = &mut self.state.record;
            record.drain_began = Some(self.now.since_boot.as_secs());
            return verdict;
        }
        if let Some(verdict) = self.follow_target() {
            return verdict;
        }
        // Else an older request of ours, granted to a boot that has ended, would deny this one for good.
        if let Some(reason) = self.release_once_more() {
            return Verdict::Wait(reason);
        }
        if let Some(elsewhere) = self.slot_elsewhere() {
            return self.give_up(Because::SlotLost, elsewhere.to_string());
        }
        match self.gates_before() {
            Ok(()) => {}
            // What the server said last is news; that the host is looked at meanwhile is none.
            Err(Shut::Asking(reason)) if self.state.view.slot_answer.is_none() => {
                return Verdict::Wait(reason);
            }
            Err(Shut::Asking(_)) => return Verdict::Wait(self.slot_reason()),
            Err(Shut::Closed(reason)) if reason == Waiting::ShuttingDown => {
                return Verdict::Wait(reason);
            }
            Err(Shut::Strictly(reason) | Shut::Closed(reason)) => {
                let text = reason.to_string();
                let held = matches!(reason, Waiting::Held { .. });
                let because = if held { Because::Held } else { Because::GateClosed };
                self.ending(Outcome::Yielded, Some(text.clone()));
                return Verdict::Go(Stage::Yielding, because, Some(text));
            }
        }
        // Once a request went out, the server may have cordoned: what was noted before it counts.
        let noted = self.state.run.node_read || self.slot_may_be_ours();
        if self.is_node() && !noted {
            self.launch(Effect::ReadNode);
            return Verdict::Wait(self.node_trouble_or(Waiting::NodeUnknown));
        }
        let Some(attempt) = self.attempt_id() else {
            return Verdict::Go(Stage::Releasing, Because::UpdateWithdrawn, None);
        };
        if self.launch(Effect::RequestSlot { attempt }) {
            self.state.view.asked_first = self.state.nothing_asked();
            self.state.record.core.slot = Slot::Asked;
            self.state.record.slot_at = self.policy.slot_place.clone();
        }
        Verdict::Wait(self.slot_reason())
    }

    /// Why the slot is not there yet: the server's last word, also while it is asked again.
    pub(super) fn slot_reason(&self) -> Waiting {
        match &self.state.view.slot_answer {
            None | Some(SlotAnswer::Granted) => Waiting::SlotAsked,
            Some(SlotAnswer::Denied { kind, value, .. }) => {
                Waiting::SlotDenied { kind: kind.clone(), value: value.clone() }
            }
            Some(SlotAnswer::Pending { value, .. }) => Waiting::SlotPending(value.clone()),
            Some(SlotAnswer::Failed { kind, error, .. }) => {
                Waiting::SlotFailed { kind: kind.clone(), error: error.clone() }
            }
        }
    }

    /// What the Node says of itself is kept before the slot is asked for: some slot servers cordon
    /// by themselves, and a person's cordon must be told apart from theirs.
    pub(super) fn note_node(&mut self, node: &NodeView) {
        let record = &mut self.state.record;
        record.node_uid = Some(node.uid.clone());
        record.core.cordon = match (node.unschedulable, &node.mark) {
            (true, None) => Cordon::Foreign,
            (true, Some(_)) => Cordon::Ours,
            (false, _) => Cordon::None,
        };
        self.state.run.node_read = true;
    }

    /// The attempt follows what the update system would boot: replaced by a newer update it goes
    /// on with that; withdrawn it ends.
    pub(super) fn follow_target(&mut self) -> Option<Verdict> {
        let mut reasons = match self.reasons() {
            Ok(reasons) => reasons.into_iter(),
            Err(unknown) => return Some(Verdict::Wait(unknown)),
        };
        let target = match reasons.next() {
            Some(target) => target,
            None => {
                self.ending(Outcome::Withdrawn, None);
                let untouched = self.state.record.core.stage == Stage::Waiting;
                let back = if untouched { Stage::Idle } else { Stage::Yielding };
                return Some(Verdict::Go(back, Because::UpdateWithdrawn, None));
            }
        };
        let also: Vec<Target> = reasons.collect();
        match &mut self.state.record.core.attempt {
            Some(attempt) => {
                if !attempt.target.is_still(&target) {
                    attempt.target = target;
                }
                attempt.also = also;
            }
            None => self.begin_attempt(target, also),
        }
        None
    }

    /// A server that was told to hold a request may have granted it after our release: where an
    /// answer was lost, the slot is released once more when that request must have ended. What that
    /// lifts is put back before anything else: this is the reason to wait then.
    fn release_once_more(&mut self) -> Option<Waiting> {
        self.bound_wall_times();
        if let Some(at) = self.state.record.release_again {
            let why = "release once more after a lost answer";
            if !self.lost_request_ended() {
                match self.state.view.lost_request_ends {
                    Some(ends) => self.wake_at(ends, why),
                    None => self.wake_at_wall(at, why),
                }
            } else if self.launch(Effect::ReleaseSlot) {
                let lifted = self.node().is_ok_and(|node| !node.unschedulable);
                // An agent before this one may have come as far as the lifting.
                self.state.record.cordon_owed |=
                    self.state.record.core.cordon == Cordon::Foreign && !lifted;
            }
        }
        if !self.state.record.cordon_owed || !self.is_node() {
            return None;
        }
        if self.state.in_flight.contains(&Lane::Slot) {
            return Some(Waiting::ReleasingSlot);
        }
        self.launch(Effect::RestoreCordon);
        Some(self.node_trouble_or(Waiting::RestoringCordon))
    }

    /// Whether a request whose answer was lost must have ended at the server by now. A wall clock that
    /// is set in between has no say, unless an earlier process lost the answer.
    pub(super) fn lost_request_ended(&self) -> bool {
        let Some(at) = self.state.record.release_again else { return false };
        match self.state.view.lost_request_ends {
            Some(ends) => ends <= self.now.since_boot,
            None => at <= self.now.wall,
        }
    }
}
