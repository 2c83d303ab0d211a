//! The two entries that tell the cycle's story.

use jiff::Timestamp;
use tracing::{debug, info, warn};

use crate::drain::Obstacle;
use crate::lifecycle::{Transition, Waiting};

use super::message::Message;

/// Logs a change of stage: one entry, with everything that it can be searched by.
///
/// The journal upper-cases field names: `LOCKKEEPER_FROM`, `_TO`, `_BECAUSE`, `_DETAIL`,
/// `_ATTEMPT`, `_TARGET`, `_OUTCOME`. Fields that are `None` are left out.
pub fn transition(transition: &Transition) {
    let message = Message::of(transition);
    let from = transition.from.name();
    let to = transition.to.name();
    let because = transition.because.name();
    let detail = transition.detail.as_deref().map(one_line);
    let attempt = transition.attempt.as_ref().map(|attempt| attempt.as_str());
    let target = transition.target.as_ref().map(|target| target.identity.as_str());
    let outcome = transition.outcome.map(|outcome| outcome.name());
    let sentence = one_line(&sentence(transition));
    macro_rules! log {
        ($level:ident) => {
            $level!(
                message_id = message.id(),
                lockkeeper_from = from,
                lockkeeper_to = to,
                lockkeeper_because = because,
                lockkeeper_detail = detail.as_deref(),
                lockkeeper_attempt = attempt,
                lockkeeper_target = target,
                lockkeeper_outcome = outcome,
                "{sentence}"
            )
        };
    }
    if message.wakes_someone() {
        log!(warn);
    } else {
        log!(info);
    }
}

/// Logs that the reason to wait is another one. Call it when the code changes, not each time that
/// its text does. Reasons that pass by themselves within a step of the cycle are DEBUG.
pub fn waiting(waiting: &Waiting, since: Timestamp) {
    let id = Message::Waiting.id();
    let because = waiting.code();
    let since = since.to_string();
    let text = one_line(&waiting.to_string());
    if is_passing(waiting) {
        debug!(message_id = id, lockkeeper_because = because, lockkeeper_since = since, "{text}");
    } else {
        info!(message_id = id, lockkeeper_because = because, lockkeeper_since = since, "{text}");
    }
}

/// Logs that a pod holds the drain up. Call it once a pod in each drain: what a budget says of itself
/// changes with every try.
pub fn held_up(obstacle: &Obstacle) {
    let pod = format!("{}/{}", obstacle.namespace, obstacle.pod);
    let text = one_line(&obstacle.to_string());
    info!(lockkeeper_pod = pod, "the drain is held up: {text}");
}

/// `draining → rebooting: node-empty (3 pods left), attempt 3f2a9c1e-7, target 42.1`.
fn sentence(transition: &Transition) -> String {
    let Transition { from, to, because, detail, attempt, target, outcome } = transition;
    let mut text = format!("{} -> {}: {}", from.name(), to.name(), because.name());
    if let Some(detail) = detail {
        text.push_str(&format!(" ({detail})"));
    }
    if let Some(attempt) = attempt {
        text.push_str(&format!(", attempt {attempt}"));
    }
    if let Some(target) = target {
        text.push_str(&format!(", target {target}"));
    }
    if let Some(outcome) = outcome {
        text.push_str(&format!(", outcome {}", outcome.name()));
    }
    text
}

/// Part of it may be what a stranger or an older record says: it is one entry, and changes no
/// terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether it passes within seconds when all is well.
fn is_passing(waiting: &Waiting) -> bool {
    match waiting {
        Waiting::HostUnknown
        | Waiting::NodeUnknown
        | Waiting::SystemUnknown(None)
        | Waiting::BootUnknown
        | Waiting::Rehearsing
        | Waiting::SlotAsked
        | Waiting::Cordoning
        | Waiting::Confirming
        | Waiting::Verifying
        | Waiting::CheckingHealth
        | Waiting::Uncordoning
        | Waiting::RestoringCordon
        | Waiting::ReleasingSlot
        | Waiting::StoppingDrain => true,
        Waiting::NoUpdate
        | Waiting::SystemUnknown(Some(_))
        | Waiting::NoSlotBackend
        | Waiting::OnlyNodeNotConfirmed
        | Waiting::SlotElsewhere { .. }
        | Waiting::Held { .. }
        | Waiting::TargetDenied { .. }
        | Waiting::AttemptLimit { .. }
        | Waiting::WindowClosed { .. }
        | Waiting::ClockNotSynchronised
        | Waiting::Inhibited(_)
        | Waiting::UsersLoggedIn(_)
        | Waiting::BootFull { .. }
        | Waiting::FinalizeUnitInactive
        | Waiting::LegacyLock
        | Waiting::ConfigWrong(_)
        | Waiting::MinimumUptime
        | Waiting::OtherLockClient(_)
        | Waiting::OtherRebooter(_)
        | Waiting::ZincatiHasNotAsked
        | Waiting::ZincatiMustAsk
        | Waiting::ZincatiMayReboot
        | Waiting::UpdateWithdrawn(_)
        | Waiting::HostUnreadable(_)
        | Waiting::BackingOff { .. }
        | Waiting::Node(_)
        | Waiting::DrainWouldBlock(_)
        | Waiting::SlotDenied { .. }
        | Waiting::SlotPending(_)
        | Waiting::SlotFailed { .. }
        | Waiting::Draining
        | Waiting::ShutdownPending
        | Waiting::ShuttingDown
        | Waiting::UndoingReboot
        | Waiting::RebootUnresolved(_)
        | Waiting::KubeletNotReady(_)
        | Waiting::NotWell(_)
        | Waiting::SettleTime
        | Waiting::Halted { .. }
        | Waiting::RecordUnwritable(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::lifecycle::{Because, Stage};
    use crate::signals::bus::odd::FORGED;

    #[test]
    fn no_text_of_a_stranger_forges_an_entry() {
        let forged = || FORGED.to_owned();
        let told = Transition {
            from: Stage::Waiting,
            to: Stage::Requesting,
            because: Because::NoRecord,
            detail: Some(forged()),
            attempt: None,
            target: None,
            outcome: None,
        };
        let reasons = [
            Waiting::HostUnreadable(vec![forged()]),
            Waiting::NotWell(vec![forged()]),
            Waiting::SystemUnknown(Some(forged())),
            Waiting::UsersLoggedIn(vec![forged()]),
        ];
        let heard = crate::telemetry::heard(|| {
            transition(&told);
            for reason in &reasons {
                waiting(reason, Timestamp::UNIX_EPOCH);
            }
        });
        let lines: Vec<&str> = heard.lines().collect();
        assert_eq!(lines.len(), 1 + reasons.len(), "{heard:?}");
        assert!(!heard.chars().any(|c| c.is_control() && c != '\n'), "{heard:?}");
        assert!(lines.iter().all(|line| line.contains("LOCKKEEPER_TO=rebooting")), "{heard}");
    }
}
