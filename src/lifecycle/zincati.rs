//! Where Zincati decides when its updates reboot the host, and asks this agent as its slot server.
//!
//! It asks before each of its tries and reboots by itself once it has leave; what it does in between
//! nobody can see. While a call of its is open it waits, so that an open call takes any leave back.
//! It never asks again sooner than after five minutes.

use std::time::Duration;

use super::effect::Lane;
use super::heart::{Heart, Verdict};
use super::record::{Outcome, Stage};
use super::state::Because;
use crate::model::Target;

/// How long Zincati wants its update after it has asked: it asks every 300 to 330 s while it is denied
/// (its `agent.timing` and jitter), and one call may be lost.
const WANTS_IT: Duration = Duration::from_secs(12 * 60);

/// How long Zincati may take once it has leave: it waits ten minutes for people who are logged in, and
/// asks again each minute meanwhile; it asks again after 330 s at most where it failed to finalize.
const MAY_TAKE: Duration = Duration::from_secs(15 * 60);

impl Heart<'_> {
    /// Whether Zincati wants to reboot; if it has fallen silent, the agent is woken when that counts.
    pub(super) fn zincati_asks(&mut self) -> bool {
        let zincati = self.state.view.zincati;
        match zincati.asked {
            _ if zincati.waits => true,
            Some(asked) => !self.passed(asked, WANTS_IT, "Zincati should have asked again"),
            None => false,
        }
    }

    /// Whether this attempt goes down by Zincati's hand: what nobody else asks for, or what it asks for
    /// right now.
    pub(super) fn through_zincati(&mut self) -> bool {
        let update = self.state.view.system.as_ref().and_then(|system| system.update());
        self.policy.zincati && update.is_some() && self.zincati_asks()
    }

    pub(super) fn zincati_waits(&mut self, waits: bool) {
        let zincati = &mut self.state.view.zincati;
        zincati.waits = waits;
        zincati.asked = Some(self.now.since_boot);
    }

    /// It began anew, and wants nothing before it asks.
    pub(super) fn zincati_begins(&mut self) {
        self.state.view.zincati.asked = None;
        self.state.run.zincati_restarted = true;
    }

    pub(super) fn zincati_allowed(&mut self, heard: bool) {
        self.lane_ok(Lane::Reboot);
        self.state.view.zincati.waits = false;
        if heard {
            self.state.run.reboot_answered = Some(self.now.since_boot);
        } else {
            self.state.run.zincati_missed = true;
        }
    }

    /// What takes its leave back, or says that it had none: until it asks again it does not reboot.
    pub(super) fn zincati_turns(&mut self, target: &Target) -> Option<Verdict> {
        let run = &self.state.run;
        let asks_again = run.reboot_answered.is_some() && self.state.view.zincati.waits;
        if run.zincati_missed || asks_again {
            self.uncount(&target.identity);
            return Some(Verdict::Go(Stage::Draining, Because::ZincatiAsksAgain, None));
        }
        if run.zincati_restarted {
            let why = "Zincati began anew before it rebooted".to_owned();
            self.uncount(&target.identity);
            self.ending(Outcome::Yielded, Some(why.clone()));
            return Some(Verdict::Go(Stage::Yielding, Because::UpdateWithdrawn, Some(why)));
        }
        None
    }

    pub(super) fn zincati_never_came(&mut self, answered: Duration) -> Option<String> {
        let passed = self.passed(answered, MAY_TAKE, "Zincati should have rebooted");
        passed.then(|| format!("Zincati did not reboot within {} min", MAY_TAKE.as_secs() / 60))
    }
}
