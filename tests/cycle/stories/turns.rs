//! The cycle when all is well.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::cluster::cordon;
use crate::host::{Host, text};
use crate::lab::until;
use crate::world::World;

/// Each change of a Node since the watch began.
struct NodeWatch {
    kubectl: Child,
    seen: Arc<Mutex<Vec<Value>>>,
}

/// Three nodes with an update each go one after another; each tells of it in every way there is.
pub fn three_nodes_take_turns_and_tell_of_it(world: &World) {
    let version = world.version();
    let watch = NodeWatch::start(world.folder());
    let before: Vec<String> = world.hosts().iter().map(|host| host.boot_id()).collect();
    for host in world.hosts() {
        host.configure("[drain]\nrehearsal_every = \"10s\"\n");
    }
    for host in world.hosts() {
        host.stage(&version, &[]);
    }
    let ends: Vec<Value> = world.hosts().iter().map(updated_in_the_end).collect();
    let seen = watch.end();
    for (host, before) in world.hosts().iter().zip(&before) {
        assert_ne!(host.boot_id(), *before, "{} was not rebooted", host.name);
        assert_eq!(host.version(), version);
        assert_eq!(world.cluster.cordon(&host.name), (false, None));
    }
    assert!(world.cluster.holders().is_empty(), "all slots are given back");
    never_two_at_once(world, &seen);
    the_node_showed_it(world, &seen);
    for (host, last) in world.hosts().iter().zip(&ends) {
        people_can_read_it(host, last);
    }
}

/// While another node drains, a rehearsal may find a budget spent, and the node then steps back from
/// the queue for the slot, untouched. From the last such time on, the cycle is straight.
fn updated_in_the_end(host: &Host) -> Value {
    let what = format!("{} is updated", host.name);
    let all = until(240, &what, || {
        let all = host.transitions();
        all.iter().any(|entry| entry.told("OUTCOME") == "updated").then_some(all)
    });
    let from = all.iter().rposition(|entry| entry.told("TO") == "waiting").unwrap();
    let stages: Vec<&str> = all.iter().map(|entry| entry.told("TO")).collect();
    let straight = [
        "waiting",
        "requesting",
        "draining",
        "rebooting",
        "settling",
        "uncordoning",
        "releasing",
        "idle",
    ];
    assert_eq!(stages[from..], straight, "the stages of {}", host.name);
    assert!(!stages[..from].contains(&"draining"), "{} drained twice: {stages:?}", host.name);
    until(10, "the agent tells of it", || Some(host.status()?["last"].clone()))
}

/// By the Nodes, and by the journals: the times with the slot held do not overlap.
fn never_two_at_once(world: &World, seen: &[Value]) {
    let mut marked = BTreeSet::new();
    for node in seen {
        let name = text(&node["metadata"]["name"]).to_owned();
        match cordon(node) {
            (true, Some(_)) => marked.insert(name),
            (false, None) => marked.remove(&name),
            odd => panic!("cordon and mark of {name} come and go together, not {odd:?}"),
        };
        assert!(marked.len() <= 1, "cordoned at once: {marked:?}");
    }
    let mut turns: Vec<(u64, u64, &str)> = Vec::new();
    for host in world.hosts() {
        let all = host.transitions();
        let at = |stage: &str| all.iter().rfind(|e| e.told("TO") == stage).unwrap().at();
        turns.push((at("draining"), at("releasing"), &host.name));
    }
    turns.sort_unstable();
    for pair in turns.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{} and {} were down at once", pair[0].2, pair[1].2);
    }
}

/// State annotation, conditions of KEP-5683, Events. What passes within half a second is not worth a
/// write, and a node without pods is drained in less: of the drain, only somebody must have told.
fn the_node_showed_it(world: &World, seen: &[Value]) {
    let events = world.cluster.get(&["events", "--all-namespaces"]);
    let events = events["items"].as_array().unwrap();
    assert!(seen.iter().any(|node| shows(node, "draining")), "nobody showed that it drains");
    assert!(seen.iter().any(|node| has(node, "DrainInProgress")), "nobody had DrainInProgress");
    for host in world.hosts() {
        let of_host: Vec<&Value> =
            seen.iter().filter(|node| node["metadata"]["name"] == host.name.as_str()).collect();
        for state in ["settling", "idle"] {
            let shown = of_host.iter().any(|node| shows(node, state));
            assert!(shown, "{} never showed the state {state}", host.name);
        }
        for kind in ["Drained", "MaintenanceInProgress"] {
            let held = of_host.iter().any(|node| has(node, kind));
            assert!(held, "{} never had the condition {kind}", host.name);
        }
        let about = |event: &&Value| {
            event["involvedObject"]["kind"] == "Node"
                && event["involvedObject"]["name"] == host.name.as_str()
                && text(&event["reportingComponent"]).starts_with("lockkeeper")
        };
        let about: Vec<&Value> = events.iter().filter(about).collect();
        assert!(about.len() >= 7, "Events of {}: {about:?}", host.name);
    }
}

/// Whether the annotation of this Node tells this state.
fn shows(node: &Value, state: &str) -> bool {
    let told = text(&node["metadata"]["annotations"]["lockkeeper.dev/state"]);
    serde_json::from_str::<Value>(told).is_ok_and(|told| told["state"] == state)
}

/// Whether this Node has a condition that holds.
fn has(node: &Value, kind: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|c| c["type"] == kind && c["status"] == "True")
}

/// `history`, `journalctl -x`, the metrics.
fn people_can_read_it(host: &Host, last: &Value) {
    let history = host.sh("lockkeeper history");
    assert!(history.contains("updated"), "{history}");
    let stages = last["stages"].as_array().unwrap();
    assert!(stages.len() >= 7, "{last}");
    let explained = host.sh("journalctl --boot --catalog --quiet SYSLOG_IDENTIFIER=lockkeeper");
    for words in ["The node is updated", "What to do: nothing."] {
        assert!(explained.contains(words), "journalctl -x says no {words:?} on {}", host.name);
    }
    let metrics = host.sh(METRICS);
    assert!(metrics.trim_end().ends_with("# EOF"), "OpenMetrics has an end: {metrics}");
    assert!(metrics.contains("outcome=\"updated\""), "{metrics}");
}

/// An HTTP request over the unix socket, with what a small system has.
const METRICS: &str = r#"perl -MIO::Socket::UNIX -e '
    my $s = IO::Socket::UNIX->new(Peer => "/run/lockkeeper/metrics.sock") or die "no socket: $!";
    print $s "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    print while <$s>;'"#;

// === impl NodeWatch ===

impl NodeWatch {
    /// Not by `lab kubectl`: who kills that does not kill the watch.
    fn start(lab: &std::path::Path) -> Self {
        let mut kubectl = Command::new(lab.join("programs/kubectl"))
            .env("KUBECONFIG", lab.join("admin.kubeconfig"))
            .args(["get", "nodes", "--watch", "--output", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl watches");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stream, list) = (kubectl.stdout.take().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let values = serde_json::Deserializer::from_reader(BufReader::new(stream));
            for node in values.into_iter::<Value>().map_while(Result::ok) {
                list.lock().unwrap().push(node);
            }
        });
        Self { kubectl, seen }
    }

    fn end(self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        drop(self.kubectl.kill());
        drop(self.kubectl.wait());
    }
}
