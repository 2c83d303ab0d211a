//! Every word of the heart is told in some story.
//!
//! The lists come from the heart's own text, so that a new reason without a story is noticed.

use std::collections::BTreeSet;

use lockkeeper::lifecycle::Stage;

use crate::teller::Shown;

/// Words that no story can show, each with the reason.
const NOT_SHOWN: [(&str, &str); 0] = [];

/// The words that `fn name` of this type gives: `Self::… => "word"`.
fn words(source: &'static str, head: &str) -> BTreeSet<&'static str> {
    let (_, body) = source.split_once(head).unwrap_or_else(|| panic!("{head} is gone"));
    let (body, _) = body.split_once("\n    }\n").expect("the end of a function");
    let arms = body.lines().filter_map(|line| line.split_once("=> \""));
    let all: Vec<&str> =
        arms.filter_map(|(_, rest)| rest.split_once('"')).map(|(word, _)| word).collect();
    let words: BTreeSet<&str> = all.iter().copied().collect();
    assert!(words.len() > 4, "{head} was not understood: {words:?}");
    assert_eq!(words.len(), all.len(), "{head}: two things go by one word: {all:?}");
    words
}

fn expect_all(what: &str, known: &BTreeSet<&'static str>, shown: &BTreeSet<&'static str>) {
    let excepted = NOT_SHOWN.map(|(word, _)| word);
    let missing: Vec<&&str> =
        known.difference(shown).filter(|word| !excepted.contains(*word)).collect();
    assert!(missing.is_empty(), "no story shows {what} {missing:?}");
    let strange: Vec<&&str> = shown.difference(known).collect();
    assert!(strange.is_empty(), "{what} {strange:?} is no word of the list");
}

#[test]
fn every_stage_reason_and_outcome_is_told() {
    let mut shown = Shown::default();
    let (told, errors) = crate::tell_all(&mut shown);
    assert!(errors.is_empty(), "{}", errors.join("\n\n"));
    assert!(told.len() >= 25, "only {} stories were found", told.len());

    let state = include_str!("../../src/lifecycle/state.rs");
    let waiting = include_str!("../../src/lifecycle/waiting.rs");
    let event = include_str!("../../src/lifecycle/event.rs");
    let record = include_str!("../../src/lifecycle/record.rs");
    let (_, outcomes) = record.split_once("impl Outcome {").expect("the outcomes");

    expect_all("stage", &Stage::ALL.map(Stage::name).into(), &shown.stages);
    expect_all("because", &words(state, "pub fn name(self) -> &'static str {"), &shown.becauses);
    let mut reasons = words(waiting, "pub fn code(&self) -> &'static str {");
    let troubles = words(event, "pub fn kind(&self) -> &'static str {");
    assert!(reasons.is_disjoint(&troubles), "a trouble goes by the word of another reason");
    reasons.extend(troubles);
    expect_all("reason", &reasons, &shown.waitings);
    expect_all("outcome", &words(outcomes, "pub fn name(self) -> &'static str {"), &shown.outcomes);
}

#[test]
fn every_effect_is_told() {
    let mut shown = Shown::default();
    let (_, errors) = crate::tell_all(&mut shown);
    assert!(errors.is_empty(), "{}", errors.join("\n\n"));
    let shown: BTreeSet<&str> = shown.effects.iter().map(String::as_str).collect();
    let known = [
        "inspect",
        "read-boot",
        "read-node",
        "rehearse",
        "request-slot",
        "release-slot",
        "cordon",
        "drain",
        "stop-drain",
        "verify-empty",
        "allow-zincati",
        "reboot",
        "undo-reboot",
        "check-health",
        "uncordon",
        "restore-cordon",
    ];
    assert_eq!(shown, known.into(), "the effects of all stories");
}
