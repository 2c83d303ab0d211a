//! How long an agent takes to act, beside a bare watcher of the same signal in the same run.
//!
//! `cargo bench --bench latency` brings the lab up (tests/lab) and measures on one of its hosts:
//!
//! - from rpm-ostree's signal that an update is staged, as `busctl monitor` hears it on the host's
//!   bus, to the request for the slot. The rehearsal of the drain lies in between.
//! - from the first state of the Node that says Ready in the new boot, as a bare watch shows it, plus
//!   the settle time, to the Node seen schedulable and to the release of the slot.
//!
//! `LATENCY_SAMPLES` changes how many of each are taken (20). It fails if a median is over 0.5 s.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(dead_code, unreachable_pub, reason = "the lab's rooms are shared with tests/cycle")]

#[path = "../tests/cycle/cluster.rs"]
mod cluster;
#[path = "parts/figures.rs"]
mod figures;
#[path = "../tests/cycle/host.rs"]
mod host;
#[path = "../tests/cycle/journal.rs"]
mod journal;
#[path = "../tests/cycle/lab.rs"]
mod lab;
#[path = "parts/server.rs"]
mod server;
#[path = "parts/watch.rs"]
mod watch;

use std::process::ExitCode;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use figures::{Section, largest, median, seconds};
use host::Host;
use lab::Lab;
use server::{Server, now};
use watch::{Log, Seen, Signals};

/// What the agent is told to settle for.
const SETTLE_SECONDS: f64 = 2.0;

/// The most that a median may be later than a bare watcher, seconds.
const LIMIT: f64 = 0.5;

fn main() -> ExitCode {
    let samples = std::env::var("LATENCY_SAMPLES").map_or(20, |text| text.parse().unwrap());
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let lab = Lab::new();
    let host = Host::new(&lab.folder, "n1");
    host.begin();
    // Another server is refused while a slot of the first start may be held at the old one.
    host.waits_for("no-update", 120);
    let server = Server::start();
    let settle = format!("{}[settle]\ntime = \"{SETTLE_SECONDS}s\"\n", server.configuration());
    host.configure(&settle);

    let asked = staged_to_asked(&host, &server, samples);
    let nodes = watch::objects(&lab.folder, Api::<Node>::all);
    let (uncordoned, released) = ready_to_released(&host, &server, &nodes, samples);
    host.configure_no_more();
    drop(lab);

    let mut section = Section::new(
        "## How soon the agent acts\n\n\
         Seconds after a bare watcher of the same signal in the same run.\n\n\
         | from | to | samples | median | longest | limit of the median | |\n|---|---|---:|---:|---:|---:|---|\n",
    );
    for (from, to, values) in [
        ("staged", "slot asked for", &asked),
        ("Ready, plus the settle time", "uncordoned", &uncordoned),
        ("Ready, plus the settle time", "slot released", &released),
    ] {
        let (middle, longest) = (median(values), largest(values));
        let count = values.len();
        let cells = format!("{from} | {to} | {count} | {middle:.3} | {longest:.3} | {LIMIT}");
        section.row(&cells, middle, LIMIT);
    }
    section.end("41-latency.md")
}

/// The slot is denied and the update withdrawn, again and again.
fn staged_to_asked(host: &Host, server: &Server, samples: usize) -> Vec<f64> {
    let signals = Signals::of_rpm_ostree(&host.name);
    server.grants(false);
    let mut all = Vec::new();
    for sample in 0..samples {
        let began = now();
        host.stage(&format!("60.{began}.{sample}"), &[]);
        let asked = server.first(&host.name, "pre-reboot", began);
        let staged = signals.log.first("the signal of the staging", began, tells_deployments);
        all.push(seconds(staged.at, asked.at));
        eprintln!("staged to asked: {:.3} s", all[sample]);
        host.lab("unstage", &[]);
        host.waits_for("no-update", 60);
    }
    all
}

/// The list of deployments is new from here on.
fn tells_deployments(seen: &Seen) -> bool {
    !seen.object["payload"]["data"][1]["Deployments"].is_null()
}

/// Whole cycles.
fn ready_to_released(
    host: &Host,
    server: &Server,
    nodes: &Log,
    samples: usize,
) -> (Vec<f64>, Vec<f64>) {
    server.grants(true);
    let (mut uncordoned, mut released) = (Vec::new(), Vec::new());
    for sample in 0..samples {
        let began = now();
        let before = host.boot_id();
        host.stage(&format!("61.{began}.{sample}"), &[]);
        let mine = |seen: &Seen| seen.object["metadata"]["name"] == host.name.as_str();
        let ready = nodes.first("Ready in a new boot", began, |seen| {
            let boot = seen.object["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default();
            mine(seen) && boot != before && is_ready(seen)
        });
        let schedulable = nodes.first("schedulable again", ready.at, |seen| {
            mine(seen) && seen.object["spec"]["unschedulable"] != true
        });
        let given_back = server.first(&host.name, "steady-state", ready.at);
        uncordoned.push(seconds(ready.at, schedulable.at) - SETTLE_SECONDS);
        released.push(seconds(ready.at, given_back.at) - SETTLE_SECONDS);
        eprintln!(
            "ready to uncordoned: {:.3} s, released: {:.3} s",
            uncordoned[sample], released[sample]
        );
        host.waits_for("no-update", 60);
    }
    (uncordoned, released)
}

fn is_ready(seen: &Seen) -> bool {
    let conditions = seen.object["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}
