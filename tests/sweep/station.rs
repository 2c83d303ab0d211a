//! A host with what keeps it apart from the others: its slot, its door to the coordinator, its pod.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::gate::Gate;
use crate::host::{FRAGMENT, Host, standin};
use crate::lab::{lab, until};
use crate::world::scrub_host;

/// A Node with this annotation stays cordoned, whoever wants it otherwise.
const KEEP_CORDON: &str = "sweep.lockkeeper.dev/keep-cordon";

/// How long logind waits for those who delay a shutdown; usually a few seconds.
const DELAY: &str = "/etc/systemd/logind.conf.d/sweep.conf";

/// A host in the sweep.
pub struct Station<'a> {
    /// The host.
    pub host: &'a Host,
    /// Its door to the coordinator.
    pub gate: Gate,
    cluster: &'a Cluster,
    /// It could not be cleaned, and plays no more.
    lost: AtomicBool,
}

/// What a cell may want of the agent's configuration.
pub struct Settings {
    /// `[settle] time`.
    pub settle_time: &'static str,
    /// `[settle] deadline`.
    pub settle_deadline: &'static str,
}

impl Default for Settings {
    fn default() -> Self {
        Self { settle_time: "1s", settle_deadline: "2h" }
    }
}

// === impl Station ===

impl<'a> Station<'a> {
    /// Makes the host ready. The coordinator of the lab has a group for each host.
    pub fn new(host: &'a Host, cluster: &'a Cluster, coordinator: &str) -> Self {
        let lost = AtomicBool::new(false);
        let station = Self { host, gate: Gate::new(coordinator), cluster, lost };
        station.prepare();
        station
    }

    /// Whether it still plays.
    pub fn plays(&self) -> bool {
        !self.lost.load(SeqCst)
    }

    /// It plays no more.
    pub fn give_up(&self) {
        self.lost.store(true, SeqCst);
    }

    fn prepare(&self) {
        let host = self.host;
        // systemd's pause before it starts the agent again is in nobody's way but ours.
        host.write(
            "/etc/systemd/system/lockkeeper.service.d/sweep.conf",
            "[Service]\nRestartSec=1s\n",
        );
        host.sh("systemctl daemon-reload");
        // Not by a reload: an agent that has just begun may hold a slot of the other server.
        self.write_settings(&Settings::default());
        host.lab("agent", &["restart"]);
        host.waits_for("no-update", 60);
        self.cluster.pin(&self.pod(), &host.name);
    }

    /// Takes away what was put into the host; what is in the cluster goes with the sweep.
    pub fn leave(&self) {
        let host = self.host;
        host.sh("rm -rf /etc/systemd/system/lockkeeper.service.d; systemctl daemon-reload");
        host.configure_no_more();
    }

    /// Has the agent take this at once.
    pub fn configure(&self, settings: &Settings) {
        self.write_settings(settings);
        self.host.sh("systemctl reload lockkeeper");
    }

    fn write_settings(&self, settings: &Settings) {
        let (group, url) = (&self.host.name, &self.gate.url);
        let Settings { settle_time, settle_deadline } = settings;
        // A budget's refusal only informs the rehearsal, so that the agent gets into the drain.
        let text = format!(
            "[slot]\ngroup = \"{group}\"\nbase_url = \"{url}\"\ndenial_retry = \"1s\"\n\
            confirm_every = \"10s\"\n\
            [drain]\non_deadline = \"delete\"\ndeadline = \"1h\"\nbudget_retry = \"1s\"\n\
            rehearsal_every = \"10s\"\n\
            [reboot]\nshutdown_wait = \"10s\"\n\
            [settle]\ntime = \"{settle_time}\"\ndeadline = \"{settle_deadline}\"\n\
            check_every = \"1s\"\n\
            [attempts]\nbackoff_first = \"1h\"\n"
        );
        self.host.write(FRAGMENT, &text);
    }

    fn pod(&self) -> String {
        format!("anchor-{}", self.host.name)
    }

    // === The host ===

    /// From now on a shutdown waits after `PrepareForShutdown`.
    pub fn delay_shutdowns(&self) {
        self.host.write(DELAY, "[Login]\nInhibitDelayMaxSec=900\n");
        self.host.sh("systemctl kill --signal=HUP systemd-logind
            systemd-run --quiet --unit=story-delay systemd-inhibit --what=shutdown --mode=delay \
                --who=sweep --why='the sweep looks' sleep 900");
        until(20, "the inhibitor is there", || {
            let list = self.host.sh("systemd-inhibit --list --no-pager");
            list.contains("the sweep looks").then_some(())
        });
    }

    /// And goes on; after a power cut there is none that waits.
    pub fn delay_no_more(&self) {
        self.host.sh(&format!("rm -f {DELAY}; systemctl kill --signal=HUP systemd-logind"));
        self.host.exec(&["systemctl", "stop", "story-delay"]);
    }

    /// One that saw a shutdown begin and not end takes no pod until it is restarted.
    pub fn restart_kubelet(&self) {
        self.host.sh("systemctl restart kubelet");
        lab(&["wait", &self.host.name, "ready", "120"]).good();
    }

    // === The cluster, for this host ===

    /// Nobody may evict this host's pod.
    pub fn forbid_disruption(&self) {
        self.cluster.forbid_disruption(&self.pod());
    }

    /// Again everybody may.
    pub fn allow_disruption(&self) {
        self.cluster.allow_disruption(&self.pod());
    }

    /// Whether the Node's cordon can be lifted.
    pub fn keep_cordon(&self, keep: bool) {
        let value = if keep { "=yes" } else { "-" };
        let annotation = format!("{KEEP_CORDON}{value}");
        self.cluster.kubectl(&["annotate", "node", &self.host.name, &annotation]);
    }

    /// Waits until the Node carries the agent's cordon.
    pub fn is_cordoned(&self, seconds: u64) {
        until(seconds, &format!("{} is cordoned", self.host.name), || {
            self.cluster.cordon(&self.host.name).1
        });
    }

    /// Whether the Node is cordoned, and by whose mark.
    pub fn cordon(&self) -> (bool, Option<String>) {
        self.cluster.cordon(&self.host.name)
    }

    /// Who holds this host's slot.
    pub fn holders(&self) -> Vec<String> {
        let of = |group: &str| group == self.host.name;
        self.cluster.try_holders(of).expect("the coordinator lists its slots")
    }

    // === Between two cells ===

    /// What a cell that went well leaves on the host.
    pub fn tidy(&self) {
        let host = self.host;
        host.sh("/usr/lib/standin/standin fault clear; /usr/lib/standin/standin unstage");
        // What was finalized and never booted lies before what runs.
        if standin(host)["deployments"][0]["booted"] == false {
            host.sh("ostree admin undeploy 0");
        }
        self.configure(&Settings::default());
        host.waits_for("no-update", 60);
        host.sh("lockkeeper retry");
        self.cluster.pin(&self.pod(), &host.name);
    }

    /// After a cell that went wrong: by force.
    pub fn scrub(&self) {
        let host = self.host;
        self.gate.open();
        scrub_host(host);
        self.delay_no_more();
        let nobody = ["--namespace", "shop", "delete", "--ignore-not-found", "poddisruptionbudget"];
        self.cluster.kubectl(&[&nobody[..], &[&self.pod()]].concat());
        self.keep_cordon(false);
        let patch = r#"{"metadata":{"annotations":{"lockkeeper.dev/cordoned-by":null}},
            "spec":{"unschedulable":null}}"#;
        self.cluster.kubectl(&["patch", "node", &host.name, "--type=merge", "--patch", patch]);
        for id in self.holders() {
            self.gate.release(&host.name, &id);
        }
        self.restart_kubelet();
        self.prepare();
    }
}

/// Has the API server refuse to lift the cordon of a Node with the annotation; returns once it does.
pub fn refuse_to_uncordon(cluster: &Cluster, node: &str) {
    let kept = format!(
        "!(has(oldObject.metadata.annotations) && '{KEEP_CORDON}' in oldObject.metadata.annotations) \
        || !(has(oldObject.spec.unschedulable) && oldObject.spec.unschedulable) \
        || (has(object.spec.unschedulable) && object.spec.unschedulable)"
    );
    let about = json!({ "name": "sweep-keep-cordon" });
    let kind = |kind: &str, spec: Value| {
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": about, "spec": spec })
    };
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"],
        "operations": ["UPDATE"] });
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [
        kind("ValidatingAdmissionPolicy", json!({
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": kept, "message": "the sweep keeps the cordon",
                "reason": "Invalid" }],
        })),
        kind("ValidatingAdmissionPolicyBinding", json!({
            "policyName": "sweep-keep-cordon", "validationActions": ["Deny"],
        })),
    ] }));
    let keep = |value: &str| {
        cluster.kubectl(&["annotate", "node", node, &format!("{KEEP_CORDON}{value}")])
    };
    keep("=yes");
    until(60, "the API server refuses to uncordon", || {
        cluster.kubectl(&["cordon", node]);
        lab(&["kubectl", "uncordon", node]);
        cluster.cordon(node).0.then_some(())
    });
    keep("-");
    cluster.kubectl(&["uncordon", node]);
}

/// Takes that away.
pub fn let_uncordon(cluster: &Cluster) {
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        cluster.kubectl(&["delete", "--ignore-not-found", kind, "sweep-keep-cordon"]);
    }
}
