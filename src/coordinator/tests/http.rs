use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::rig::{Rig, folder};

const A1: &str = "lockkeeper-attempt: aaaaaaaa-1\r\nlockkeeper-boot-id: \
                  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
const B1: &str = "lockkeeper-attempt: bbbbbbbb-1\r\nlockkeeper-boot-id: \
                  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n";

#[tokio::test]
async fn a_slot_goes_round() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 1), ("workers", 2)]).await;
    let steps = [
        ("steady-state", "default", "n1", "200 not_held"),
        ("pre-reboot", "default", "n1", "200 granted"),
        ("pre-reboot", "default", "n1", "200 confirmed"),
        ("pre-reboot", "default", "n2", "409 failed_lock_semaphore_full"),
        ("pre-reboot", "workers", "n2", "200 granted"),
        ("steady-state", "default", "n2", "200 not_held"),
        ("pre-reboot", "default", "n2", "409 failed_lock_semaphore_full"),
        ("steady-state", "default", "n1", "200 released"),
        ("pre-reboot", "default", "n2", "200 granted"),
        ("pre-reboot", "typo", "n1", "400 unknown_group"),
        ("steady-state", "typo", "n1", "400 unknown_group"),
    ];
    for (index, (path, group, id, expected)) in steps.into_iter().enumerate() {
        let answer = rig.post(path, "", group, id).await;
        assert_eq!(answer.word(), expected, "step {index}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_full_group_says_who_holds_it_and_when_to_come_back() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 7)]).await;
    let id = "978a225b3d7b40e9acd7ce9b62f68444";
    rig.post("pre-reboot", "lockkeeper-node: worker-0\r\n", "default", id).await;
    for index in 1..7 {
        rig.post("pre-reboot", "", "default", &format!("n{index}")).await;
    }
    let mut waits = Vec::new();
    // Together, since each stands in line for a moment.
    let asked = (0..40).map(|_| rig.post("pre-reboot", "", "default", "m1"));
    for answer in futures::future::join_all(asked).await {
        assert!(
            answer
                .body
                .contains("7 of 7 slots of default held by worker-0 (978a225b…) for 0 min, "),
            "{}",
            answer.body
        );
        assert!(answer.body.contains(", n4 for 0 min, "), "{}", answer.body);
        assert!(answer.body.contains("2 more") && !answer.body.contains("n5"), "{}", answer.body);
        waits.push(answer.header("retry-after").unwrap().parse::<u64>().unwrap());
    }
    assert!(waits.iter().all(|wait| (10..=30).contains(wait)), "{waits:?}");
    waits.dedup();
    assert!(waits.len() > 5, "no jitter: {waits:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_cloned_machine_is_refused_by_name_and_frees_nothing() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 2)]).await;
    let steps = [
        ("pre-reboot", A1, "200 granted"),
        ("pre-reboot", A1, "200 confirmed"),
        ("pre-reboot", B1, "409 held_by_other_attempt"),
        ("steady-state", B1, "200 not_theirs"),
        ("pre-reboot", A1, "200 confirmed"),
        ("pre-reboot", "", "200 confirmed"),
        ("steady-state", A1, "200 released"),
        ("pre-reboot", B1, "200 granted"),
    ];
    for (index, (path, headers, expected)) in steps.into_iter().enumerate() {
        let answer = rig.post(path, headers, "default", "n1").await;
        assert_eq!(answer.word(), expected, "step {index}");
        if answer.status == 409 {
            assert!(answer.body.contains("for attempt aaaaaaaa-1"), "{}", answer.body);
            assert!(answer.body.contains("lockkeeper slots release default n1"));
            assert!(answer.header("retry-after").is_some());
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_changes_nothing() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 1)]).await;
    let good = r#"{"client_params":{"id":"n1","group":"default"}}"#;
    let request = |line: &str, headers: &str, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        )
    };
    let flag = "fleet-lock-protocol: true\r\n";
    let post = "POST /v1/pre-reboot";
    let long = "x".repeat(5000);
    let with = |more: &str| format!("{flag}{more}\r\n");
    let cases = [
        (request("GET /v1/pre-reboot", flag, good), "405 method_not_allowed"),
        (request("PUT /v1/steady-state", flag, good), "405 method_not_allowed"),
        (request("BREW /v1/pre-reboot", flag, good), "405 method_not_allowed"),
        (request(post, "", good), "400 missing_header"),
        (request(post, "fleet-lock-protocol: false\r\n", good), "400 missing_header"),
        (request(post, "fleet-lock-protocol: \r\n", good), "400 missing_header"),
        (request(post, flag, ""), "400 invalid_body"),
        (request(post, flag, "{"), "400 invalid_body"),
        (request(post, flag, &good.replace("n1", "")), "400 invalid_id"),
        (request(post, flag, &good.replace("default", "a_b")), "400 invalid_group"),
        (request(post, flag, &good.replace("default", "typo")), "400 unknown_group"),
        (request(post, flag, &long), "413 body_too_large"),
        (request(post, &with("lockkeeper-attempt: a b"), good), "400 invalid_context"),
        (request(post, &with("lockkeeper-boot-id: soon"), good), "400 invalid_context"),
        (request(post, &with("lockkeeper-attempt: é"), good), "400 invalid_context"),
        (request(post, &with("lockkeeper-node: a b"), good), "400 invalid_context"),
        (request("POST /v1/pre-reboot/", flag, good), "404 not_found"),
        (request("POST //v1/pre-reboot", flag, good), "404 not_found"),
        (request("GET /", "", ""), "404 not_found"),
    ];
    for (request, expected) in cases {
        let answer = rig.raw(&request).await;
        assert_eq!(answer.word(), expected, "{}", request.chars().take(200).collect::<String>());
    }
    assert!(rig.desk.view().slots.groups.is_empty());
    assert_eq!(rig.desk.view().writes, 0);
    rig.stop().await;
}

#[tokio::test]
async fn health_and_metrics_tell_what_is_held() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 1), ("workers", 3)]).await;
    rig.post("pre-reboot", "", "workers", "n1").await;
    rig.post("pre-reboot", "", "workers", "n2").await;
    rig.post("steady-state", "", "workers", "n2").await;
    rig.post("pre-reboot", "", "typo", "n1").await;
    assert_eq!(rig.raw("GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await.status, 200);
    let answer = rig.raw("GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let since = rig.desk.view().slots.groups["workers"].holders[0].since.as_second();
    for expected in [
        "lockkeeper_coordinator_slots{group=\"default\"} 1",
        "lockkeeper_coordinator_slots{group=\"workers\"} 3",
        "lockkeeper_coordinator_holders{group=\"default\"} 0",
        "lockkeeper_coordinator_holders{group=\"workers\"} 1",
        &format!(
            "lockkeeper_coordinator_held_since_seconds{{group=\"workers\",id=\"n1\"}} {since}"
        ),
        "lockkeeper_coordinator_requests_total{api=\"pre-reboot\",group=\"workers\",kind=\"granted\"} 2",
        "lockkeeper_coordinator_requests_total{api=\"pre-reboot\",group=\"\",kind=\"unknown_group\"} 1",
        "lockkeeper_coordinator_store_ok 1",
    ] {
        assert!(answer.body.lines().any(|line| line == expected), "{expected}\n{}", answer.body);
    }
    assert!(!answer.body.contains("n2") && answer.body.ends_with("# EOF\n"), "{}", answer.body);
    rig.stop().await;
}

/// A node that never comes back tells nobody; who holds its slot does.
#[tokio::test]
async fn the_alert_for_a_node_that_does_not_come_back_names_what_is_served() {
    const RULES: &str = include_str!("../../../packaging/alerts.yaml");
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("workers", 3)]).await;
    rig.post("pre-reboot", "", "workers", "n1").await;
    let answer = rig.raw("GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let rules = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let names: Vec<&str> = rules
        .flat_map(|rule| rule.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.starts_with("lockkeeper_coordinator_"))
        .collect();
    assert_eq!(names, ["lockkeeper_coordinator_held_since_seconds"]);
    for name in names {
        let told = answer.body.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let told = told.unwrap_or_else(|| panic!("{name} is not served: {}", answer.body));
        for label in ["group=\"workers\"", "id=\"n1\""] {
            assert!(told.contains(label), "{told}");
        }
    }
    rig.stop().await;
}

/// Each request is sent once the answer to the one before it is here; the server closes in the end.
#[tokio::test]
async fn a_connection_carries_on_until_it_is_refused_or_rests() {
    let (_kept, folder) = folder();
    let groups = [("default", 1), ("other", 1)];
    let rig = Rig::start(&folder, &groups).await;
    for (group, id, statuses) in [
        ("default", "n1", &["200", "200", "200"] as &[&str]),
        // Refused at once and not asked again, whatever it still says.
        ("typo", "n1", &["400"]),
    ] {
        let body = format!(r#"{{"client_params":{{"id":"{id}","group":"{group}"}}}}"#);
        let request = format!(
            "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = BufReader::new(TcpStream::connect(rig.address).await.unwrap());
        for expected in statuses {
            stream.write_all(request.as_bytes()).await.unwrap();
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let at = head.len();
                assert!(stream.read_line(&mut head).await.unwrap() > 0, "ends after {head:?}");
                if let Some(value) = head[at..].strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            assert_eq!(head.split(' ').nth(1), Some(*expected), "{head}");
            stream.read_exact(&mut vec![0; length]).await.unwrap();
        }
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut rest));
        assert_eq!(ended.await.expect("a connection that rests keeps its place").unwrap(), 0);
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_fed_slowly_or_not_at_all_loses_its_place() {
    let (_kept, folder) = folder();
    let lifetime = Duration::from_millis(300);
    let rig = Rig::start_bounded(&folder, &[("default", 1)], 2, lifetime, lifetime).await;
    let began = Instant::now();
    let mut silent = TcpStream::connect(rig.address).await.unwrap();
    let mut slow = TcpStream::connect(rig.address).await.unwrap();
    slow.write_all(b"POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nx: ").await.unwrap();
    // Both places are taken, and the third is served all the same, once they are free.
    let third = rig.post("pre-reboot", "", "default", "n1");
    let third = tokio::time::timeout(Duration::from_secs(60), third).await;
    assert_eq!(third.expect("both places stay taken").word(), "200 granted");
    assert!(began.elapsed() >= lifetime, "the bound on connections did not hold");
    for stream in [&mut silent, &mut slow] {
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(5), read).await;
        assert!(ended.is_ok(), "a connection outlived its time");
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_connection_without_the_head_of_a_request_is_dropped_long_before_its_time() {
    let (_kept, folder) = folder();
    let (lifetime, head_within) = (Duration::from_secs(3600), Duration::from_millis(100));
    let groups = [("default", 1)];
    let rig = Rig::start_bounded(&folder, &groups, 10, lifetime, head_within).await;
    let body = r#"{"client_params":{"id":"n1","group":"default"}}"#;
    let head = format!(
        "POST /v1/pre-reboot HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut whole = TcpStream::connect(rig.address).await.unwrap();
    whole.write_all(head.as_bytes()).await.unwrap();
    let half = head.trim_end();
    for told in ["", "\r\n\r\n\r\n\r\n", half] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(told.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(60), read).await;
        assert!(ended.is_ok(), "it keeps its place: {told:?}");
        assert!(!String::from_utf8_lossy(&rest).contains(" 200 "), "{told:?}");
    }
    // Its head came in time, and its body may be later than the others' heads could be.
    whole.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    whole.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    rig.stop().await;
}

#[tokio::test]
async fn holders_and_their_times_outlive_a_restart_and_fewer_slots() {
    let (_kept, folder) = folder();
    let rig = Rig::start(&folder, &[("default", 2)]).await;
    rig.post("pre-reboot", A1, "default", "n1").await;
    rig.post("pre-reboot", "", "default", "n2").await;
    let before = rig.desk.view().slots.clone();
    rig.stop().await;
    let rig = Rig::start(&folder, &[("default", 1)]).await;
    assert_eq!(rig.desk.view().slots, before);
    let steps = [
        ("pre-reboot", A1, "n1", "200 confirmed"),
        ("pre-reboot", B1, "n1", "409 held_by_other_attempt"),
        ("steady-state", "", "n2", "200 released"),
        ("pre-reboot", "", "n3", "409 failed_lock_semaphore_full"),
    ];
    for (path, headers, id, expected) in steps {
        assert_eq!(rig.post(path, headers, "default", id).await.word(), expected);
    }
    rig.stop().await;
    // More slots count from the first request on, too.
    let rig = Rig::start(&folder, &[("default", 2)]).await;
    assert_eq!(rig.post("pre-reboot", "", "default", "n3").await.word(), "200 granted");
    rig.stop().await;
}
