#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

const LOCK: Operation = Operation::PreReboot;
const UNLOCK: Operation = Operation::SteadyState;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn boot(digit: char) -> BootId {
    BootId::parse(&digit.to_string().repeat(32)).unwrap()
}

/// `""` is nothing, `"a1"` is attempt `a1` of boot `aaaa…`, `"b:"` is boot `bbbb…` alone and
/// `"b:a1"` is attempt `a1` told from boot `bbbb…`.
fn claim(text: &str) -> Claim {
    let Some(first) = text.chars().next() else { return Claim::default() };
    let attempt = text.split_once(':').map_or(text, |(_, attempt)| attempt);
    let attempt = (!attempt.is_empty()).then(|| attempt.to_owned());
    Claim { attempt, boot: Some(boot(first)), node: None }
}

fn ask(operation: Operation, id: &str, told: &str) -> Ask {
    Ask { group: "g".to_owned(), id: id.to_owned(), operation, claim: claim(told) }
}

fn policies(slots: u32) -> Policies {
    Policies::from([("g".to_owned(), GroupPolicy { slots })])
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Granted { grant: Grant::New, .. } => "granted",
        Decision::Granted { grant: Grant::Confirmed, .. } => "confirmed",
        Decision::Granted { grant: Grant::TakenOver, .. } => "taken over",
        Decision::Full { .. } => "full",
        Decision::OtherAttempt { .. } => "other attempt",
        Decision::Released { .. } => "released",
        Decision::NotHeld => "not held",
        Decision::NotTheirs { .. } => "not theirs",
        Decision::UnknownGroup => "unknown group",
    }
}

/// Plays requests over one slot; each is `(operation, id, claim, expected)`.
fn story(slots: u32, steps: &[(Operation, &str, &str, &str)]) -> Slots {
    let mut state = Slots::default();
    for (index, (operation, id, told, expected)) in steps.iter().enumerate() {
        let now = at(i64::try_from(index).unwrap());
        let (decision, _) = state.decide(&policies(slots), &ask(*operation, id, told), now);
        assert_eq!(word(&decision), *expected, "step {index}: {id} {told}");
    }
    state
}

#[test]
fn the_protocol_without_our_headers() {
    story(
        1,
        &[
            (UNLOCK, "n1", "", "not held"),
            (LOCK, "n1", "", "granted"),
            (LOCK, "n1", "", "confirmed"),
            (LOCK, "n2", "", "full"),
            (UNLOCK, "n2", "", "not held"),
            (LOCK, "n2", "", "full"),
            (UNLOCK, "n1", "", "released"),
            (UNLOCK, "n1", "", "not held"),
            (LOCK, "n2", "", "granted"),
        ],
    );
}

#[test]
fn one_id_on_two_machines() {
    story(
        1,
        &[
            (LOCK, "n1", "a1", "granted"),
            (LOCK, "n1", "a1", "confirmed"),
            // A clone asks, is refused, and gives back what it does not hold.
            (LOCK, "n1", "b1", "other attempt"),
            (UNLOCK, "n1", "b1", "not theirs"),
            (LOCK, "n2", "c1", "full"),
            // A clone with a copy of the record in mid-attempt.
            (LOCK, "n1", "b:a1", "other attempt"),
            // The holder after its reboot.
            (UNLOCK, "n1", "b:a1", "released"),
        ],
    );
}

#[test]
fn a_new_attempt_of_the_same_boot_takes_over() {
    let state = story(
        1,
        &[
            (LOCK, "n1", "a1", "granted"),
            (LOCK, "n1", "a:a2", "taken over"),
            (LOCK, "n1", "a:a2", "confirmed"),
        ],
    );
    let holder = &state.groups["g"].holders[0];
    assert_eq!((holder.claim.attempt.as_deref(), holder.since), (Some("a2"), at(0)));
    story(1, &[(LOCK, "n1", "a1", "granted"), (UNLOCK, "n1", "a:a2", "released")]);
}

#[test]
fn a_request_that_comes_too_late_does_not_keep_its_successor_from_releasing() {
    story(
        1,
        &[
            (LOCK, "n1", "a:a2", "granted"),
            (LOCK, "n1", "a:a1", "taken over"),
            (UNLOCK, "n1", "b:a2", "released"),
            (LOCK, "n1", "a:a2", "granted"),
            (LOCK, "n1", "a:a1", "taken over"),
            (UNLOCK, "n1", "b:a1", "released"),
            (LOCK, "n1", "a:a2", "granted"),
            (LOCK, "n1", "a:a1", "taken over"),
            (UNLOCK, "n1", "c:c1", "not theirs"),
        ],
    );
}

#[test]
fn an_agent_without_a_record_frees_the_stale_slot_of_its_id() {
    story(1, &[(LOCK, "n1", "a1", "granted"), (UNLOCK, "n1", "b:", "released")]);
    story(1, &[(LOCK, "n1", "a1", "granted"), (UNLOCK, "n1", "", "released")]);
}

/// Each start of an agent without an attempt gives back the stale slot of its id, and a clone's does so
/// while the holder may be down.
#[test]
fn a_clone_without_an_attempt_frees_nothing() {
    let told =
        |told: &str, node: Option<&str>| Claim { node: node.map(str::to_owned), ..claim(told) };
    for (by, node, expected) in [
        ("b:", Some("worker-2"), "not theirs"),
        // The same machine, whose record is lost.
        ("b:", Some("worker-1"), "released"),
        ("a:", Some("worker-2"), "released"),
        // After the boot the node may have another name; its attempt is its own.
        ("b:a1", Some("worker-2"), "released"),
        // Nobody knows better.
        ("b:", None, "released"),
    ] {
        let mut state = Slots::default();
        for (operation, claim, expected) in
            [(LOCK, told("a1", Some("worker-1")), "granted"), (UNLOCK, told(by, node), expected)]
        {
            let ask = Ask { claim, ..ask(operation, "n1", "") };
            assert_eq!(word(&state.decide(&policies(1), &ask, at(0)).0), expected, "{by} {node:?}");
        }
    }
}

#[test]
fn what_zincati_took_our_agent_takes_on_and_back() {
    let state = story(
        1,
        &[
            (LOCK, "n1", "", "granted"),
            (LOCK, "n1", "a1", "confirmed"),
            (LOCK, "n1", "", "confirmed"),
            (LOCK, "n1", "b1", "other attempt"),
        ],
    );
    assert_eq!(state.groups["g"].holders[0].claim, claim("a1"));
}

/// A slot that expired would send the next node down beside one that is not back.
#[test]
fn a_slot_is_never_too_old() {
    let mut state = story(1, &[(LOCK, "n1", "a1", "granted")]);
    for years in [1, 10, 100] {
        let later = at(years * 366 * 86_400);
        for (operation, id, told, expected) in [
            (LOCK, "n2", "b1", "full"),
            (UNLOCK, "n2", "b1", "not held"),
            (LOCK, "n2", "", "full"),
            (LOCK, "n1", "a1", "confirmed"),
        ] {
            let (decision, _) = state.decide(&policies(1), &ask(operation, id, told), later);
            assert_eq!(word(&decision), expected, "{years} years: {id} {told}");
        }
    }
    assert_eq!(state.groups["g"].holders[0].since, at(0));
}

#[test]
fn another_number_of_slots_counts_at_once_and_evicts_nobody() {
    let mut state = story(2, &[(LOCK, "n1", "", "granted"), (LOCK, "n2", "", "granted")]);
    let mut play = |slots, operation, id, expected| {
        let (decision, _) = state.decide(&policies(slots), &ask(operation, id, ""), at(9));
        assert_eq!(word(&decision), expected);
    };
    play(1, LOCK, "n2", "confirmed");
    play(1, LOCK, "n3", "full");
    play(3, LOCK, "n3", "granted");
    play(1, UNLOCK, "n1", "released");
    play(1, LOCK, "n4", "full");
    play(1, UNLOCK, "n2", "released");
    play(1, LOCK, "n4", "full");
    play(1, UNLOCK, "n3", "released");
    play(1, LOCK, "n4", "granted");
}

#[test]
fn a_group_that_left_the_configuration_grants_nothing_and_takes_back() {
    let mut state = story(1, &[(LOCK, "n1", "", "granted")]);
    let none = Policies::new();
    let cases = [
        (LOCK, "n1", "unknown group"),
        (LOCK, "n2", "unknown group"),
        (UNLOCK, "n1", "released"),
        // The answer was lost, and it asks again.
        (UNLOCK, "n1", "not held"),
    ];
    for (operation, id, expected) in cases {
        let (decision, _) = state.decide(&none, &ask(operation, id, ""), at(9));
        assert_eq!(word(&decision), expected);
    }
    let other = Ask { group: "typo".to_owned(), ..ask(UNLOCK, "n1", "") };
    assert_eq!(state.decide(&policies(1), &other, at(9)), (Decision::UnknownGroup, false));
}

/// What must be true of every step. `before` is the group that was, `slots` the policy.
fn hold(before: &Group, slots: u32, ask: &Ask, decision: &Decision, after: &Group) {
    let holds = |group: &Group, id: &str| group.holders.iter().any(|h| h.id == id);
    let slots = usize::try_from(slots).unwrap();
    let grew = after.holders.len() > before.holders.len();
    assert!(!grew || after.holders.len() <= slots, "more holders than slots: {after:?}");
    Slots { groups: BTreeMap::from([("g".to_owned(), after.clone())]) }.check().unwrap();
    for holder in &before.holders {
        let stays = after.holders.iter().find(|h| h.id == holder.id);
        match stays {
            Some(stays) => assert_eq!(stays.since, holder.since),
            None => {
                assert_eq!((ask.operation, &ask.id), (UNLOCK, &holder.id), "evicted");
                assert_eq!(word(decision), "released");
            }
        }
    }
    match decision {
        Decision::Granted { .. } => assert!(holds(after, &ask.id)),
        Decision::Full { holders, .. } => {
            assert!(holders.len() >= slots && !holds(before, &ask.id) && before == after);
        }
        Decision::Released { .. } => assert!(holds(before, &ask.id) && !holds(after, &ask.id)),
        Decision::OtherAttempt { .. } | Decision::NotTheirs { .. } => {
            assert!(before == after && holds(before, &ask.id));
        }
        Decision::NotHeld => assert!(before == after && !holds(before, &ask.id)),
        Decision::UnknownGroup => unreachable!("the group is configured"),
    }
}

#[test]
fn every_reachable_state_of_three_machines() {
    let claims = ["", "a1", "a:a2", "b1", "b:a1", "b:"];
    let mut seen = BTreeSet::from([Group::default()]);
    let mut left = vec![Group::default()];
    let mut steps = 0_u32;
    while let Some(group) = left.pop() {
        for slots in 0..=3 {
            for id in ["n1", "n2", "n3"] {
                for told in claims {
                    for operation in [LOCK, UNLOCK] {
                        let ask = ask(operation, id, told);
                        let (decision, next) = decide(&group, GroupPolicy { slots }, &ask, at(0));
                        hold(&group, slots, &ask, &decision, &next);
                        steps += 1;
                        if seen.insert(next.clone()) {
                            left.push(next);
                        }
                    }
                }
            }
        }
    }
    // Orders of up to three holders, each with one of nine claims that can come together.
    assert!(seen.len() > 1000 && steps > 100_000, "{} states, {steps} steps", seen.len());
}

proptest! {
    #[test]
    fn long_runs_under_changing_policies(
        steps in prop::collection::vec((0_u32..5, 0_usize..6, 0_usize..7, any::<bool>()), 1..200),
    ) {
        let claims = ["", "a1", "a:a2", "b1", "b:a1", "b:", "c1"];
        let mut group = Group::default();
        for (index, (slots, id, told, locks)) in steps.into_iter().enumerate() {
            let operation = if locks { LOCK } else { UNLOCK };
            let ask = ask(operation, &format!("n{id}"), claims[told]);
            let now = at(i64::try_from(index).unwrap());
            let (decision, next) = decide(&group, GroupPolicy { slots }, &ask, now);
            hold(&group, slots, &ask, &decision, &next);
            group = next;
        }
    }
}

#[test]
fn our_headers_are_read_strictly() {
    let digits = "3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6";
    let claim = Claim::read(Some("3f2a9c1e-7"), Some(digits), Some("n1")).unwrap();
    assert_eq!(claim.attempt.as_deref(), Some("3f2a9c1e-7"));
    assert_eq!(Claim::read(None, None, None), Ok(Claim::default()));
    let long = "a".repeat(65);
    for (attempt, boot, named) in [
        (Some(""), None, "lockkeeper-attempt"),
        (Some("a b"), None, "lockkeeper-attempt"),
        (Some("é"), None, "lockkeeper-attempt"),
        (Some(long.as_str()), None, "lockkeeper-attempt"),
        (None, Some("soon"), "lockkeeper-boot-id"),
        (None, Some(""), "lockkeeper-boot-id"),
    ] {
        assert!(Claim::read(attempt, boot, None).unwrap_err().contains(named));
    }
    for node in ["", "two words", "é", &"n".repeat(254)] {
        let error = Claim::read(None, None, Some(node)).unwrap_err();
        assert!(error.contains("lockkeeper-node"), "{error}");
    }
}

#[test]
fn a_node_name_is_kept_and_can_change() {
    let mut state = Slots::default();
    for (operation, id, node, expected, kept) in [
        (LOCK, "n1", None, "granted", Some(None)),
        (LOCK, "n1", Some("worker-1"), "confirmed", Some(Some("worker-1"))),
        (LOCK, "n1", None, "confirmed", Some(Some("worker-1"))),
        (LOCK, "n2", Some("worker-1"), "full", Some(Some("worker-1"))),
        (LOCK, "n1", Some("worker-2"), "confirmed", Some(Some("worker-2"))),
        (UNLOCK, "n1", Some("worker-3"), "released", None),
    ] {
        let mut ask = ask(operation, id, "");
        ask.claim.node = node.map(str::to_owned);
        let (decision, _) = state.decide(&policies(1), &ask, at(0));
        assert_eq!(word(&decision), expected);
        let holder = state.groups["g"].holders.first();
        assert_eq!(holder.map(|holder| holder.claim.node.as_deref()), kept);
    }
}

#[test]
fn a_holder_of_an_older_store_has_no_node() {
    let text = r#"{"id":"n1","since":"2026-11-30T12:00:00Z","attempt":"3f2a9c1e-7"}"#;
    let holder: Holder = serde_json::from_str(text).unwrap();
    assert_eq!(holder.claim.node, None);
    assert_eq!(serde_json::to_string(&holder).unwrap(), text);
}

#[test]
fn people_read_the_name_first() {
    let long = "978a225b3d7b40e9acd7ce9b62f68444";
    for (id, node, expected) in [
        (long, Some("worker-1"), "worker-1 (978a225b…)"),
        ("n1", Some("worker-1"), "worker-1 (n1)"),
        ("n1", Some("n1"), "n1"),
        (long, None, long),
    ] {
        let claim = Claim { node: node.map(str::to_owned), ..Claim::default() };
        assert_eq!(
            Holder { id: id.to_owned(), since: at(0), claim, earlier: Vec::new() }.name(),
            expected
        );
    }
}
