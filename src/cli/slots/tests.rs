#![allow(clippy::unwrap_used, clippy::expect_used)]

use expect_test::expect;

use super::*;
use crate::coordinator::slots::Claim;

fn groups() -> Vec<ListedGroup> {
    let holder = |id: &str, since: &str, attempt: Option<&str>, node: Option<&str>| Holder {
        id: id.to_owned(),
        since: since.parse().unwrap(),
        claim: Claim::read(attempt, None, node).unwrap(),
        earlier: Vec::new(),
    };
    let group =
        |group: &str, slots, holders| ListedGroup { group: group.to_owned(), slots, holders };
    vec![
        group(
            "default",
            Some(2),
            vec![
                holder(
                    "978a225b3d7b40e9acd7ce9b62f68444",
                    "2026-11-27T08:00:00Z",
                    None,
                    Some("worker-1"),
                ),
                holder("n2", "2026-11-30T11:55:03.25Z", Some("3f2a9c1e-7"), Some("worker-2")),
            ],
        ),
        group("gone", None, vec![holder("n3", "2026-11-30T11:59:59Z", None, None)]),
        group("workers", Some(3), vec![]),
    ]
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

#[test]
fn the_table_lines_up() {
    expect![[r#"
        GROUP    HELD  NODE      ID                                SINCE                 AGE     ATTEMPT
        default  2/2   worker-1  978a225b3d7b40e9acd7ce9b62f68444  2026-11-27T08:00:00Z  3d 4h   -
        default  2/2   worker-2  n2                                2026-11-30T11:55:03Z  4m 56s  3f2a9c1e-7
        gone     1/-   -         n3                                2026-11-30T11:59:59Z  1s      -
        workers  0/3   -         -                                 -                     -       -
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
        Node worker-2 (id n2) holds a slot of default since 2026-11-30T11:55:03Z (4m 56s), attempt 3f2a9c1e-7.
        Released, the slot goes to the next node that asks, even while worker-2 is still down or not well:
        more nodes than allowed may then be down at once. Its agent, if it lives, yields when it confirms the slot and finds it taken.
        Release it only if worker-2 is well, or will not come back."#]]
    .assert_eq(&meaning("default", &groups()[0].holders[1], now()));
}

#[test]
fn a_holder_is_found_by_its_id_or_by_a_name_that_only_it_has() {
    let mut listed = groups().remove(0);
    let found = |listed: &ListedGroup, who: &str| match find(listed, who) {
        Ok(holder) => holder.id.clone(),
        Err(error) => error.to_string(),
    };
    let long = "978a225b3d7b40e9acd7ce9b62f68444";
    assert_eq!(found(&listed, long), long);
    assert_eq!(found(&listed, "worker-1"), long);
    assert_eq!(found(&listed, "worker-2"), "n2");
    let none = found(&listed, "worker-3");
    assert!(none.contains("holds no slot of default"), "{none}");
    // Clones, or one machine under two ids: a person must say which.
    listed.holders[1].claim.node = Some("worker-1".to_owned());
    let several = found(&listed, "worker-1");
    assert!(several.ends_with(&format!("name one: {long}, n2")), "{several}");
    // An id is never taken for a name.
    listed.holders[0].claim.node = Some("n2".to_owned());
    assert_eq!(found(&listed, "n2"), "n2");
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
