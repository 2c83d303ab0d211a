//! The cluster, as its administrator sees it, and the slots.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::host::text;
use crate::lab::{lab, lab_with, until};

/// The mark of a cordon that an agent made.
pub const MARK: &str = "lockkeeper.dev/cordoned-by";

/// The cluster and its slot server.
pub struct Cluster {
    /// The sockets of the coordinator.
    run_dir: PathBuf,
}

// === impl Cluster ===

impl Cluster {
    /// The cluster of the lab in this folder.
    pub fn new(folder: &std::path::Path) -> Self {
        Self { run_dir: folder.join("coordinator/run") }
    }

    /// `kubectl`; it must go well.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        lab(&[&["kubectl"], arguments].concat()).good()
    }

    /// An object, or a list.
    #[track_caller]
    pub fn get(&self, arguments: &[&str]) -> Value {
        let said = self.kubectl(&[&["get", "--output", "json"], arguments].concat());
        serde_json::from_str(&said).expect("JSON from kubectl")
    }

    /// Makes objects, or changes them to this.
    #[track_caller]
    pub fn apply(&self, objects: &Value) {
        lab_with(&["kubectl", "apply", "--filename", "-"], &objects.to_string()).good();
    }

    /// The Node of this host.
    #[track_caller]
    pub fn node(&self, host: &str) -> Value {
        self.get(&["node", host])
    }

    /// Whether the Node is cordoned, and by whose mark.
    #[track_caller]
    pub fn cordon(&self, host: &str) -> (bool, Option<String>) {
        cordon(&self.node(host))
    }

    /// Who holds slots: the ids.
    #[track_caller]
    pub fn holders(&self) -> Vec<String> {
        self.try_holders(|_| true).expect("the coordinator lists its slots")
    }

    /// The same for the groups that `of` takes; `None` while there is no coordinator.
    pub fn try_holders(&self, of: impl Fn(&str) -> bool) -> Option<Vec<String>> {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .arg("--run-dir")
            .arg(&self.run_dir)
            .args(["slots", "list", "--json"])
            .output()
            .expect("lockkeeper runs");
        let listed: Value = serde_json::from_slice(&output.stdout).ok()?;
        let groups = listed["groups"].as_array()?.iter().filter(|group| of(text(&group["group"])));
        let holders = groups.filter_map(|group| group["holders"].as_array()).flatten();
        Some(holders.map(|holder| text(&holder["id"]).to_owned()).collect())
    }

    // === What a story puts into the cluster ===

    /// One pod of a Deployment that only runs on this host, ready.
    #[track_caller]
    pub fn pin(&self, name: &str, host: &str) {
        self.deploy(name, host);
        self.await_pinned(name);
    }

    fn deploy(&self, name: &str, host: &str) {
        let labels = json!({ "app": name, "story": "yes" });
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": "shop", "labels": labels },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "nodeSelector": { "kubernetes.io/hostname": host },
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{ "name": name, "image": "registry.invalid/web:1" }],
                    },
                },
            },
        }));
    }

    fn await_pinned(&self, name: &str) {
        let deployment = format!("deployment/{name}");
        until(60, &format!("the pod of {name} is ready"), || {
            let seen = self.get(&["--namespace", "shop", &deployment]);
            (seen["status"]["readyReplicas"] == 1).then_some(())
        });
    }

    /// A disruption budget over the pods of this name that allows nothing.
    #[track_caller]
    pub fn forbid_disruption(&self, name: &str) {
        self.apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": name, "namespace": "shop", "labels": { "story": "yes" } },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": name } } },
        }));
        let budget = format!("poddisruptionbudget/{name}");
        until(30, "the budget is counted", || {
            let seen = self.get(&["--namespace", "shop", &budget]);
            (seen["status"]["expectedPods"] == 1).then_some(())
        });
    }

    /// Takes that budget away.
    #[track_caller]
    pub fn allow_disruption(&self, name: &str) {
        self.kubectl(&["delete", "--namespace", "shop", "poddisruptionbudget", name]);
    }

    /// Takes everything away that stories put into the cluster; what there was.
    #[track_caller]
    pub fn sweep(&self) -> Vec<String> {
        let kinds = "deployments,poddisruptionbudgets";
        let named = |list: &Value| -> Vec<String> {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| text(&item["metadata"]["name"]).to_owned()).collect()
        };
        let found = self.get(&["--namespace", "shop", kinds, "--selector", "story=yes"]);
        let found = named(&found);
        if !found.is_empty() {
            let delete = ["delete", "--namespace", "shop", kinds, "--selector", "story=yes"];
            self.kubectl(&[&delete[..], &["--cascade=background"]].concat());
        }
        until(60, "the pods of the story are gone", || {
            let pods = self.get(&["--namespace", "shop", "pods", "--selector", "story=yes"]);
            named(&pods).is_empty().then_some(())
        });
        found
    }
}

/// Whether this Node is cordoned, and by whose mark.
pub fn cordon(node: &Value) -> (bool, Option<String>) {
    let mark = node["metadata"]["annotations"][MARK].as_str().map(ToOwned::to_owned);
    (node["spec"]["unschedulable"] == true, mark)
}
