//! Where an agent begins that was restarted, or whose host was.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Now;

use super::event::Start;
use super::heart::Heart;
use super::people;
use super::policy::Policy;
use super::record::{Record, Slot, Stage};
use super::state::{Because, Run, State, Step, View};

/// The first step of a process: from the record and the boot that runs to a stage.
///
/// After a boot every way to uncordon or release goes through settling, whatever the record says;
/// within one boot the stage goes on where it was, with its effects asked for again.
pub fn start(policy: &Policy, record: Record, start: Start, now: Now) -> Step {
    let before = record.core.boot.clone();
    let known = before.is_some() && start.record_set_aside.is_none();
    let same_boot = known && before.as_ref() == Some(&start.boot);
    let mut state = State {
        record,
        boot: start.boot.clone(),
        kubelet_unit: start.kubelet_unit,
        seed: start.seed,
        view: View::default(),
        run: Run { began: now.since_boot, ..Run::default() },
        in_flight: BTreeSet::new(),
        not_before: BTreeMap::new(),
        failures: BTreeMap::new(),
        unwritable: None,
        config_wrong: start.config_wrong,
        waiting_since: None,
    };
    state.record.core.boot = Some(start.boot);
    if same_boot && policy.zincati && state.record.core.attempt.is_some() {
        // Its call went down with the process before this one: it has still to ask again.
        state.view.zincati.asked = Some(now.since_boot);
    }
    if same_boot && state.record.core.stage == Stage::Rebooting {
        let attempt = state.record.core.attempt.as_ref();
        if attempt.is_some_and(|attempt| attempt.by_zincati) {
            // It may have leave; what it does with it takes its time, whoever waits for it.
            state.run.reboot_answered = Some(now.since_boot);
        } else {
            let why = "the agent was restarted between request and reboot";
            state.run.undo = Some(why.to_owned());
        }
    }
    let mut heart = Heart::new(policy, state, now);
    let asked = matches!(heart.state.record.core.stage, Stage::Requesting | Stage::Draining);
    if asked && heart.state.record.core.slot != Slot::None {
        // A request may have been under way when the process before this one ended.
        heart.lose_answer();
    }
    let halted = heart.state.record.core.stage == Stage::Halted;
    if !same_boot {
        people::fulfil(&mut heart.state.record);
        if heart.state.record.core.slot == Slot::None {
            // One from before this record, or of another tool under the same id, is released too.
            heart.state.record.core.slot = Slot::Asked;
        }
        if !halted {
            heart.state.record.ending = None;
            heart.state.record.ending_detail = None;
        }
        if start.record_set_aside.is_some() {
            // The count begins anew, and an id must not come twice in one boot.
            let record = &mut heart.state.record;
            record.attempts = u32::try_from(now.since_boot.as_secs()).unwrap_or(0);
        }
        let because = if known { Because::NewBoot } else { Because::NoRecord };
        heart.go(Stage::Settling, because, start.record_set_aside);
    }
    heart.decide()
}
