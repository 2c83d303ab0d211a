#![allow(clippy::unwrap_used, clippy::expect_used)]

use expect_test::expect;

use super::*;
use crate::coordinator::slots::Claim;

fn groups() -> Vec<ListedGroup> {
    let holder = |id: &str, since: &str, attempt: Option<&str>| Holder {
        id: id.to_owned(),
        since: since.parse().unwrap(),
        claim: Claim::read(attempt, None).unwrap(),
    };
    let group =
        |group: &str, slots, holders| ListedGroup { group: group.to_owned(), slots, holders };
    vec![
        group(
            "default",
            Some(2),
            vec![
                holder("978a225b3d7b40e9acd7ce9b62f68444", "2026-11-27T08:00:00Z", None),
                holder("n2", "2026-11-30T11:55:03.25Z", Some("3f2a9c1e-7")),
            ],
        ),
        group("gone", None, vec![holder("n3", "2026-11-30T11:59:59Z", None)]),
        group("workers", Some(3), vec![]),
    ]
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

#[test]
fn the_table_lines_up() {
    expect![[r#"
        GROUP    HELD  ID                                SINCE                 AGE     ATTEMPT
        default  2/2   978a225b3d7b40e9acd7ce9b62f68444  2026-11-27T08:00:00Z  3d 4h   -
        default  2/2   n2                                2026-11-30T11:55:03Z  4m 56s  3f2a9c1e-7
        gone     1/-   n3                                2026-11-30T11:59:59Z  1s      -
        workers  0/3   -                                 -                     -       -
    "#]]
    .assert_eq(&table(&groups(), now()));
}

#[test]
fn the_json_has_a_version() {
    expect![[r#"
        {
          "groups": [
            {
              "group": "workers",
              "holders": [],
              "slots": 3
            }
          ],
          "schema": 1
        }
    "#]]
    .assert_eq(&as_json(&groups()[2..], now()).unwrap());
    let all = as_json(&groups(), now()).unwrap();
    assert!(all.contains("\"age_seconds\": 296") && all.contains("\"attempt\": \"3f2a9c1e-7\""));
}

#[test]
fn a_release_says_what_it_means() {
    expect![[r#"
        n2 holds a slot of default since 2026-11-30T11:55:03Z (4m 56s), attempt 3f2a9c1e-7.
        Released, the slot goes to the next node that asks, even while n2 is still down or not well:
        more nodes than allowed may then be down at once. Its agent, if it lives, yields when it confirms the slot and finds it taken.
        Release it only if n2 is well, or will not come back."#]]
    .assert_eq(&meaning("default", &groups()[0].holders[1], now()));
}

#[test]
fn only_yes_is_yes() {
    for (said, expected) in [
        ("y\n", true),
        ("YES\n", true),
        ("n\n", false),
        ("\n", false),
        ("", false),
        ("yep\n", false),
    ] {
        let mut shown = Vec::new();
        let answer = ask_yes_or_no("text", &mut said.as_bytes(), &mut shown).unwrap();
        assert_eq!(answer, expected, "{said:?}");
        assert_eq!(shown, b"text\nRelease it? [y/N] ");
    }
}

#[tokio::test]
async fn without_a_coordinator_it_says_where_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    let error = list(folder.path(), false).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.starts_with("no coordinator runs on this host"), "{text}");
    assert!(text.contains("coordinator.sock: connecting: "), "{text}");
}
