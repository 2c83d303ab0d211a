//! Deployments of every kind, and of no kind at all.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;
use zbus::{OwnedVariant, Variant};

use super::{DeploymentsError, parse_deployments};

pub(crate) type Dictionary = HashMap<String, OwnedVariant>;

pub(crate) fn dictionary(entries: &[(&str, Variant<'static>)]) -> Dictionary {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.try_clone().unwrap().try_into().unwrap()))
        .collect()
}

pub(crate) fn text(text: &str) -> Variant<'static> {
    Variant::from(text.to_owned())
}

fn shown(list: &[Dictionary]) -> String {
    match parse_deployments(list) {
        Err(error) => format!("error: {error}"),
        Ok(deployments) => deployments
            .iter()
            .map(|one| {
                let version = one.version.as_deref().unwrap_or("-");
                let flags = [(one.staged, " staged"), (one.booted, " booted")]
                    .map(|(is, word)| if is { word } else { "" });
                format!("{} {version}{}", one.identity, flags.concat())
            })
            .collect::<Vec<_>>()
            .join("; "),
    }
}

#[test]
fn deployments_are_called_by_what_they_are() {
    let yes = || Variant::from(true);
    let booted = dictionary(&[("checksum", text("run")), ("booted", yes())]);
    let staged = |entries: &[(&str, Variant<'static>)]| {
        let mut all = dictionary(entries);
        all.extend(dictionary(&[("staged", yes())]));
        all
    };
    let copy = |one: &Dictionary| -> Dictionary {
        one.iter().map(|(key, value)| (key.clone(), value.try_clone().unwrap())).collect()
    };
    let layered = [("base-checksum", text("base")), ("checksum", text("top"))];
    let image = [
        ("container-image-reference-digest", text("sha256:1")),
        ("base-checksum", text("base")),
        ("checksum", text("top")),
        ("version", text("44.1")),
    ];
    let odd_digest =
        [("container-image-reference-digest", Variant::from(7u32)), ("checksum", text("top"))];
    let table: Vec<(Vec<Dictionary>, &str)> = vec![
        (vec![], "error: no deployment says that it is booted"),
        (vec![staged(&image)], "error: no deployment says that it is booted"),
        (vec![copy(&booted)], "run - booted"),
        (vec![staged(&image), copy(&booted)], "sha256:1 44.1 staged; run - booted"),
        (vec![staged(&layered), copy(&booted)], "base - staged; run - booted"),
        (
            vec![staged(&odd_digest), copy(&booted)],
            "error: deployment 0: container-image-reference-digest has type u, expected s",
        ),
        (
            vec![staged(&[]), copy(&booted)],
            "error: deployment 0: neither container-image-reference-digest nor base-checksum nor \
             checksum",
        ),
        (
            vec![staged(&[("checksum", text(""))]), copy(&booted)],
            "error: deployment 0: checksum is no identity: empty, too long or not plain text",
        ),
        // An odd old one is left out, an odd one that runs is not.
        (vec![copy(&booted), dictionary(&odd_digest)], "run - booted"),
        (
            vec![copy(&booted), dictionary(&[("checksum", text("a b")), ("version", text("1"))])],
            "run - booted",
        ),
        (
            vec![dictionary(&[("checksum", text("x")), ("booted", text("yes"))])],
            "error: deployment 0: booted has type s, expected b",
        ),
        (
            vec![dictionary(&[("checksum", text("x"))]), staged(&layered), copy(&booted)],
            "error: deployment 1 is staged, but only the first one can be",
        ),
        (
            vec![copy(&booted), copy(&booted)],
            "error: deployments 0 and 1 both say that they are booted",
        ),
    ];
    for (list, expected) in table {
        assert_eq!(shown(&list), expected);
    }
    let error = parse_deployments(&[staged(&[])]).unwrap_err();
    assert_eq!(error, DeploymentsError::NoIdentity { index: 0 });
}

#[test]
fn an_odd_version_is_left_out_and_a_wild_one_tamed() {
    let long = "9".repeat(500);
    for (version, expected) in [
        (Variant::from(44u32), "x - booted".to_owned()),
        (text(""), "x - booted".to_owned()),
        (text("4\u{1b}4\n"), "x 44 booted".to_owned()),
        (text(&long), format!("x {} booted", &long[..128])),
    ] {
        let booted = ("booted", Variant::from(true));
        let list = [dictionary(&[("checksum", text("x")), ("version", version), booted])];
        assert_eq!(shown(&list), expected);
    }
}

fn any_value() -> impl Strategy<Value = Variant<'static>> {
    prop_oneof![
        any::<bool>().prop_map(Variant::from),
        any::<u32>().prop_map(Variant::from),
        any::<String>().prop_map(Variant::from),
        "[a-f0-9:]{0,80}".prop_map(Variant::from),
        any::<Vec<String>>().prop_map(Variant::from),
        any::<String>().prop_map(|text| Variant::new(Variant::from(text))),
    ]
}

proptest! {
    #[test]
    fn whatever_comes_is_read_or_reported(
        list in prop::collection::vec(
            prop::collection::vec(
                (
                    prop::sample::select(vec![
                        "booted", "staged", "checksum", "base-checksum", "version",
                        "container-image-reference-digest", "packages",
                    ]),
                    any_value(),
                ),
                0..7,
            ),
            0..5,
        )
    ) {
        let list: Vec<Dictionary> = list.iter().map(|entries| dictionary(entries)).collect();
        if let Ok(deployments) = parse_deployments(&list) {
            prop_assert!(deployments.iter().filter(|one| one.booted).count() == 1);
            prop_assert!(deployments.iter().skip(1).all(|one| !one.staged));
            for one in &deployments {
                prop_assert!(!one.identity.is_empty() && one.identity.len() <= 256);
            }
        }
    }
}
