#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;

const PORTAL: &str = "\n<!DOCTYPE html><html><body>Please sign in</body></html>";
const AIRLOCK_FULL: &str =
    r#"{"kind":"failed_lock","value":"failed to lock: all 1 semaphore slots currently locked"}"#;
const AIRLOCK_RACE: &str =
    r#"{"kind":"failed_lock","value":"conflict on semaphore detected, aborting"}"#;
const AIRLOCK_ETCD: &str = r#"{"kind":"failed_sem_init","value":"context deadline exceeded"}"#;
const AIRLOCK_GROUP: &str = r#"{"kind":"unknown_group","value":"unknown group"}"#;
const POSEIDON_HELD: &str = r#"{"kind":"lock_held","value":"reboot lease held by abc"}"#;
const POSEIDON_ERROR: &str = r#"{"kind":"internal_error","value":"error getting lease"}"#;
const HEATHCLIFF_FULL: &str = r#"{"kind":"all_slots_full","value":"Could not reserve a slot"}"#;
const HEATHCLIFF_DRAIN: &str = r#"{"kind":"waiting_for_node_drain","value":"draining"}"#;
const HEATHCLIFF_ERROR: &str = r#"{"kind":"error","value":"An unexpected error occured"}"#;
const KNUBBIS_FULL: &str = r#"{"kind":"failed_lock","value":"all slots are taken"}"#;
const KNUBBIS_GROUP: &str = r#"{"kind":"failed_lock","value":"unknown group"}"#;
const KNUBBIS_LIMIT: &str = r#"{"kind":"request_ratelimit","value":"slow down"}"#;
const KNUBBIS_AUTH: &str = r#"{"kind":"unauthorized_request","value":"no"}"#;
const COOLDOWN: &str = r#"{"kind":"reboot_cooldown","value":"wait"}"#;
const WINDOW: &str = r#"{"kind":"outside_window","value":"not now"}"#;
const DYNAMODB: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}"#;
const DYNAMODB_SCHEMA: &str = r#"{"message": "Invalid request body"}"#;
const CONSUL_FULL: &str = "too many nodes down, cannot lock yet";
const CEPH_FULL: &str =
    r#"{"kind":"failed_lock_semaphore_full","value":"semaphore currently full"}"#;
const CEPH_HEALTH: &str = r#"{"kind":"failed_lock_cluster_not_healthy","value":"unhealthy"}"#;
const CEPH_BODY: &str = r#"{"kind":"malformed_json_body","value":"not conform"}"#;
const CEPH_OTHER: &str =
    r#"{"kind":"failed_relase_lock_not_held","value":"Can't relase a lock thats owned by n2"}"#;
const STORE_FAILED: &str = r#"{"kind":"store_failed","value":"No space left on device"}"#;

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// `granted`, `pending`, `denied KIND`, `failed KIND` or `lost KIND`.
fn asked(status: u16, body: &str) -> String {
    match read_answer(status, None, body.as_bytes(), now()) {
        SlotAnswer::Granted => "granted".to_owned(),
        SlotAnswer::Pending { .. } => "pending".to_owned(),
        SlotAnswer::Denied { kind, .. } => format!("denied {kind}"),
        SlotAnswer::Failed { kind, answer_lost: false, .. } => format!("failed {kind}"),
        SlotAnswer::Failed { kind, answer_lost: true, .. } => format!("lost {kind}"),
    }
}

/// `released`, `gone` or `failed KIND`.
fn released(status: u16, body: &str) -> String {
    match read_release(status, None, body.as_bytes(), now()) {
        ReleaseAnswer::Released => "released".to_owned(),
        ReleaseAnswer::HeldByAnother { .. } => "gone".to_owned(),
        ReleaseAnswer::Failed { kind, .. } => format!("failed {kind}"),
    }
}

#[test]
fn answers_of_the_servers_in_the_field() {
    let cases: &[(u16, &str, &str)] = &[
        (200, "", "granted"),
        (200, "obtained reboot lease", "granted"),
        (200, r#"{"kind":"success","value":"ok"}"#, "granted"),
        (200, PORTAL, "lost not-an-answer"),
        (200, "<html>", "lost not-an-answer"),
        (201, "", "lost not-an-answer"),
        (204, "", "lost not-an-answer"),
        (202, HEATHCLIFF_DRAIN, "pending"),
        (301, "", "failed redirect"),
        (302, PORTAL, "failed redirect"),
        (307, "", "failed redirect"),
        (500, AIRLOCK_FULL, "denied failed_lock"),
        (500, AIRLOCK_RACE, "lost failed_lock"),
        (500, AIRLOCK_ETCD, "lost failed_sem_init"),
        (400, AIRLOCK_GROUP, "failed unknown_group"),
        (423, POSEIDON_HELD, "denied lock_held"),
        (423, "", "denied http_423"),
        (500, POSEIDON_ERROR, "lost internal_error"),
        (423, HEATHCLIFF_FULL, "denied all_slots_full"),
        (500, HEATHCLIFF_ERROR, "lost error"),
        (409, KNUBBIS_FULL, "denied failed_lock"),
        (500, KNUBBIS_GROUP, "lost failed_lock"),
        (429, KNUBBIS_LIMIT, "failed rate-limited"),
        (429, "Too Many Requests", "failed rate-limited"),
        (401, KNUBBIS_AUTH, "failed unauthorized_request"),
        (429, COOLDOWN, "denied reboot_cooldown"),
        (403, WINDOW, "denied outside_window"),
        (403, PORTAL, "failed http_403"),
        (400, DYNAMODB, "denied http_400"),
        (400, DYNAMODB_SCHEMA, "failed http_400"),
        (503, CONSUL_FULL, "denied http_503"),
        (503, "no healthy upstream", "lost http_503"),
        (503, PORTAL, "lost http_503"),
        (503, STORE_FAILED, "lost store_failed"),
        (500, "error writing to consul kv", "lost http_500"),
        (400, CEPH_FULL, "denied failed_lock_semaphore_full"),
        (400, CEPH_HEALTH, "denied failed_lock_cluster_not_healthy"),
        (400, CEPH_BODY, "failed malformed_json_body"),
        (409, PORTAL, "failed http_409"),
        (404, "404 page not found", "failed http_404"),
        (408, "", "lost http_408"),
        (502, PORTAL, "lost http_502"),
        (504, "", "lost http_504"),
        (101, "", "lost not-an-answer"),
        (600, "", "lost not-an-answer"),
    ];
    for (status, body, expected) in cases {
        assert_eq!(asked(*status, body), *expected, "{status} {body}");
    }
}

#[test]
fn releases_of_the_servers_in_the_field() {
    let cases: &[(u16, &str, &str)] = &[
        (200, "", "released"),
        (200, "reboot lease already unlocked", "released"),
        (200, PORTAL, "failed not-an-answer"),
        (204, "", "failed not-an-answer"),
        (202, "", "failed pending"),
        (302, PORTAL, "failed redirect"),
        (423, POSEIDON_HELD, "gone"),
        (423, "", "gone"),
        (423, PORTAL, "failed http_423"),
        (400, DYNAMODB, "gone"),
        (400, CEPH_OTHER, "gone"),
        (400, CEPH_BODY, "failed malformed_json_body"),
        (400, AIRLOCK_GROUP, "failed unknown_group"),
        (409, r#"{"kind":"failed_unlock","value":"not the holder"}"#, "gone"),
        (409, r#"{"kind":"failed_unlock","value":"conflict"}"#, "failed failed_unlock"),
        (500, AIRLOCK_RACE, "failed failed_lock"),
        (500, POSEIDON_ERROR, "failed internal_error"),
        (503, "no healthy upstream", "failed http_503"),
        (503, STORE_FAILED, "failed store_failed"),
        (429, KNUBBIS_LIMIT, "failed rate-limited"),
        (404, "", "failed http_404"),
    ];
    for (status, body, expected) in cases {
        assert_eq!(released(*status, body), *expected, "{status} {body}");
    }
}

#[test]
fn the_servers_sentence_and_its_wait_come_through() {
    let answer = read_answer(423, Some("12"), POSEIDON_HELD.as_bytes(), now());
    let expected = SlotAnswer::Denied {
        kind: "lock_held".to_owned(),
        value: "reboot lease held by abc".to_owned(),
        retry_after: Some(Duration::from_secs(12)),
    };
    assert_eq!(answer, expected);
    let answer = read_answer(202, Some("5"), HEATHCLIFF_DRAIN.as_bytes(), now());
    let expected = SlotAnswer::Pending {
        value: "draining".to_owned(),
        retry_after: Some(Duration::from_secs(5)),
    };
    assert_eq!(answer, expected);
    let answer = read_release(503, Some("7"), b"busy", now());
    let expected = ReleaseAnswer::Failed {
        kind: "http_503".to_owned(),
        error: "busy".to_owned(),
        retry_after: Some(Duration::from_secs(7)),
    };
    assert_eq!(answer, expected);
}

#[test]
fn no_body_breaks_the_reader_or_a_label() {
    let hostile = format!(r#"{{"kind":"{}","value":"a\u0000\u001b[2Jb"}}"#, "K\\\"é ".repeat(5000));
    let bodies: [&[u8]; 6] =
        [b"\xff\xfe\x00", b"null", b"[1]", br#"{"kind":1,"value":2}"#, b"{", hostile.as_bytes()];
    for status in 0..1000 {
        for body in bodies {
            let (kind, text) = match read_answer(status, Some("x"), body, now()) {
                SlotAnswer::Granted => {
                    assert_eq!(status, 200);
                    continue;
                }
                SlotAnswer::Denied { kind, value, .. } => (kind, value),
                SlotAnswer::Pending { value, .. } => ("pending".to_owned(), value),
                SlotAnswer::Failed { kind, error, .. } => (kind, error),
            };
            assert!(kind.len() <= 64 && !kind.is_empty(), "{kind}");
            assert!(kind.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)), "{kind}");
            assert!(text.chars().count() <= 512 && !text.chars().any(char::is_control), "{text}");
        }
    }
}
