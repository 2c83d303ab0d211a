//! Did we boot what we meant to?

use crate::model::{Deployment, Source, SystemView, UNKNOWN_VERSION};

use super::event::BootEvidence;
use super::record::{Attempt, Outcome};

/// What became of an attempt, seen from a boot after it. `None`: nothing is booted that the update
/// system knows, so nothing can be said.
pub(super) fn verdict(
    attempt: &Attempt,
    system: &SystemView,
    evidence: &BootEvidence,
) -> Option<(Outcome, Option<String>)> {
    let target = &attempt.target;
    if !target.source.brings_a_system() {
        return Some(match attempt.boot_before {
            Some(_) => (Outcome::Rebooted, None),
            None => interrupted(),
        });
    }
    let booted = system.booted()?;
    if booted.identity == target.identity {
        return Some((Outcome::Updated, None));
    }
    if attempt.boot_before.is_none() {
        return Some(interrupted());
    }
    if target.source == Source::UpdateEngine {
        return Some(partition(attempt, booted));
    }
    if let Some(text) = &evidence.finalize_failure {
        return Some((Outcome::FinalizeFailed, Some(text.clone())));
    }
    if attempt.booted_before.as_ref().is_some_and(|before| *before != booted.identity) {
        return Some(other_system(booted));
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

fn interrupted() -> (Outcome, Option<String>) {
    let text = "the host was rebooted before the attempt came to it";
    (Outcome::Interrupted, Some(text.to_owned()))
}

fn other_system(booted: &Deployment) -> (Outcome, Option<String>) {
    let what = booted.version.as_ref().unwrap_or(&booted.identity);
    (Outcome::OtherSystem, Some(format!("{what} is booted")))
}

/// On a host with two partitions the update was written before its reboot: the bootloader took it or
/// not. Where its version is not known, another partition than before is proof enough.
fn partition(attempt: &Attempt, booted: &Deployment) -> (Outcome, Option<String>) {
    let same_system = attempt.booted_before.as_ref() == Some(&booted.identity);
    let fell_back = match (&attempt.place_before, &booted.place) {
        (Some(before), Some(now)) => before == now,
        (None, _) | (_, None) => same_system,
    };
    if fell_back {
        let place = booted.place.as_ref().unwrap_or(&booted.identity);
        let text = format!("{} did not boot: {place} is booted again", attempt.target);
        return (Outcome::FellBack, Some(text));
    }
    if attempt.target.identity == UNKNOWN_VERSION {
        return (Outcome::Updated, None);
    }
    other_system(booted)
}
