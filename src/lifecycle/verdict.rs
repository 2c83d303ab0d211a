//! Did we boot what we meant to?

use crate::model::SystemView;

use super::event::BootEvidence;
use super::record::{Attempt, Outcome};

/// What became of an attempt, seen from a boot after it. `None`: nothing is booted that the update
/// system knows, so nothing can be said.
pub(super) fn verdict(
    attempt: &Attempt,
    system: &SystemView,
    evidence: &BootEvidence,
) -> Option<(Outcome, Option<String>)> {
    let booted = system.booted()?;
    let target = &attempt.target;
    if booted.identity == target.identity {
        return Some((Outcome::Updated, None));
    }
    if attempt.boot_before.is_none() {
        let text = "the host was rebooted before the attempt came to it".to_owned();
        return Some((Outcome::Interrupted, Some(text)));
    }
    if let Some(text) = &evidence.finalize_failure {
        return Some((Outcome::FinalizeFailed, Some(text.clone())));
    }
    if attempt.booted_before.as_ref().is_some_and(|before| *before != booted.identity) {
        let what = booted.version.as_ref().unwrap_or(&booted.identity);
        return Some((Outcome::OtherSystem, Some(format!("{what} is booted"))));
    }
    let written = system.deployments.iter().filter(|d| !d.staged);
    let place = written.enumerate().find(|(_, d)| d.identity == target.identity);
    Some(match place {
        Some((0, _)) => {
            let text = format!("{target} did not boot: the bootloader fell back");
            (Outcome::FellBack, Some(text))
        }
        Some(_) => {
            (Outcome::FellBack, Some(format!("{target} was rolled back after it had booted")))
        }
        None => {
            let text = format!("{target} was never written: power loss or a stop timeout");
            (Outcome::NotFinalized, Some(text))
        }
    })
}
