//! What a person is told of a command: what it ended, and what still stands.

use super::event::Command;
use super::gates;
use super::record::Record;
use super::record::Stage;
use super::state::State;
use crate::model::{Source, Target};

/// The origin of a wish in its identity.
const ANNOTATION: &str = "annotation";

/// Reboots that people ask for and have not had: by command, by an annotation of the Node.
pub(super) fn wishes(state: &State) -> Vec<Target> {
    let wish = |origin: &str, text: &str| Target {
        source: Source::Person,
        identity: format!("{origin}: {text}"),
        version: Some(text.to_owned()),
    };
    let asked = state.record.asked.as_ref();
    let asked = asked.map(|asked| wish("command", &asked.reason));
    let node = state.view.node.as_ref().and_then(|node| node.as_ref().ok());
    let text = node.and_then(|node| node.reboot.as_ref());
    let text = text.filter(|text| state.record.fulfilled.as_ref() != Some(text));
    asked.into_iter().chain(text.map(|text| wish(ANNOTATION, text))).collect()
}

/// What a boot fulfils: the command, and the annotation that an attempt had seen.
pub(super) fn fulfil(record: &mut Record) {
    record.asked = None;
    let Some(attempt) = &record.core.attempt else { return };
    let reasons = std::iter::once(&attempt.target).chain(&attempt.also);
    let prefix = format!("{ANNOTATION}: ");
    let seen = reasons.filter(|reason| reason.source == Source::Person);
    if let Some(text) = seen.filter_map(|reason| reason.identity.strip_prefix(&prefix)).next() {
        record.fulfilled = Some(text.to_owned());
    }
}

fn asked(after: &State) -> &'static str {
    match after.record.core.stage {
        Stage::Rebooting => "A reboot is under way already.",
        Stage::Halted => "Asked. The node is halted: `lockkeeper resume` comes first.",
        Stage::Idle
        | Stage::Waiting
        | Stage::Requesting
        | Stage::Draining
        | Stage::Settling
        | Stage::Stuck
        | Stage::Uncordoning
        | Stage::Yielding
        | Stage::Releasing => {
            "Asked. `lockkeeper status --watch` follows it; `lockkeeper reboot --cancel` takes it back."
        }
    }
}

fn cancelled(before: &State) -> &'static str {
    match (&before.record.asked, before.record.core.stage) {
        (None, _) => "No reboot was asked for by command.",
        (Some(_), Stage::Rebooting) => "Taken back, but the reboot is under way already.",
        (Some(_), _) => "Taken back.",
    }
}

/// The sentences that answer a command, from the states around its step.
pub fn answer(command: &Command, before: &State, after: &State) -> String {
    let mut sentences = match command {
        Command::Hold { .. } => vec![held(before.record.core.stage).to_owned()],
        Command::Resume => vec![resumed(before, after).to_owned()],
        Command::Retry => vec![retried(after).to_owned()],
        Command::Reboot { .. } => vec![asked(after).to_owned()],
        Command::CancelReboot => vec![cancelled(before).to_owned()],
    };
    match command {
        Command::Hold { .. } | Command::CancelReboot => {}
        Command::Reboot { .. } => {
            sentences.extend(gates::hold(after).map(|held| format!("The node is {held}.")));
        }
        Command::Resume | Command::Retry => {
            sentences.extend(gates::hold(after).map(|held| format!("The node is still {held}.")));
            if after.record.core.stage == Stage::Halted {
                sentences.push(
                    "The node is still halted with its slot: `lockkeeper resume` gives it back."
                        .to_owned(),
                );
            }
        }
    }
    sentences.join(" ")
}

fn held(stage: Stage) -> &'static str {
    match stage {
        Stage::Rebooting => {
            "Held. The reboot was asked for already: the node stays down after it until \
             `lockkeeper resume`."
        }
        Stage::Settling | Stage::Stuck => {
            "Held. The node stays cordoned, if it is, until `lockkeeper resume`."
        }
        Stage::Idle
        | Stage::Waiting
        | Stage::Requesting
        | Stage::Draining
        | Stage::Uncordoning
        | Stage::Yielding
        | Stage::Releasing
        | Stage::Halted => "Held. `lockkeeper resume` ends it.",
    }
}

fn resumed(before: &State, after: &State) -> &'static str {
    if before.record.hold.is_some() {
        return "The hold is ended.";
    }
    if before.record.core.stage == Stage::Halted && after.record.core.stage != Stage::Halted {
        return "The halt is ended; the slot is given back.";
    }
    if before.record.slot_at.is_some() && after.record.slot_at.is_none() {
        return "The slot that another place may hold is forgotten: free it there.";
    }
    "There was nothing to resume."
}

fn retried(after: &State) -> &'static str {
    let waits = !after.reasons().is_empty();
    if after.record.core.stage == Stage::Halted {
        "What fell back is allowed again."
    } else if waits {
        "Trying again. `lockkeeper status --watch` follows it."
    } else {
        "Nothing waits to be tried."
    }
}
