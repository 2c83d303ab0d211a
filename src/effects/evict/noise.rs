//! An API server that says anything to a drain.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::IntoResponse;
use proptest::prelude::*;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::pods::{Seen, watch};
use super::request::{ask, reply};
use crate::cluster::noise::{api, cluster_of, endless};
use crate::drain::{Answer, Ask, How, PodId, judge};
use crate::signals::bus::odd::is_plain;

fn pod() -> PodId {
    PodId { namespace: "shop".to_owned(), name: "web-1".to_owned(), uid: "u1".to_owned() }
}

#[tokio::test]
async fn an_answer_to_an_eviction_without_end_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let server = api(move |_, _| endless(b"x", &counted));
    let question = Ask { pod: pod(), how: How::Evict };
    let answer = ask(&cluster_of(&server), &question, None, true).await;
    let Answer::Unreachable { says } = answer else { panic!("{answer:?}") };
    assert!(says.contains("sends too much"), "{says}");
    assert!(sent.load(Ordering::Relaxed) < 64 << 20);
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop() {
    let watches = Arc::new(AtomicUsize::new(0));
    let counted = watches.clone();
    let server = api(move |_, query| {
        if query.contains("watch=true") {
            counted.fetch_add(1, Ordering::Relaxed);
            return ().into_response();
        }
        let list =
            r#"{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}"#;
        ([("content-type", "application/json")], list).into_response()
    });
    let (sender, mut seen) = mpsc::channel(64);
    let began = Instant::now();
    tokio::spawn(watch(cluster_of(&server), sender, Arc::new(Notify::new())));
    let listed = tokio::time::timeout(Duration::from_secs(60), seen.recv()).await.unwrap();
    assert!(matches!(listed, Some(Seen::Listed(_))), "{listed:?}");
    // Sleeps: what must not happen often needs a while in which it could.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (count, seconds) = (watches.load(Ordering::Relaxed), began.elapsed().as_secs());
    assert!(count as u64 <= 12 + seconds, "{count} watches in {seconds} s");
}

#[tokio::test]
async fn a_list_without_end_is_given_up() {
    let number = AtomicUsize::new(0);
    let server = api(move |_, _| {
        let from = number.fetch_add(1000, Ordering::Relaxed);
        let pods: Vec<String> = (from..from + 1000)
            .map(|n| format!(r#"{{"metadata":{{"name":"p{n}","uid":"u{n}"}}}}"#))
            .collect();
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"resourceVersion":"1","continue":"more"}},"items":[{}]}}"#,
            pods.join(",")
        );
        ([("content-type", "application/json")], list).into_response()
    });
    let (sender, mut seen) = mpsc::channel(64);
    tokio::spawn(watch(cluster_of(&server), sender, Arc::new(Notify::new())));
    let trouble = async {
        loop {
            if let Some(Seen::Trouble(trouble)) = seen.recv().await {
                return trouble;
            }
        }
    };
    let trouble = tokio::time::timeout(Duration::from_secs(60), trouble).await;
    let trouble = trouble.expect("it lists for ever");
    assert!(trouble.text().contains("pods on one Node"), "{}", trouble.text());
}

/// The sentence of an answer, if it has one.
fn says(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::BudgetExhausted { says, .. }
        | Answer::BudgetBusy { says, .. }
        | Answer::SeveralBudgets { says }
        | Answer::Forbidden { says }
        | Answer::TooManyRequests { says, .. }
        | Answer::ApiTrouble { says }
        | Answer::CredentialRefused { says }
        | Answer::Unreachable { says } => Some(says),
        Answer::Accepted | Answer::Gone | Answer::Elsewhere | Answer::NamespaceTerminating => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_to_an_eviction_is_judged(
        code in prop_oneof![200..600_u16, Just(429), Just(403), Just(500), any::<u16>()],
        retry_after in proptest::option::of(any::<u64>()),
        message in "(\\PC|\n|\u{1b}|disruption budget |poddisruptionbudgets.policy \"){0,12}",
        cause in "(\\PC|\n|disruption budget |still being processed| ){0,8}",
        raw in proptest::collection::vec(any::<u8>(), 0..60),
        is_status: bool,
        times in proptest::sample::select(vec![1_usize, 1000]),
    ) {
        let message = message.repeat(times);
        let cause = cause.repeat(times);
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "code": code, "reason": "TooManyRequests",
            "message": message,
            "details": { "retryAfterSeconds": retry_after.map(|s| s % (1 << 31)),
                         "causes": [{ "reason": "DisruptionBudget", "message": cause }] },
        });
        let body = if is_status { serde_json::to_vec(&status).unwrap() } else { raw };
        let answer = judge(&reply(code, retry_after, &body));
        prop_assert!(says(&answer).is_none_or(is_plain), "{:?}", answer);
        let taken = matches!(answer, Answer::Accepted);
        prop_assert!(!taken || (200..300).contains(&code));
    }
}
