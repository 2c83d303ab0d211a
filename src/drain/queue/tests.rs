#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, from_value, json};

use super::*;
use crate::drain::classify::{EmptyDirs, Unmanaged};

pub(super) const RULES: Rules = Rules { unmanaged: Unmanaged::Leave, empty_dir: EmptyDirs::Evict };
pub(super) const LIMITS: Limits =
    Limits { parallel: 4, budget_retry: Duration::from_secs(5), how: How::Evict };

pub(super) fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A Ready pod of the ReplicaSet `owner`; its UID is its name.
pub(super) fn pod(name: &str, owner: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner,
            "controller": true,
        }]},
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut pod);
    from_value(pod).unwrap()
}

pub(super) fn plain(name: &str, owner: &str) -> Pod {
    pod(name, owner, |_| ())
}

pub(super) fn terminating(name: &str, owner: &str) -> Pod {
    pod(name, owner, |p| p["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z"))
}

fn queue(rules: Rules, limits: Limits, pods: &[Pod]) -> Queue {
    let mut queue = Queue::new(rules, limits, 11);
    for pod in pods {
        queue.seen(pod, None, Duration::ZERO);
    }
    queue.listed(&pods.iter().filter_map(|p| p.metadata.uid.clone()).collect());
    queue
}

fn asked(queue: &mut Queue, seconds: f64) -> Vec<String> {
    queue.next(at(seconds)).into_iter().map(|ask| ask.pod.name).collect()
}

pub(super) fn refusal(budget: &str) -> Answer {
    Answer::BudgetExhausted {
        budget: Some(budget.into()),
        says: format!("the disruption budget {budget} needs 3"),
        retry_after: None,
    }
}

pub(super) fn unreachable() -> Answer {
    Answer::Unreachable { says: "connection refused".into() }
}

#[test]
fn a_plain_drain_asks_each_pod_once() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let pods: Vec<Pod> = names.iter().map(|name| plain(name, name)).collect();
    let mut queue = queue(RULES, LIMITS, &pods);
    assert_eq!(asked(&mut queue, 0.0), ["a", "b", "c", "d"]);
    assert_eq!(asked(&mut queue, 0.0), [""; 0]);
    for name in &names[..4] {
        queue.answered(name, &Answer::Accepted, at(0.1));
    }
    // Those that wait to be gone hold no place.
    assert_eq!(asked(&mut queue, 0.1), ["e", "f"]);
    queue.answered("e", &Answer::Accepted, at(0.2));
    queue.answered("f", &Answer::Accepted, at(0.2));
    assert_eq!((asked(&mut queue, 0.2).len(), queue.wake(at(0.2))), (0, None));
    assert_eq!(queue.standing(), Standing::Busy);
    for (index, name) in names.iter().enumerate() {
        assert_eq!((queue.progress().total, queue.progress().gone), (6, index));
        assert_eq!(queue.standing(), Standing::Busy);
        queue.gone(name);
    }
    assert_eq!(queue.standing(), Standing::Empty);
}

#[test]
fn nothing_is_asked_or_empty_before_the_list_is_complete() {
    let mut queue = Queue::new(RULES, LIMITS, 1);
    queue.seen(&plain("a", "a"), None, at(0.0));
    assert_eq!((asked(&mut queue, 0.0).len(), queue.standing()), (0, Standing::Busy));
    queue.listed(&BTreeSet::from(["a".to_owned()]));
    assert_eq!(asked(&mut queue, 0.0), ["a"]);
}

#[test]
fn critical_pods_wait_until_the_others_have_gone() {
    let dns = pod("a-dns", "dns", |p| p["spec"]["priority"] = json!(2_000_000_000));
    let low = pod("z-batch", "batch", |p| p["spec"]["priority"] = json!(-5));
    let mut queue = queue(RULES, LIMITS, &[dns, low, plain("web", "web")]);
    assert_eq!(asked(&mut queue, 0.0), ["z-batch", "web"]);
    queue.answered("z-batch", &Answer::Accepted, at(0.0));
    queue.answered("web", &Answer::Accepted, at(0.0));
    queue.gone("web");
    assert_eq!(asked(&mut queue, 1.0), [""; 0]);
    queue.gone("z-batch");
    assert_eq!(asked(&mut queue, 2.0), ["a-dns"]);
}

#[test]
fn pods_behind_one_budget_send_one_probe() {
    let pods: Vec<Pod> = (0..10).map(|n| plain(&format!("web-{n}"), "web")).collect();
    let mut queue = queue(RULES, LIMITS, &pods);
    assert_eq!(asked(&mut queue, 0.0), ["web-0", "web-1", "web-2", "web-3"]);
    queue.answered("web-0", &Answer::Accepted, at(0.0));
    for name in ["web-1", "web-2", "web-3"] {
        queue.answered(name, &refusal("web"), at(0.01));
    }
    // Their siblings are not asked at all.
    assert_eq!(asked(&mut queue, 0.01), [""; 0]);
    assert_eq!(queue.progress().obstacles.len(), 10);
    // One probe at a time, by one that has not been asked yet.
    let wake = queue.wake(at(0.01)).unwrap();
    assert_eq!(queue.next(wake).len(), 1);
    assert_eq!(queue.next(wake + at(60.0)).len(), 0);
    queue.answered("web-4", &refusal("web"), wake);
    let wake = queue.wake(wake).unwrap();
    assert_eq!(queue.next(wake)[0].pod.name, "web-5");
    // Once it opens, the next one is asked without delay, and nobody else beside it.
    queue.answered("web-5", &Answer::Accepted, wake);
    let soon = queue.wake(wake).unwrap_or(wake);
    assert!(soon <= wake + at(1.0), "next probe at {soon:?} after {wake:?}");
    assert_eq!(queue.next(soon).len(), 1);
}

#[test]
fn a_pod_that_is_not_ready_asks_for_itself() {
    let mut pods: Vec<Pod> = (0..4).map(|n| plain(&format!("web-{n}"), "web")).collect();
    pods.push(pod("web-sick", "web", |p| p["status"]["conditions"] = json!([])));
    let mut queue = queue(RULES, LIMITS, &pods);
    for name in asked(&mut queue, 0.0) {
        queue.answered(&name, &refusal("web"), at(0.0));
    }
    assert_eq!(asked(&mut queue, 0.0), ["web-sick"]);
}

#[test]
fn two_budgets_are_probed_side_by_side() {
    let pods = [plain("a", "a"), plain("b", "b"), plain("c", "c")];
    let mut queue = queue(RULES, LIMITS, &pods);
    for name in asked(&mut queue, 0.0) {
        queue.answered(&name, &refusal(&name), at(0.0));
    }
    assert_eq!(queue.next(at(3.0)).len(), 3);
}

#[test]
fn an_answer_that_it_has_gone_ends_the_asking_but_not_the_waiting() {
    for answer in [Answer::Gone, Answer::Elsewhere] {
        let mut queue = queue(RULES, LIMITS, &[plain("a", "a")]);
        asked(&mut queue, 0.0);
        queue.answered("a", &answer, at(0.0));
        assert_eq!(asked(&mut queue, 3600.0), [""; 0]);
        assert_eq!(queue.standing(), Standing::Busy);
        queue.listed(&BTreeSet::new());
        assert_eq!(queue.standing(), Standing::Empty);
    }
}

#[test]
fn what_terminates_already_is_waited_for() {
    let mut queue = queue(RULES, LIMITS, &[terminating("a", "a")]);
    assert_eq!((asked(&mut queue, 0.0).len(), queue.standing()), (0, Standing::Busy));
    assert_eq!(queue.progress().obstacles[0].kind, ObstacleKind::Terminating);
}

#[test]
fn a_pod_that_ends_while_it_terminates_is_waited_for_a_little() {
    let ended = |phase: &'static str| {
        pod("a", "a", move |p| {
            p["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
            p["status"]["phase"] = json!(phase);
        })
    };
    let mut queue = queue(RULES, LIMITS, &[plain("a", "a")]);
    asked(&mut queue, 0.0);
    queue.answered("a", &Answer::Accepted, at(0.0));
    queue.seen(&ended("Succeeded"), None, at(1.0));
    queue.seen(&ended("Succeeded"), None, at(20.0));
    assert_eq!(queue.standing(), Standing::Busy);
    assert_eq!(queue.wake(at(1.0)), Some(at(31.0)));
    queue.next(at(31.0));
    assert_eq!(queue.standing(), Standing::Empty);
}

/// A restarted agent finds what it evicted before, and waits for it as the first one would have.
#[test]
fn what_a_drain_before_this_one_evicted_is_waited_for_as_well() {
    let ended = |change: fn(&mut Value)| {
        pod("a", "a", |p| {
            p["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
            p["status"]["phase"] = json!("Failed");
            change(p);
        })
    };
    let mut queue = queue(RULES, LIMITS, &[ended(|_| ())]);
    assert_eq!((asked(&mut queue, 1.0).len(), queue.standing()), (0, Standing::Busy));
    queue.seen(&ended(|_| ()), None, at(20.0));
    queue.next(at(29.0));
    assert_eq!(queue.standing(), Standing::Busy);
    queue.next(at(30.0));
    assert_eq!(queue.standing(), Standing::Empty);
    // What no drain would have evicted, and what nobody deletes.
    for change in [
        (|p| p["metadata"]["ownerReferences"] = json!([])) as fn(&mut Value),
        |p| p["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet"),
        |p| p["metadata"]["deletionTimestamp"] = json!(null),
    ] {
        let mut queue = Queue::new(RULES, LIMITS, 11);
        queue.seen(&ended(change), None, Duration::ZERO);
        queue.listed(&BTreeSet::from(["a".to_owned()]));
        assert_eq!(queue.standing(), Standing::Empty);
    }
}

#[test]
fn one_refused_pod_keeps_all_from_being_asked() {
    let bare = pod("bare", "x", |p| p["metadata"]["ownerReferences"] = json!([]));
    let rules = Rules { unmanaged: Unmanaged::Refuse, ..RULES };
    let mut queue = queue(rules, LIMITS, &[plain("a", "a"), bare]);
    assert_eq!(asked(&mut queue, 0.0), [""; 0]);
    let Standing::Impossible(obstacles) = queue.standing() else { panic!("not impossible") };
    assert_eq!(obstacles[0].pod, "bare");
    queue.gone("bare");
    assert_eq!(asked(&mut queue, 1.0), ["a"]);
}

#[test]
fn a_missing_right_is_believed_when_told_again() {
    let mut queue = queue(RULES, LIMITS, &[plain("a", "a")]);
    let no = Answer::Forbidden { says: "cannot create resource".into() };
    let mut now = Duration::ZERO;
    for _ in 0..3 {
        assert_eq!(queue.standing(), Standing::Busy);
        now = queue.wake(now).unwrap_or(now);
        assert_eq!(queue.next(now).len(), 1);
        queue.answered("a", &no, now);
    }
    assert!(matches!(queue.standing(), Standing::Impossible(o) if o.len() == 1));
}

#[test]
fn a_terminating_namespace_is_emptied_by_deletion() {
    let mut queue = queue(RULES, LIMITS, &[plain("a", "a")]);
    asked(&mut queue, 0.0);
    queue.answered("a", &Answer::NamespaceTerminating, at(0.0));
    assert_eq!(queue.next(at(0.0))[0].how, How::Delete);
}

#[test]
fn while_no_server_answers_one_request_tries() {
    let pods: Vec<Pod> = (0..8).map(|n| plain(&n.to_string(), &n.to_string())).collect();
    let mut queue = queue(RULES, LIMITS, &pods);
    for name in asked(&mut queue, 0.0) {
        queue.answered(&name, &unreachable(), at(0.0));
    }
    let mut now = at(0.0);
    for _ in 0..20 {
        now = queue.wake(now).unwrap();
        let asks = queue.next(now);
        assert_eq!(asks.len(), 1);
        queue.answered(&asks[0].pod.uid, &unreachable(), now);
    }
    assert!(now > at(60.0), "20 tries in {now:?}");
    now = queue.wake(now).unwrap();
    let asks = queue.next(now);
    queue.answered(&asks[0].pod.uid, &Answer::Accepted, now);
    assert_eq!(queue.next(now).len(), 4);
}

#[test]
fn a_server_under_load_is_left_alone_as_a_whole() {
    let pods: Vec<Pod> = (0..8).map(|n| plain(&n.to_string(), &n.to_string())).collect();
    let mut queue = queue(RULES, LIMITS, &pods);
    asked(&mut queue, 0.0);
    let busy = Answer::TooManyRequests { says: "later".into(), retry_after: Some(at(2.0)) };
    queue.answered("0", &busy, at(0.0));
    assert_eq!(asked(&mut queue, 1.9), [""; 0]);
    assert!(queue.wake(at(0.0)).unwrap() >= at(2.0));
}

#[test]
fn deletion_knows_no_tiers() {
    let dns = pod("a-dns", "dns", |p| p["spec"]["priority"] = json!(2_000_000_000));
    let limits = Limits { how: How::Delete, ..LIMITS };
    let mut queue = queue(RULES, limits, &[dns, plain("web", "web")]);
    let asks = queue.next(at(0.0));
    assert_eq!(asks.len(), 2);
    assert!(asks.iter().all(|ask| ask.how == How::Delete));
}

#[test]
fn a_namesake_is_another_pod() {
    let mut queue = queue(RULES, LIMITS, &[plain("a", "a")]);
    asked(&mut queue, 0.0);
    queue.answered("a", &Answer::Accepted, at(0.0));
    let namesake = pod("a", "a", |p| p["metadata"]["uid"] = json!("a2"));
    queue.gone("a");
    queue.seen(&namesake, None, at(1.0));
    let asks = queue.next(at(1.0));
    assert_eq!((asks[0].pod.name.as_str(), asks[0].pod.uid.as_str()), ("a", "a2"));
}

#[test]
fn claims_of_those_that_stay_are_known() {
    let daemon = pod("log", "log", |p| {
        p["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        p["spec"]["volumes"] = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "tmp", "ephemeral": {}},
            {"name": "x", "emptyDir": {}},
        ]);
    });
    let queue = queue(RULES, LIMITS, &[daemon]);
    let names: Vec<String> = queue.staying_claims().into_iter().map(|c| c.name).collect();
    assert_eq!((names, queue.standing()), (vec!["disk".into(), "log-tmp".into()], Standing::Empty));
}

#[test]
fn what_ends_by_itself_is_not_asked_until_it_says_otherwise() {
    use crate::drain::wish::Wish;
    let (mut queue, job) = (queue(RULES, LIMITS, &[]), plain("job", "job"));
    let wait = Some(Wish::WaitCompleted);
    queue.seen(&job, wait, at(0.0));
    queue.seen(&plain("web", "web"), None, at(0.0));
    assert_eq!(asked(&mut queue, 0.0), ["web"]);
    let kinds = |queue: &Queue| -> Vec<ObstacleKind> {
        queue.progress().obstacles.into_iter().map(|obstacle| obstacle.kind).collect()
    };
    assert_eq!(kinds(&queue), [ObstacleKind::Completing]);
    // It holds the node up, and nobody has to wake for it.
    queue.gone("web");
    assert_eq!((queue.standing(), queue.wake(at(1.0))), (Standing::Busy, None));
    // The word is taken back: it is asked; put on once more while it is behind a budget: it is not.
    queue.seen(&job, None, at(2.0));
    assert_eq!(asked(&mut queue, 2.0), ["job"]);
    queue.seen(&job, wait, at(2.0));
    queue.answered("job", &refusal("x"), at(2.1));
    assert_eq!(kinds(&queue), [ObstacleKind::Completing]);
    assert_eq!((asked(&mut queue, 99.0).len(), queue.wake(at(99.0))), (0, None));
    // One that was evicted before leaves.
    queue.seen(&job, None, at(100.0));
    assert_eq!(asked(&mut queue, 100.0), ["job"]);
    queue.seen(&job, wait, at(100.0));
    queue.answered("job", &Answer::Accepted, at(100.1));
    assert_eq!(kinds(&queue), [ObstacleKind::Terminating]);
    let ended = pod("job", "job", |p| p["status"]["phase"] = json!("Succeeded"));
    queue.seen(&ended, wait, at(101.0));
    assert_eq!(queue.standing(), Standing::Empty);
}

#[test]
fn past_the_deadline_what_ends_by_itself_is_deleted() {
    use crate::drain::wish::Wish;
    let mut queue = queue(RULES, Limits { how: How::Delete, ..LIMITS }, &[]);
    queue.seen(&plain("job", "job"), Some(Wish::WaitCompleted), at(0.0));
    assert_eq!(asked(&mut queue, 0.0), ["job"]);
}
