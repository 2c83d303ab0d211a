//! Did we boot what we meant to? Every row of the table.

use super::super::event::BootEvidence;
use super::super::record::{Attempt, BootMark, Outcome};
use super::super::verdict::verdict;
use crate::model::{AttemptId, BootId, Deployment, Source, SystemView, Target};

/// `*` runs, `+` is staged: `"42 *41"`.
fn system(text: &str) -> SystemView {
    let deployment = |word: &str| {
        let identity = word.trim_start_matches(['*', '+']).to_owned();
        let (booted, staged) = (word.starts_with('*'), word.starts_with('+'));
        Deployment { version: Some(identity.clone()), identity, place: None, booted, staged }
    };
    SystemView {
        deployments: text.split_whitespace().map(deployment).collect(),
        ..SystemView::default()
    }
}

/// At 42, from 41; `asked`: its reboot was asked for.
fn attempt(asked: bool) -> Attempt {
    let id = BootId::parse(&"1".repeat(32)).expect("32 digits");
    Attempt {
        id: AttemptId::new(&id, 1),
        target: Target {
            source: Source::RpmOstree,
            identity: "42".to_owned(),
            version: Some("42".to_owned()),
        },
        boot_before: asked.then_some(BootMark { id, soft_reboots: 0 }),
        booted_before: asked.then(|| "41".to_owned()),
        place_before: None,
        by_zincati: false,
        also: Vec::new(),
    }
}

#[test]
fn every_boot_has_its_verdict() {
    use Outcome::{FellBack, FinalizeFailed, Interrupted, NotFinalized, OtherSystem, Updated};
    let table = [
        ("the target runs", "*42 41", true, None, Some((Updated, ""))),
        ("the target runs by somebody's reboot", "*42 41", false, None, Some((Updated, ""))),
        ("never came to it", "*41", false, None, Some((Interrupted, "before the attempt came"))),
        ("finalization failed", "*41", true, Some("no space"), Some((FinalizeFailed, "no space"))),
        ("power loss", "*41", true, None, Some((NotFinalized, "42 was never written"))),
        ("staged again", "+42 *41", true, None, Some((NotFinalized, "42 was never written"))),
        ("did not boot", "42 *41", true, None, Some((FellBack, "the bootloader fell back"))),
        ("rolled back", "*41 42", true, None, Some((FellBack, "42 was rolled back"))),
        ("a third one", "*43 42 41", true, None, Some((OtherSystem, "43 is booted"))),
        ("nothing known is booted", "42 41", true, None, None),
    ];
    for (name, deployments, asked, failure, expected) in table {
        let evidence = BootEvidence { finalize_failure: failure.map(str::to_owned) };
        let found = verdict(&attempt(asked), &system(deployments), &evidence);
        let outcome = found.as_ref().map(|(outcome, _)| *outcome);
        assert_eq!(outcome, expected.map(|(outcome, _)| outcome), "{name}");
        let detail = found.and_then(|(_, detail)| detail).unwrap_or_default();
        let words = expected.map_or("", |(_, words)| words);
        assert!(detail.contains(words), "{name}: expected {words:?}, found {detail:?}");
    }
}
