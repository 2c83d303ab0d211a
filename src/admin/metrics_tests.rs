#![allow(clippy::unwrap_used)]

use super::*;
use crate::admin::sample;
use crate::lifecycle::{Because, Outcome, Waiting};

fn transition(from: Stage, to: Stage, outcome: Option<Outcome>) -> Transition {
    Transition {
        from,
        to,
        because: Because::Released,
        detail: None,
        attempt: None,
        target: None,
        outcome,
    }
}

fn has(metrics: &Metrics, line: &str) -> bool {
    metrics.encode().unwrap().lines().any(|found| found == line)
}

#[test]
fn a_drain_is_told() {
    let metrics = Metrics::new("0.1.0");
    metrics.observe(&sample::draining(), &[]);
    for line in [
        "lockkeeper_build_info{version=\"0.1.0\"} 1",
        "lockkeeper_state{state=\"draining\"} 1",
        "lockkeeper_state{state=\"idle\"} 0",
        "lockkeeper_waiting{reason=\"draining\"} 1",
        // 2026-11-30T11:50:30Z, and the begin of the first attempt at the same target.
        "lockkeeper_slot_held_since_seconds 1796039430",
        "lockkeeper_update_waiting_since_seconds 1796034600",
        "lockkeeper_drain_pods{state=\"total\"} 12",
        "lockkeeper_drain_pods{state=\"gone\"} 9",
        "lockkeeper_drain_pods{state=\"blocked\"} 1",
    ] {
        assert!(has(&metrics, line), "{line} is not in\n{}", metrics.encode().unwrap());
    }
}

#[test]
fn what_is_over_is_absent() {
    let metrics = Metrics::new("0.1.0");
    metrics.observe(&sample::draining(), &[]);
    metrics.observe(&sample::idle(), &[]);
    let text = metrics.encode().unwrap();
    assert!(text.contains("lockkeeper_waiting{reason=\"no-update\"} 1\n"));
    for gone in ["reason=\"draining\"", "held_since_seconds 1", "waiting_since_seconds 1", "pods{"]
    {
        assert!(!text.contains(gone), "{gone} is still in\n{text}");
    }
}

#[test]
fn answers_are_counted_by_kind_and_kinds_are_bounded() {
    let metrics = Metrics::new("0.1.0");
    metrics.slot_answer(&SlotAnswer::Granted);
    for kind in 0..100 {
        let denied = SlotAnswer::Denied {
            kind: format!("kind-{kind}"),
            value: String::new(),
            retry_after: None,
        };
        metrics.slot_answer(&denied);
    }
    assert!(has(&metrics, "lockkeeper_slot_answers_total{answer=\"granted\",kind=\"\"} 1"));
    assert!(has(&metrics, "lockkeeper_slot_answers_total{answer=\"denied\",kind=\"kind-7\"} 1"));
    let others = 100 - (KINDS_MAX - 1);
    let line =
        format!("lockkeeper_slot_answers_total{{answer=\"denied\",kind=\"other\"}} {others}");
    assert!(has(&metrics, &line));
}

#[test]
fn stages_are_measured_from_the_record_after_a_start_and_then_from_memory() {
    let metrics = Metrics::new("0.1.0");
    let mut snapshot = sample::draining();
    // Draining began 570 s before; the process has just started.
    metrics.observe(&snapshot, &[transition(Stage::Draining, Stage::Yielding, None)]);
    snapshot.at.wall += jiff::SignedDuration::from_secs(3);
    let ended = transition(Stage::Yielding, Stage::Idle, Some(Outcome::Yielded));
    metrics.observe(&snapshot, &[ended]);
    for line in [
        "lockkeeper_stage_duration_seconds_sum{stage=\"draining\"} 570.0",
        "lockkeeper_stage_duration_seconds_sum{stage=\"yielding\"} 3.0",
        "lockkeeper_attempts_total{outcome=\"yielded\"} 1",
    ] {
        assert!(has(&metrics, line), "{line} is not in\n{}", metrics.encode().unwrap());
    }
}

#[test]
fn a_clock_set_back_measures_nothing() {
    let metrics = Metrics::new("0.1.0");
    let mut snapshot = sample::draining();
    snapshot.at.wall -= jiff::SignedDuration::from_hours(24);
    metrics.observe(&snapshot, &[transition(Stage::Draining, Stage::Yielding, None)]);
    assert!(!metrics.encode().unwrap().contains("stage_duration_seconds_sum{"));
}

/// An alert on a metric that nobody serves never fires.
#[test]
fn alert_rules_name_what_is_served() {
    const RULES: &str = include_str!("../../packaging/alerts.yaml");
    let metrics = Metrics::new("0.1.0");
    metrics.observe(&sample::draining(), &[]);
    let served = metrics.encode().unwrap();
    let rules: Vec<&str> = RULES.lines().filter_map(|l| l.trim().strip_prefix("expr: ")).collect();
    // Those of the coordinator are held against what it serves beside its own tests.
    let ours =
        |rule: &&&str| rule.contains("lockkeeper_") && !rule.contains("lockkeeper_coordinator_");
    let ours: Vec<&&str> = rules.iter().filter(ours).collect();
    assert!(ours.len() >= 6, "{rules:?}");
    for rule in ours {
        let begin = rule.find("lockkeeper_").unwrap();
        let name: String =
            rule[begin..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        assert!(served.contains(&format!("# TYPE {name} ")), "{name} is not served");
        if let Some(reason) = rule.split("{reason=\"").nth(1) {
            let failed = Waiting::SlotFailed { kind: String::new(), error: String::new() };
            let known = [failed, Waiting::RecordUnwritable(String::new())];
            let reason = reason.split('"').next().unwrap();
            assert!(known.iter().any(|waiting| waiting.code() == reason), "no reason {reason}");
        }
        if let Some(state) = rule.split("{state=\"").nth(1) {
            let state = state.split('"').next().unwrap();
            assert!(Stage::ALL.iter().any(|stage| stage.name() == state), "no state {state}");
        }
    }
}
