//! What a person is told of a command: what it ended, and what still stands.

use super::event::Command;
use super::gates;
use super::record::Stage;
use super::state::State;

/// The sentences that answer a command, from the states around its step.
pub fn answer(command: &Command, before: &State, after: &State) -> String {
    let mut sentences = match command {
        Command::Hold { .. } => vec![held(before.record.core.stage).to_owned()],
        Command::Resume => vec![resumed(before, after).to_owned()],
        Command::Retry => vec![retried(after).to_owned()],
    };
    match command {
        Command::Hold { .. } => {}
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
    let waits = after.view.system.as_ref().and_then(|system| system.target()).is_some();
    if after.record.core.stage == Stage::Halted {
        "What fell back is allowed again."
    } else if waits {
        "Trying again. `lockkeeper status --watch` follows it."
    } else {
        "Nothing waits to be tried."
    }
}
