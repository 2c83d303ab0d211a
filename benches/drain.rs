//! What a drain costs: the agent's beside that of `kubectl drain`, on the same API server.
//!
//! `cargo bench --bench drain` brings the lab up (tests/lab) and drains one of its hosts:
//!
//! - 30 pods that nothing protects;
//! - 30 pods under a budget that lets one go at a time, whose replacements take seconds to be ready;
//! - a few pods, again and again: how long after the last one is gone the agent knows.
//!
//! Requests are counted in the server's audit log, from the look at the Node that its cordon begins with to the end of
//! the drain. What the agent does besides (its rehearsal before, conditions, annotations and Events) is counted apart.
//! Its slot server is the benchmark: it takes the slot back when it is confirmed after the drain, and so the node need
//! not reboot. Before each drain the same pods are there and ready, alone on the node; without a budget they are bound
//! to it, so that their replacements wait until it is uncordoned, with one they come up elsewhere.
//! `DRAIN_PODS` and `DRAIN_SAMPLES` change the numbers of pods (30) and of small drains (20).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(dead_code, unreachable_pub, reason = "the lab's rooms are shared with tests/cycle")]

#[path = "parts/audit.rs"]
mod audit;
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

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;
use serde_json::{Value, json};

use audit::{Audit, Request, counted};
use cluster::Cluster;
use figures::{Section, largest, median, seconds};
use host::Host;
use lab::{Lab, until};
use server::{Server, now};
use watch::Log;

/// Where the pods are.
const SPACE: &str = "bench";
/// The node that is drained.
const NODE: &str = "n1";
/// The nodes that take the replacements.
const OTHERS: [&str; 2] = ["n2", "n3"];
/// What the audit log calls an eviction.
const EVICTION: &str = "create pods/eviction";

/// Everything that a drain needs.
struct Bench {
    lab: Lab,
    cluster: Cluster,
    host: Host,
    server: Server,
    pods: Log,
    budgets: Log,
}

/// One drain.
struct Drain {
    /// How many pods it evicted.
    pods: usize,
    /// From the first request to the end, seconds.
    took: f64,
    /// The same to the last pod's going.
    pods_took: f64,
    /// Of this, how long the budget would have let a pod go.
    idle: f64,
    /// From the last pod's going to the end.
    known_after: f64,
    /// What the drain asked for.
    requests: Vec<Request>,
    /// What was asked besides.
    besides: Vec<Request>,
}

fn main() -> ExitCode {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, samples): (usize, usize) = (number("DRAIN_PODS", 30), number("DRAIN_SAMPLES", 20));
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let bench = Bench::new();

    // Takes the lab's own pods from the node, so that each drain meets the same ones.
    bench.deploy(1, false);
    bench.kubectl();
    bench.deploy(count, false);
    let ours = bench.ours();
    bench.deploy(count, false);
    let theirs = bench.kubectl();
    let mut section = Section::new("## Drains, beside `kubectl drain`\n\n");
    free(&mut section, count, &ours, &theirs);

    bench.deploy(count, true);
    let slow_ours = bench.ours();
    bench.deploy(count, true);
    let slow_theirs = bench.kubectl();
    slow(&mut section, count, &slow_ours, &slow_theirs);

    let mut late = Vec::new();
    for _ in 0..samples {
        bench.deploy(3, false);
        late.push(bench.ours().known_after);
        eprintln!("known {:.4} s after the last pod", late.last().unwrap());
    }
    bench.sweep();
    bench.host.configure_no_more();
    drop(bench.lab);
    section.line(&format!("\n**How soon the agent knows.** {samples} drains of 3 pods, seconds from the last DELETED that a bare watcher sees to the agent's next step.\n"));
    section.line("| median | longest | limit of the median | |\n|---:|---:|---:|---|");
    let (middle, longest) = (median(&late), largest(&late));
    section.row(&format!("{middle:.4} | {longest:.4} | 0.05"), middle, 0.05);
    section.end("40-drain.md")
}

#[allow(clippy::cast_precision_loss, reason = "some hundreds")]
fn ratio(ours: usize, theirs: usize) -> f64 {
    ours as f64 / theirs as f64
}

fn free(section: &mut Section, count: usize, ours: &Drain, theirs: &Drain) {
    section.line(&format!("**{count} pods, no budget.**\n"));
    table(section, ours, theirs);
    section.line("\n| | ours | limit | |\n|---|---:|---:|---|");
    let requests = ratio(ours.requests.len(), theirs.requests.len());
    section.row(&format!("requests, part of kubectl's | {requests:.2} | 0.45"), requests, 0.45);
    let time = ours.took / theirs.took;
    section.row(&format!("time, part of kubectl's | {time:.2} | 0.33"), time, 1.0 / 3.0);
    let evictions = ours.requests.iter().filter(|one| one.what == EVICTION).count();
    let each = ratio(evictions, ours.pods);
    section.row(&format!("evictions a pod | {each:.2} | 1"), each, 1.0);
    let others = ratio(ours.requests.len() - evictions, 1);
    let what = "other requests: list, watch, and the cordon's read and patch";
    section.row(&format!("{what} | {others} | 4"), others, 4.0);
}

fn slow(section: &mut Section, count: usize, ours: &Drain, theirs: &Drain) {
    section.line(&format!("\n**{count} pods, one at a time, slow replacements.**\n"));
    table(section, ours, theirs);
    section.line("\n| | ours | limit | |\n|---|---:|---:|---|");
    let requests = ratio(ours.requests.len(), theirs.requests.len());
    section.row(&format!("requests, part of kubectl's | {requests:.2} | 0.25"), requests, 0.25);
    // What the pods and their replacements took by themselves.
    let floor = ours.pods_took - ours.idle;
    let over = ours.took / floor;
    let floors = format!("time, beside the pods' own going ({floor:.1} s)");
    section.row(&format!("{floors} | {over:.3} | 1.10"), over, 1.10);
    let theirs = theirs.took / (theirs.pods_took - theirs.idle);
    section.line(&format!("\nkubectl took {theirs:.3} of its own."));
}

fn table(section: &mut Section, ours: &Drain, theirs: &Drain) {
    assert_eq!(ours.pods, theirs.pods, "these are not the same drain");
    section.line(
        "| | pods | requests | refused evictions | seconds | after the last pod | what for | besides |",
    );
    section.line("|---|---:|---:|---:|---:|---:|---|---|");
    for (name, drain) in [("lockkeeper", ours), ("kubectl drain", theirs)] {
        let refused = drain.requests.iter().filter(|one| one.code == 429).count();
        section.line(&format!(
            "| {name} | {} | {} | {refused} | {:.2} | {:.3} | {} | {} |",
            drain.pods,
            drain.requests.len(),
            drain.took,
            drain.known_after,
            counted(&drain.requests),
            counted(&drain.besides),
        ));
    }
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        let lab = Lab::new();
        let cluster = Cluster::new(&lab.folder);
        let host = Host::new(&lab.folder, NODE);
        host.begin();
        // Another server is refused while a slot of the first start may be held at the old one.
        host.waits_for("no-update", 120);
        let server = Server::start();
        let limits = "[drain]\ndeadline = \"10m\"\n";
        host.configure(&format!("{}{limits}", server.configuration()));
        let pods = watch::objects(&lab.folder, |client| Api::<Pod>::namespaced(client, SPACE));
        let budgets = watch::objects(&lab.folder, |client| {
            Api::<PodDisruptionBudget>::namespaced(client, SPACE)
        });
        Self { lab, cluster, host, server, pods, budgets }
    }

    fn sweep(&self) {
        let space = ["delete", "namespace", SPACE, "--ignore-not-found"];
        self.cluster.kubectl(&space);
    }

    /// All pods on the node; behind a budget if it is to be slow.
    fn deploy(&self, count: usize, slow: bool) {
        self.sweep();
        let labels = json!({ "app": "load" });
        let mut template = json!({
            "metadata": { "labels": labels },
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "load", "image": "registry.invalid/web:1" }],
            },
        });
        if slow {
            // Any server that is there says that a replacement is ready, three seconds late.
            let port = std::env::var("LAB_PORT_COORDINATOR").unwrap_or_else(|_| "3333".to_owned());
            template["spec"]["containers"][0]["readinessProbe"] = json!({
                "httpGet": { "host": "127.0.0.1", "port": port.parse::<u16>().unwrap(), "path": "/healthz" },
                "initialDelaySeconds": 3, "periodSeconds": 1,
            });
        } else {
            template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": NODE });
        }
        let mut items = vec![
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SPACE } }),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": "load", "namespace": SPACE },
                "spec": { "replicas": count, "selector": { "matchLabels": labels }, "template": template },
            }),
        ];
        if slow {
            items.push(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": "load", "namespace": SPACE },
                "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels } },
            }));
            OTHERS.iter().for_each(|node| drop(self.cluster.kubectl(&["cordon", node])));
        }
        self.cluster.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }));
        self.await_ready(count);
        OTHERS.iter().for_each(|node| drop(self.cluster.kubectl(&["uncordon", node])));
    }

    fn await_ready(&self, count: usize) {
        until(180, "the pods are ready", || {
            let seen = self.cluster.get(&["--namespace", SPACE, "deployment/load"]);
            (seen["status"]["readyReplicas"] == count).then_some(())
        });
    }

    /// A drain of the agent, which is then denied the slot and yields.
    fn ours(&self) -> Drain {
        let audit = Audit::from_now(&self.lab.folder);
        self.host.sh("lockkeeper retry");
        self.server.grants(true);
        let began = now();
        self.host.stage(&format!("62.{began}"), &[]);
        let granted = self.server.first(NODE, "pre-reboot", began);
        self.server.grants(false);
        let ended = self.server.first(NODE, "pre-reboot", granted.at + 1);
        self.server.first(NODE, "steady-state", ended.at);
        self.host.lab("unstage", &[]);
        self.host.waits_for("no-update", 60);
        let all = audit.requests("lockkeeper", &format!("system:node:{NODE}"));
        let mut since = all.iter().filter(|one| one.at > granted.at);
        assert!(since.clone().any(|one| one.cordons), "the node was not cordoned");
        // A cordon may begin with a look at the Node.
        let first = since.find(|one| one.cordons || one.what == "get nodes").expect("a cordon").at;
        let is_besides = |one: &Request| {
            one.what == "patch nodes/status"
                || one.what.contains("events")
                || (one.what == "patch nodes" && !one.cordons)
        };
        let during = all.iter().filter(|one| (first..ended.at).contains(&one.at)).cloned();
        let (mut besides, requests): (Vec<_>, Vec<_>) = during.partition(is_besides);
        besides.extend(all.iter().filter(|one| (began..first).contains(&one.at)).cloned());
        self.drain(first, ended.at, requests, besides)
    }

    /// A drain of kubectl, after which the node is schedulable again.
    fn kubectl(&self) -> Drain {
        let audit = Audit::from_now(&self.lab.folder);
        self.cluster.kubectl(&[
            "drain",
            NODE,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            "--timeout=500s",
        ]);
        let ended = now();
        let requests = audit.requests("kubectl", "");
        let began = requests.first().expect("requests of kubectl").at;
        self.cluster.kubectl(&["uncordon", NODE]);
        self.drain(began, ended, requests, Vec::new())
    }

    fn drain(
        &self,
        began: u64,
        ended: u64,
        requests: Vec<Request>,
        besides: Vec<Request>,
    ) -> Drain {
        let seen = self.pods.since(began);
        let was_here = |object: &Value| object["spec"]["nodeName"] == NODE;
        let gone = seen.iter().filter(|seen| seen.kind == "DELETED" && was_here(&seen.object));
        let gone = gone
            .map(|seen| seen.at)
            .filter(|at| *at <= ended + 2_000_000)
            .max()
            .expect("pods that went");
        let evicted: Vec<u64> = requests
            .iter()
            .filter(|one| one.what == EVICTION && one.code < 300)
            .map(|one| one.at)
            .collect();
        let last = evicted.iter().copied().max().expect("evictions");
        Drain {
            pods: evicted.len(),
            took: seconds(began, ended),
            pods_took: seconds(began, gone),
            idle: self.idle(began, last),
            known_after: seconds(gone, ended),
            requests,
            besides,
        }
    }

    /// How long the budget would have let somebody go, seconds.
    fn idle(&self, began: u64, last: u64) -> f64 {
        let mut since = None;
        let mut idle = 0.0;
        for seen in self.budgets.since(began).iter().filter(|seen| seen.at <= last) {
            let allowed = seen.object["status"]["disruptionsAllowed"].as_u64().unwrap_or(0) > 0;
            match (allowed, since) {
                (true, None) => since = Some(seen.at),
                (false, Some(from)) => {
                    idle += seconds(from, seen.at);
                    since = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        idle + since.map_or(0.0, |from| seconds(from, last))
    }
}
