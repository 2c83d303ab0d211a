//! After a boot: settling, lifting the cordon, giving the slot back.

use super::effect::{Effect, Lane};
use super::event::{Health, NodeTrouble};
use super::gates;
use super::heart::{Heart, Verdict};
use super::policy::{AfterRollback, SlotPolicy};
use super::record::{Cordon, Outcome, Slot, Stage};
use super::state::Because;
use super::verdict::verdict;
use super::waiting::Waiting;

impl Heart<'_> {
    pub(super) fn settling(&mut self) -> Verdict {
        match self.prove_well() {
            Ok(()) => Verdict::Go(Stage::Uncordoning, Because::Well, None),
            Err(reason) => {
                let began = self.state.run.began;
                let held = matches!(reason, Waiting::Held { .. });
                let matters = self.state.record.core.attempt.is_some()
                    || self.state.record.core.cordon == Cordon::Ours;
                let deadline = self.policy.settle_deadline;
                if matters && !held && self.passed(began, deadline, "settling takes too long") {
                    let text = reason.to_string();
                    return Verdict::Go(Stage::Stuck, Because::NotWell, Some(text));
                }
                Verdict::Wait(reason)
            }
        }
    }

    /// Keeps slot and cordon, and keeps looking.
    pub(super) fn stuck(&mut self) -> Verdict {
        if self.reboot_unresolved() {
            if self.state.view.preparing_for_shutdown {
                return Verdict::Wait(Waiting::ShuttingDown);
            }
            if let Some(attempt) = self.state.record.core.attempt.clone() {
                if self.state.run.undo.is_none() {
                    self.state.run.undo = Some("the reboot did not come".to_owned());
                }
                return self.undoing(attempt.target);
            }
        }
        match self.prove_well() {
            Ok(()) => Verdict::Go(Stage::Uncordoning, Because::Well, None),
            Err(reason) => Verdict::Wait(reason),
        }
    }

    /// Whether the reboot of this attempt was asked for in this very boot.
    fn reboot_unresolved(&self) -> bool {
        let attempt = self.state.record.core.attempt.as_ref();
        attempt.and_then(|a| a.boot_before.as_ref()).is_some_and(|boot| *boot == self.state.boot)
    }

    /// Whether the node has proved itself well: what happened is known, the kubelet of this boot
    /// is Ready, units and checks are well, and all that has lasted for the settle time.
    fn prove_well(&mut self) -> Result<(), Waiting> {
        if self.state.view.preparing_for_shutdown {
            self.state.run.well_since = None;
            self.state.run.checked = None;
            return Err(Waiting::ShuttingDown);
        }
        let judged = self.judge();
        self.drop_stale_mark();
        if self.down_by_us()
            && let Some(held) = gates::hold(&self.state)
        {
            return Err(held);
        }
        if let Some(wrong) = self.state.config_wrong.as_ref().filter(|wrong| wrong.settle_unknown) {
            return Err(Waiting::ConfigWrong(wrong.what.clone()));
        }
        if let Err(reason) = self.kubelet_ready() {
            self.state.run.well_since = None;
            self.state.run.checked = None;
            return Err(reason);
        }
        self.look_after_health()?;
        judged?;
        let now = self.now.since_boot;
        let since = *self.state.run.well_since.get_or_insert(now);
        if !self.passed(since, self.policy.settle_time, "the settle time ends") {
            return Err(Waiting::SettleTime);
        }
        let proved = since.saturating_add(self.policy.settle_time);
        if self.state.run.checked.is_none_or(|checked| checked < proved) {
            self.launch(Effect::CheckHealth);
            return Err(Waiting::CheckingHealth);
        }
        Ok(())
    }

    /// Somebody made the node schedulable and our mark is still on it. It goes at once: a cordon that
    /// a person makes from now on is theirs.
    fn drop_stale_mark(&mut self) {
        let stale = self.node().is_ok_and(|node| !node.unschedulable && node.mark.is_some());
        if stale && !self.state.run.uncordoned {
            self.launch(Effect::Uncordon);
        }
    }

    /// Whether the node is down by our doing, as far as record or mark say: then a hold keeps it so.
    fn down_by_us(&self) -> bool {
        let core = &self.state.record.core;
        let marked = self.node().is_ok_and(|node| node.unschedulable && node.mark.is_some());
        core.attempt.is_some() || core.cordon == Cordon::Ours || marked
    }

    fn look_after_health(&mut self) -> Result<(), Waiting> {
        let every = self.policy.check_every;
        let due = match self.state.run.checked {
            Some(checked) => self.passed(checked, every, "look at units and checks again"),
            None => true,
        };
        if due {
            self.launch(Effect::CheckHealth);
        }
        match &self.state.view.health {
            Some(Health::Well) if self.state.run.checked.is_some() => Ok(()),
            Some(Health::NotWell(what)) if self.state.run.checked.is_some() => {
                self.state.run.well_since = None;
                Err(Waiting::NotWell(what.clone()))
            }
            Some(Health::Well | Health::NotWell(_)) | None => Err(Waiting::CheckingHealth),
        }
    }

    fn kubelet_ready(&self) -> Result<(), Waiting> {
        if !self.is_node() {
            return Ok(());
        }
        let node = self.node()?;
        if node.boot_id.as_ref() != Some(&self.state.boot.id) {
            return Err(Waiting::KubeletNotReady(None));
        }
        if !node.ready {
            let why = node.not_ready_because.clone();
            return Err(Waiting::KubeletNotReady(Some(why.unwrap_or_else(|| "unknown".into()))));
        }
        Ok(())
    }

    /// Finds out what the boot brought, once for each boot, and writes down what follows from it.
    fn judge(&mut self) -> Result<(), Waiting> {
        if self.state.record.core.attempt.is_none() || self.state.record.ending.is_some() {
            return self.system_spoke();
        }
        let Some(evidence) = self.state.view.evidence.clone() else {
            self.launch(Effect::ReadBoot);
            return Err(Waiting::BootUnknown);
        };
        let Some(system) = self.state.view.system.clone() else {
            return Err(Waiting::SystemUnknown(self.state.view.system_trouble.clone()));
        };
        let Some(attempt) = self.state.record.core.attempt.clone() else { return Ok(()) };
        let Some((outcome, detail)) = verdict(&attempt, &system, &evidence) else {
            let why = "it lists no deployment as the booted one".to_owned();
            return Err(Waiting::SystemUnknown(Some(why)));
        };
        match outcome {
            Outcome::FellBack => {
                let because = detail.clone().unwrap_or_default();
                self.deny(&attempt.target, because);
            }
            Outcome::FinalizeFailed | Outcome::NotFinalized => self.back_off(),
            Outcome::Updated
            | Outcome::Rebooted
            | Outcome::Yielded
            | Outcome::Withdrawn
            | Outcome::RebootNeverCame
            | Outcome::Interrupted
            | Outcome::OtherSystem => {}
        }
        self.ending(outcome, detail);
        Ok(())
    }

    /// Where there is nothing to judge, rpm-ostree must have been heard all the same; that it cannot
    /// be read is a word, too, and keeps nobody cordoned.
    fn system_spoke(&self) -> Result<(), Waiting> {
        let view = &self.state.view;
        match view.system.is_some() || view.system_trouble.is_some() {
            true => Ok(()),
            false => Err(Waiting::SystemUnknown(None)),
        }
    }

    fn deny(&mut self, target: &crate::model::Target, because: String) {
        let denial = super::record::Denial {
            since: self.now.wall,
            because,
            version: target.version.clone(),
        };
        self.state.record.denied.insert(target.identity.clone(), denial);
    }

    pub(super) fn uncordoning(&mut self) -> Verdict {
        if let Some(waiting) = self.lift_cordon() {
            return Verdict::Wait(waiting);
        }
        let halts = self.policy.after_rollback == AfterRollback::Halt;
        if self.state.record.ending == Some(Outcome::FellBack) && halts {
            let detail = self.state.record.ending_detail.clone();
            return Verdict::Go(Stage::Halted, Because::FellBack, detail);
        }
        Verdict::Go(Stage::Releasing, Because::Uncordoned, None)
    }

    pub(super) fn releasing(&mut self) -> Verdict {
        if self.slot_may_be_ours()
            && let Some(reason) = self.other_client_holds()
        {
            return Verdict::Wait(reason);
        }
        if let Some(elsewhere) = self.slot_elsewhere() {
            return Verdict::Wait(elsewhere);
        }
        if self.slot_may_be_ours() {
            self.preempt_request();
            self.launch(Effect::ReleaseSlot);
            let trouble = self.state.run.release_trouble.clone();
            return Verdict::Wait(match trouble {
                Some((kind, error)) => Waiting::SlotFailed { kind, error },
                None => Waiting::ReleasingSlot,
            });
        }
        let foreign = self.state.record.core.cordon == Cordon::Foreign;
        if foreign && self.is_node() && !self.state.run.cordon_restored {
            self.launch(Effect::RestoreCordon);
            let trouble = self.state.run.node_trouble.clone();
            return Verdict::Wait(trouble.map_or(Waiting::RestoringCordon, Waiting::Node));
        }
        // The release of a lost request is still to come, and may lift a person's cordon like this one.
        if !foreign || self.state.record.release_again.is_none() {
            self.state.record.core.cordon = Cordon::None;
        }
        Verdict::Go(Stage::Idle, Because::Released, None)
    }

    /// The release must not wait for a request that the server may hold for half an hour: it takes
    /// the request's place, and since its answer is lost then, the slot is released once more.
    fn preempt_request(&mut self) {
        // Only what this stage found: from then on the lane holds the release itself.
        if std::mem::replace(&mut self.state.run.preempted, true) {
            return;
        }
        if !self.state.in_flight.remove(&Lane::Slot) {
            return;
        }
        self.state.view.asked_first = false;
        self.lose_answer();
    }

    /// A slot that was asked for at another place than the one that would be told of its release.
    pub(super) fn slot_elsewhere(&self) -> Option<Waiting> {
        let held = self.state.slot_place(self.policy)?;
        let configured = self.policy.slot_place.clone();
        if configured.as_deref() == Some(held) {
            return None;
        }
        Some(Waiting::SlotElsewhere { held: held.to_owned(), configured })
    }

    /// Where no attempt of ours asked for it, a slot under our id may belong to Zincati.
    fn other_client_holds(&mut self) -> Option<Waiting> {
        let record = &self.state.record;
        let asked = record.stages.iter().any(|time| time.stage == Stage::Requesting)
            || matches!(record.core.slot, Slot::Held { .. });
        if asked || self.policy.slot != SlotPolicy::Server {
            return None;
        }
        if !self.state.run.other_client_checked {
            self.launch(Effect::Inspect);
            return Some(Waiting::HostUnknown);
        }
        let host = self.state.view.host.as_ref();
        if host.is_some_and(|(host, _)| host.other_lock_client.is_some()) {
            self.state.record.core.slot = Slot::None;
        }
        None
    }

    pub(super) fn halted(&mut self) -> Verdict {
        let because = self.state.record.ending_detail.clone();
        let because = because.unwrap_or_else(|| "the target fell back".to_owned());
        Verdict::Wait(Waiting::Halted { because })
    }

    pub(super) fn node_failed(&mut self, trouble: NodeTrouble) {
        let rest = super::heart::trouble_rest(&trouble);
        self.lane_failed(Lane::Node, rest);
        self.state.run.node_trouble = Some(trouble.clone());
    }
}
