//! What a story plays in: the lab, its hosts, and the clean state that each story begins from.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;
use crate::host::{Host, standin, text};
use crate::lab::{Lab, lab, until};

/// What lies in the agent's folder of configuration when no story has changed it.
const FRAGMENTS: &str = "50-local.toml\n90-lab.toml\n";

/// Everything there is.
pub struct World {
    /// The cluster and the slots.
    pub cluster: Cluster,
    hosts: Vec<Host>,
    /// What an ERROR of an agent may say in this story.
    expected: RefCell<Vec<&'static str>>,
    /// How many updates were named.
    versions: Cell<u32>,
    /// Length of the coordinator's log when the story began.
    log_began: Cell<usize>,
    lab: Lab,
}

// === impl World ===

impl World {
    /// Brings the lab up.
    pub fn new() -> Self {
        let lab = Lab::new();
        let hosts = lab.hosts().iter().map(|name| Host::new(&lab.folder, name)).collect();
        let cluster = Cluster::new(&lab.folder);
        let expected = RefCell::default();
        let (versions, log_began) = (Cell::new(0), Cell::new(0));
        let world = Self { cluster, hosts, expected, versions, log_began, lab };
        assert!(world.hosts.len() >= 3, "the stories need three hosts");
        world.restore(false);
        world
    }

    /// A host by its name.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).expect("such a host")
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Where the lab keeps its state.
    pub fn folder(&self) -> &std::path::Path {
        &self.lab.folder
    }

    /// A version that no host has seen.
    pub fn version(&self) -> String {
        self.versions.set(self.versions.get() + 1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        format!("50.{}.{}", now.as_secs(), self.versions.get())
    }

    /// What the coordinator has logged in this story.
    pub fn coordinator_log(&self) -> String {
        let text = std::fs::read_to_string(self.lab.folder.join("log/coordinator.log"));
        text.unwrap_or_default().split_off(self.log_began.get())
    }

    /// A pod on this host that its budget lets nobody evict. Configured so that a budget only informs
    /// the rehearsal, the agent gets as far as the drain, and stays in the middle of it until
    /// `let_go`.
    pub fn hold_up_drains(&self, host: &Host) {
        host.configure("[drain]\non_deadline = \"delete\"\ndeadline = \"5m\"\n");
        self.cluster.pin("anchor", &host.name);
        self.cluster.forbid_disruption("anchor");
    }

    /// Ends that.
    pub fn let_go(&self) {
        self.cluster.sweep();
    }

    // === Beginning and end of a story ===

    /// A story begins.
    pub fn begin(&self) {
        self.expected.take();
        self.log_began.set(0);
        self.log_began.set(self.coordinator_log().len());
        self.hosts.iter().for_each(Host::begin);
    }

    /// This story brings an agent to log an ERROR with this text.
    pub fn expect_error(&self, text: &'static str) {
        self.expected.borrow_mut().push(text);
    }

    /// Fails if anything of lockkeeper logged an ERROR that the story did not expect, or panicked;
    /// and also if an expected one never came.
    pub fn errors_fail(&self) {
        let expected = self.expected.borrow();
        let mut wrong = Vec::new();
        let mut came = vec![false; expected.len()];
        for host in &self.hosts {
            for line in host.errors() {
                match expected.iter().position(|text| line.contains(text)) {
                    Some(at) => came[at] = true,
                    None => wrong.push(format!("{}: {line}", host.name)),
                }
            }
        }
        wrong.extend(self.coordinator_errors());
        assert!(wrong.is_empty(), "errors that nobody expected:\n  {}", wrong.join("\n  "));
        let missing = expected.iter().zip(&came).filter(|(_, came)| !**came);
        let missing: Vec<_> = missing.map(|(text, _)| text).collect();
        assert!(missing.is_empty(), "no ERROR said {missing:?}");
    }

    /// What the coordinator said with ERROR in this story, and whether it panicked.
    pub fn coordinator_errors(&self) -> Vec<String> {
        let log = self.coordinator_log();
        let bad = log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked"));
        bad.map(|line| format!("coordinator: {line}")).collect()
    }

    /// Puts everything back to where stories begin, and says what was not there. A story that went
    /// well must have left nothing but what `reset` forgets.
    pub fn restore(&self, failed: bool) {
        let left = if failed { self.left_behind() } else { self.left_after_a_while() };
        if !left.is_empty() {
            println!("  not clean: {}", left.join("; "));
            self.scrub();
        }
        for host in &self.hosts {
            self.forget(host);
        }
        self.await_workload();
        let still = self.left_behind();
        assert!(still.is_empty(), "cannot be cleaned: {}", still.join("; "));
        assert!(failed || left.is_empty(), "the story left behind: {}", left.join("; "));
    }

    /// What is not as it is before a story, once what comes to rest by itself has done so.
    fn left_after_a_while(&self) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let left = self.left_behind();
            if left.is_empty() || Instant::now() > end {
                return left;
            }
            // Sleeps: what is left behind tells nobody when it goes.
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What is not as it is before a story.
    fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        for component in ["apiserver", "coordinator"] {
            if !self.runs(component) {
                left.push(format!("the {component} is down"));
            }
        }
        if !left.is_empty() {
            return left;
        }
        if self.cluster.try_holders(|_| true).is_none_or(|holders| !holders.is_empty()) {
            left.push("slots are held".to_owned());
        }
        let nodes = self.cluster.get(&["nodes"]);
        for host in &self.hosts {
            let mut of_host = self.left_on(host);
            let items = nodes["items"].as_array().unwrap();
            let node = items.iter().find(|node| node["metadata"]["name"] == host.name.as_str());
            match node {
                None => of_host.push("no Node".to_owned()),
                Some(node) => of_host.extend(left_on_node(node)),
            }
            left.extend(of_host.iter().map(|what| format!("{}: {what}", host.name)));
        }
        let story = ["--all-namespaces", "deployments,poddisruptionbudgets,pods"];
        let objects = self.cluster.get(&[&story[..], &["--selector", "story=yes"]].concat());
        if objects["items"].as_array().is_some_and(|items| !items.is_empty()) {
            left.push("objects of the story".to_owned());
        }
        left
    }

    fn left_on(&self, host: &Host) -> Vec<String> {
        if !host.is_on() {
            return vec!["off".to_owned()];
        }
        let mut left = Vec::new();
        match host.status() {
            None => left.push("no agent answers".to_owned()),
            Some(status) => {
                // It may be about to come to rest.
                let wanted = |status: &Value| {
                    status["state"] == "idle"
                        && status["reason"]["code"] == "no-update"
                        && status["slot"]["state"] == "none"
                        && status["holds"].as_array().is_some_and(Vec::is_empty)
                };
                if !wanted(&status) {
                    let (state, reason) = (text(&status["state"]), text(&status["reason"]["text"]));
                    left.push(format!("{state}, {reason}, slot {}", status["slot"]["state"]));
                }
            }
        }
        if host.sh("ls /etc/lockkeeper/config.d") != FRAGMENTS {
            // Every story may configure; that is put back without a word.
            host.configure_no_more();
        }
        let standin = standin(host);
        if standin["faults"].as_array().is_some_and(|faults| !faults.is_empty()) {
            left.push(format!("faults {}", standin["faults"]));
        }
        if standin["deployments"][0]["booted"] != true {
            left.push("an update".to_owned());
        }
        left
    }

    /// Brings the world back by force.
    fn scrub(&self) {
        for component in ["apiserver", "coordinator"] {
            lab(&["start", component]).good();
        }
        self.cluster.sweep();
        for host in &self.hosts {
            if self.left_on(host).is_empty() {
                continue;
            }
            scrub_host(host);
        }
        for host in &self.hosts {
            let patch = r#"{"metadata":{"annotations":{"lockkeeper.dev/cordoned-by":null,
                "lockkeeper.dev/hold":null}},"spec":{"unschedulable":null}}"#;
            lab(&["kubectl", "patch", "node", &host.name, "--type=merge", "--patch", patch]);
            lab(&["wait", &host.name, "ready", "120"]).good();
        }
        until(60, "the agents have come to rest", || {
            let rest = |host: &Host| self.left_on(host).is_empty();
            let free = self.cluster.holders().is_empty();
            (free && self.hosts.iter().all(rest)).then_some(())
        });
    }

    /// Has the agent forget what it has learnt: tries, denials, back-off, history.
    fn forget(&self, host: &Host) {
        let status = host.status().unwrap_or_default();
        if status["last"].is_null() && status["tries"].as_array().is_none_or(Vec::is_empty) {
            return;
        }
        wipe(host);
        host.waits_for("no-update", 60);
    }

    fn runs(&self, component: &str) -> bool {
        let record = self.lab.folder.join(format!("run/{component}.pid"));
        let record = std::fs::read_to_string(record).unwrap_or_default();
        let pid = record.split(' ').next().unwrap_or_default();
        !pid.is_empty() && std::path::Path::new("/proc").join(pid).exists()
    }

    /// Every pod of the workload runs somewhere and each budget allows what it does. An eviction that
    /// was granted and then came to nothing is on a budget's account for two minutes.
    fn await_workload(&self) {
        until(150, "the workload runs and its budgets are full", || {
            let all = ["--all-namespaces", "deployments,poddisruptionbudgets"];
            let all = self.cluster.get(&all);
            let ready = |one: &Value| match text(&one["kind"]) {
                "Deployment" => one["spec"]["replicas"] == one["status"]["readyReplicas"],
                _ => one["status"]["disruptionsAllowed"].as_u64().is_some_and(|n| n > 0),
            };
            all["items"].as_array()?.iter().all(ready).then_some(())
        });
    }

    // === For a person ===

    /// What there is to see when a story failed.
    pub fn report(&self) {
        println!("--- slots: {:?}", self.cluster.try_holders(|_| true));
        for host in &self.hosts {
            if !host.entries().is_empty() {
                host.report();
            }
        }
        println!("--- coordinator\n{}", self.coordinator_log());
    }
}

/// Brings one host back by force.
pub fn scrub_host(host: &Host) {
    if !host.is_on() {
        lab(&["boot", &host.name]).good();
    }
    host.exec(&[
        "sh",
        "-c",
        "
        systemctl stop lockkeeper 'story-*'
        rm -f /etc/lockkeeper/hold /etc/lockkeeper/config.d/9[1-9]*
        rm -rf /etc/systemd/system/lockkeeper.service.d
        systemctl daemon-reload
        systemctl unmask kubelet; systemctl enable kubelet; systemctl restart kubelet
        /usr/lib/standin/standin fault clear
        /usr/lib/standin/standin unstage",
    ]);
    // What was finalized and never booted lies before what runs.
    if standin(host)["deployments"][0]["booted"] == false {
        host.exec(&["ostree", "admin", "undeploy", "0"]);
    }
    wipe(host);
}

/// Has the agent begin anew, without a record.
fn wipe(host: &Host) {
    host.sh("systemctl stop lockkeeper; systemctl reset-failed lockkeeper 2>/dev/null || true
        rm -rf /var/lib/lockkeeper/*; systemctl start lockkeeper");
}

fn left_on_node(node: &Value) -> Vec<String> {
    let mut left = Vec::new();
    let (cordoned, mark) = crate::cluster::cordon(node);
    if cordoned {
        left.push("cordoned".to_owned());
    }
    if let Some(mark) = mark {
        left.push(format!("marked {mark}"));
    }
    if !node["metadata"]["annotations"]["lockkeeper.dev/hold"].is_null() {
        left.push("held by annotation".to_owned());
    }
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if !conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True") {
        left.push("not Ready".to_owned());
    }
    left
}
