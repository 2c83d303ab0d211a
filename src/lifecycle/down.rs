//! With the slot held: draining, rebooting, and the way back before the reboot.

use std::time::Duration;

use super::effect::{Effect, Lane};
use super::gates::Shut;
use super::heart::{Heart, Verdict};
use super::policy::{OnDeadline, OnForeignUncordon};
use super::record::{Cordon, Outcome, Slot, Stage};
use super::state::Because;
use super::waiting::Waiting;
use crate::fleetlock::SlotAnswer;

/// What the looks between drain and reboot get at least, however long the drain took.
const LAST_LOOK_TIME: Duration = Duration::from_secs(60);

/// How often a closed gate is looked at again while the slot is held.
const HELD_RECHECK: Duration = Duration::from_secs(10);

/// How often undoing a reboot fails before it is told as stuck.
const UNDO_TRIES: u32 = 2;

impl Heart<'_> {
    pub(super) fn draining(&mut self) -> Verdict {
        // An older agent may have dropped it; a deadline that begins anew with each step never ends.
        self.state.record.drain_began.get_or_insert(self.now.since_boot.as_secs());
        if let Some(because) = self.broken_off() {
            return because;
        }
        if let Some(verdict) = self.follow_target() {
            return match verdict {
                Verdict::Go(stage, because, detail) => Verdict::Go(stage, because, detail),
                Verdict::Wait(reason) => self.until_deadline(reason),
            };
        }
        if self.state.view.preparing_for_shutdown {
            return Verdict::Wait(Waiting::ShuttingDown);
        }
        let Some(attempt) = self.attempt_id() else {
            return Verdict::Go(Stage::Yielding, Because::UpdateWithdrawn, None);
        };
        if self.state.run.confirmed.is_none() {
            self.launch(Effect::RequestSlot { attempt });
            let reason = self.confirm_reason();
            return self.until_deadline(reason);
        }
        if !self.state.run.drained {
            return self.emptying(attempt);
        }
        self.last_looks(attempt)
    }

    /// Cordon and drain; meanwhile the slot is confirmed from time to time.
    fn emptying(&mut self, attempt: crate::model::AttemptId) -> Verdict {
        if !self.is_node() {
            self.state.run.drained = true;
            self.state.run.drained_at = self.now.since_boot;
            return self.last_looks(attempt);
        }
        if let Some(confirmed) = self.state.run.confirmed
            && self.passed(confirmed, self.policy.confirm_every, "confirm the slot")
        {
            self.launch(Effect::RequestSlot { attempt: attempt.clone() });
        }
        if self.state.run.doubt_node {
            self.launch(Effect::ReadNode);
            let reason = self.node_trouble_or(Waiting::Cordoning);
            return self.until_deadline(reason);
        }
        if !self.state.run.cordoned {
            return self.cordon(attempt);
        }
        if self.state.in_flight.contains(&Lane::Drain) {
            return Verdict::Wait(Waiting::Draining);
        }
        let (within, delete) = if self.state.run.deleting {
            (self.policy.delete_timeout, true)
        } else {
            (self.remaining(self.policy.drain_deadline), false)
        };
        if self.launch(Effect::Drain { attempt, within, delete }) {
            return Verdict::Wait(Waiting::Draining);
        }
        // Nothing runs that would end by itself.
        self.until_deadline(Waiting::Draining)
    }

    fn cordon(&mut self, attempt: crate::model::AttemptId) -> Verdict {
        let Some(uid) = self.state.record.node_uid.clone() else {
            self.launch(Effect::ReadNode);
            let reason = self.node_trouble_or(Waiting::NodeUnknown);
            return self.until_deadline(reason);
        };
        let foreign = self.state.record.core.cordon == Cordon::Foreign;
        if self.launch(Effect::Cordon { attempt, uid }) && !foreign {
            self.state.record.core.cordon = Cordon::Ours;
        }
        let reason = self.node_trouble_or(Waiting::Cordoning);
        self.until_deadline(reason)
    }

    /// Between drain and reboot: the gates again, the slot again, the node again.
    fn last_looks(&mut self, attempt: crate::model::AttemptId) -> Verdict {
        if let Err(shut) = self.gates_again() {
            return match shut {
                Shut::Strictly(reason) => self.give_up(Because::GateClosed, reason.to_string()),
                Shut::Asking(reason) => self.until_deadline(reason),
                Shut::Closed(reason) => {
                    // It may be closed for long: slot and node are looked at anew behind it.
                    self.state.run.verified = false;
                    self.state.run.confirmed = self.state.run.confirmed.map(|_| Duration::ZERO);
                    self.until_deadline(reason)
                }
            };
        }
        if self.through_zincati() && !self.state.view.zincati.waits {
            // It may be gone for minutes: slot and node are looked at anew when it asks.
            self.state.run.verified = false;
            self.state.run.confirmed = self.state.run.confirmed.map(|_| Duration::ZERO);
            return self.until_deadline(Waiting::ZincatiMustAsk);
        }
        let drained_at = self.state.run.drained_at;
        let oldest = self.now.since_boot.saturating_sub(self.policy.confirm_every).max(drained_at);
        if self.state.run.confirmed.is_none_or(|confirmed| confirmed < oldest) {
            self.launch(Effect::RequestSlot { attempt });
            let reason = self.confirm_reason();
            return self.until_deadline(reason);
        }
        if self.is_node() && !self.state.run.verified {
            if let Some(uid) = self.state.record.node_uid.clone() {
                let pods_may_stay = self.state.run.pods_may_stay;
                self.launch(Effect::VerifyEmpty { uid, pods_may_stay });
            }
            let trouble = self.state.run.node_trouble.clone();
            return self.until_deadline(trouble.map_or(Waiting::Verifying, Waiting::Node));
        }
        self.commit()
    }

    /// The point of no return: from here on the record says that the host may go down.
    fn commit(&mut self) -> Verdict {
        let booted = self.state.view.system.as_ref().and_then(|system| system.booted());
        let place = booted.and_then(|deployment| deployment.place.clone());
        let booted = booted.map(|deployment| deployment.identity.clone());
        let boot = self.state.boot.clone();
        let by_zincati = self.through_zincati();
        let record = &mut self.state.record;
        if let Some(attempt) = &mut record.core.attempt {
            if attempt.boot_before.is_none() {
                attempt.boot_before = Some(boot);
                attempt.booted_before = booted;
                attempt.place_before = place;
            }
            attempt.by_zincati = by_zincati;
            let tries = record.tries.entry(attempt.target.identity.clone()).or_insert(0);
            *tries = tries.saturating_add(1);
        }
        Verdict::Go(Stage::Rebooting, Because::NodeEmpty, None)
    }

    fn gates_again(&mut self) -> Result<(), Shut> {
        let needs = self.policy.reboot_estimate;
        self.standing_gates(needs)?;
        let known = self.state.view.host.as_ref().map(|(_, at)| *at);
        let fresh = known.is_some_and(|at| at >= self.state.run.drained_at);
        if !fresh {
            self.state.view.host = None;
        } else if let Some(at) = known {
            // A closed gate is looked at more often than while nothing is held.
            let closed = self.host_gates().is_err();
            if closed && self.passed(at, HELD_RECHECK, "look at the gate again") {
                self.launch(Effect::Inspect);
            }
        }
        self.host_gates()
    }

    /// Reasons to turn back that came with an event.
    fn broken_off(&mut self) -> Option<Verdict> {
        if let Some(held) = super::gates::hold(&self.state) {
            let text = held.to_string();
            self.ending(Outcome::Yielded, Some(text.clone()));
            return Some(Verdict::Go(Stage::Yielding, Because::Held, Some(text)));
        }
        if let Some(elsewhere) = self.slot_elsewhere() {
            return Some(self.give_up(Because::SlotLost, elsewhere.to_string()));
        }
        let (because, detail) = self.state.run.broken.clone()?;
        if because == Because::ForeignUncordon
            && self.policy.on_foreign_uncordon == OnForeignUncordon::Cordon
        {
            self.state.run.broken = None;
            self.state.run.cordoned = false;
            self.state.run.drained = false;
            self.state.run.verified = false;
            return None;
        }
        if because == Because::DrainDeadline {
            match self.policy.on_deadline {
                OnDeadline::Yield => {}
                OnDeadline::Delete if self.state.run.deleting => {}
                OnDeadline::Delete => {
                    self.state.run.broken = None;
                    self.state.run.deleting = true;
                    return None;
                }
                OnDeadline::Reboot => {
                    self.state.run.broken = None;
                    self.state.run.pods_may_stay = true;
                    self.state.run.drained = true;
                    self.state.run.drained_at = self.now.since_boot;
                    return None;
                }
            }
        }
        Some(self.give_up(because, detail))
    }

    /// Turns back: the attempt ends as yielded, and the next one waits a while.
    pub(super) fn give_up(&mut self, because: Because, detail: String) -> Verdict {
        self.ending(Outcome::Yielded, Some(detail.clone()));
        self.back_off();
        Verdict::Go(Stage::Yielding, because, Some(detail))
    }

    /// Waits for this reason until the drain's deadline, then turns back.
    fn until_deadline(&mut self, reason: Waiting) -> Verdict {
        let mut left = self.remaining(self.policy.drain_deadline);
        if self.state.run.drained {
            let looked = self.now.since_boot.saturating_sub(self.state.run.drained_at);
            left = left.max(LAST_LOOK_TIME.saturating_sub(looked));
        }
        if !left.is_zero() {
            self.wake_at(self.now.since_boot.saturating_add(left), "the drain's deadline");
            return Verdict::Wait(reason);
        }
        if let Some(why) = self.state.unwritable.clone() {
            return self.give_up(Because::RecordUnwritable, why);
        }
        let slot = matches!(
            reason,
            Waiting::Confirming | Waiting::SlotFailed { .. } | Waiting::SlotPending(_)
        );
        let because = match (slot, self.state.run.drained) {
            (true, _) => Because::SlotUnconfirmed,
            (false, true) => Because::GateClosed,
            (false, false) => Because::DrainDeadline,
        };
        let text = reason.to_string();
        self.give_up(because, text)
    }

    /// What is left of a time that began with the drain.
    fn remaining(&self, length: Duration) -> Duration {
        let now = self.now.since_boot;
        // The record comes from a disk: what it says of the future began now.
        let began = self.state.record.drain_began.map_or(now, Duration::from_secs).min(now);
        began.saturating_add(length).saturating_sub(now)
    }

    /// Why the slot is not confirmed yet.
    fn confirm_reason(&self) -> Waiting {
        match &self.state.view.slot_answer {
            Some(SlotAnswer::Failed { .. } | SlotAnswer::Pending { .. }) => self.slot_reason(),
            Some(SlotAnswer::Granted | SlotAnswer::Denied { .. }) | None => Waiting::Confirming,
        }
    }

    // === Rebooting ===

    pub(super) fn rebooting(&mut self) -> Verdict {
        if self.state.view.preparing_for_shutdown {
            self.state.run.undo = None;
            return Verdict::Wait(Waiting::ShuttingDown);
        }
        let Some(attempt) = self.state.record.core.attempt.clone() else {
            return Verdict::Go(Stage::Yielding, Because::RebootNeverCame, None);
        };
        if let Some((because, why)) = self.state.run.broken.clone() {
            self.uncount(&attempt.target.identity);
            return self.give_up(because, why);
        }
        if self.state.run.undo.is_some() {
            return self.undoing(attempt.target);
        }
        let by_zincati = attempt.by_zincati;
        let pending = if by_zincati { Waiting::ZincatiMayReboot } else { Waiting::ShutdownPending };
        if self.state.in_flight.contains(&Lane::Reboot) {
            return Verdict::Wait(pending);
        }
        if by_zincati && let Some(verdict) = self.zincati_turns(&attempt.target) {
            return verdict;
        }
        if let Some(answered) = self.state.run.reboot_answered {
            return match self.never_came(by_zincati, answered) {
                Some(why) => {
                    self.state.run.undo = Some(why);
                    self.undoing(attempt.target)
                }
                None => Verdict::Wait(pending),
            };
        }
        let (id, target) = (attempt.id, attempt.target);
        if self.state.unwritable.is_some() {
            self.uncount(&target.identity);
            return self.give_up(Because::RecordUnwritable, "nothing was asked for".to_owned());
        }
        self.launch(match by_zincati {
            true => Effect::AllowZincati { attempt: id },
            false => Effect::Reboot { attempt: id, target },
        });
        Verdict::Wait(pending)
    }

    /// Why a reboot that was asked for is not expected any more; else the agent is woken when it is.
    fn never_came(&mut self, by_zincati: bool, answered: Duration) -> Option<String> {
        if by_zincati {
            return self.zincati_never_came(answered);
        }
        let wait = self.policy.shutdown_wait;
        let passed = self.passed(answered, wait, "the reboot should have begun");
        passed.then(|| format!("no shutdown began within {} s", wait.as_secs()))
    }

    /// Makes a reboot that did not come undone; only then may the node serve again.
    pub(super) fn undoing(&mut self, target: crate::model::Target) -> Verdict {
        if self.state.run.undone {
            let why = self.state.run.undo.clone().unwrap_or_default();
            self.ending(Outcome::RebootNeverCame, Some(why.clone()));
            self.back_off();
            return Verdict::Go(Stage::Yielding, Because::RebootNeverCame, Some(why));
        }
        self.launch(Effect::UndoReboot { target });
        let rebooting = self.state.record.core.stage == Stage::Rebooting;
        let failures = self.state.failures.get(&Lane::Reboot).copied().unwrap_or(0);
        match self.state.run.undo_failed.clone() {
            None => Verdict::Wait(Waiting::UndoingReboot),
            // The first time it may be a shutdown whose news is still on its way.
            Some(_) if rebooting && failures < UNDO_TRIES => Verdict::Wait(Waiting::UndoingReboot),
            Some(why) if rebooting => {
                Verdict::Go(Stage::Stuck, Because::RebootUnresolved, Some(why))
            }
            Some(why) => Verdict::Wait(Waiting::RebootUnresolved(why)),
        }
    }

    /// A reboot that was refused before anything changed is no try.
    pub(super) fn uncount(&mut self, identity: &str) {
        let tries = &mut self.state.record.tries;
        if let Some(count) = tries.get_mut(identity) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                tries.remove(identity);
            }
        }
        if let Some(attempt) = &mut self.state.record.core.attempt {
            attempt.boot_before = None;
            attempt.booted_before = None;
            attempt.place_before = None;
            attempt.by_zincati = false;
        }
    }

    // === The way back ===

    pub(super) fn yielding(&mut self) -> Verdict {
        if self.state.in_flight.contains(&Lane::Drain) {
            if !self.state.run.stopping {
                self.state.run.stopping = true;
                self.effects.push(Effect::StopDrain);
            }
            return Verdict::Wait(Waiting::StoppingDrain);
        }
        match self.lift_cordon() {
            Some(waiting) => Verdict::Wait(waiting),
            None => Verdict::Go(Stage::Releasing, Because::Uncordoned, None),
        }
    }

    /// Lifts what carries our mark, whatever the record says; a person's cordon is left alone.
    /// `None` when that is done.
    pub(super) fn lift_cordon(&mut self) -> Option<Waiting> {
        if !self.is_node() || self.state.run.uncordoned {
            return None;
        }
        self.launch(Effect::Uncordon);
        let trouble = self.state.run.node_trouble.clone();
        Some(trouble.map_or(Waiting::Uncordoning, Waiting::Node))
    }

    /// Whether a slot may be ours.
    pub(super) fn slot_may_be_ours(&self) -> bool {
        match self.state.record.core.slot {
            Slot::None => false,
            Slot::Asked | Slot::Held { .. } => true,
        }
    }
}
