//! Who the agent is to the API server, and what if it is nobody.

use std::process::Command;

use serde_json::{Value, json};

use crate::host::Host;
use crate::lab::{lab, until};
use crate::world::World;

const OWN_KUBECONFIG: &str = "/etc/lockkeeper/story.kubeconfig";

/// The kubelet's certificate rotates while the agent sleeps: it speaks with the new one.
pub fn a_rotated_certificate_is_taken(world: &World) {
    let host = world.host("n1");
    host.lab("rotate-certificate", &[]);
    let script = format!(
        "openssl x509 -in '{}' -outform der | sha256sum | cut -d' ' -f1",
        world.folder().join("pki/n1.crt").display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let print = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_eq!(print.len(), 64, "a fingerprint");
    host.stage(&world.version(), &[]);
    host.ends("updated", 60);
    // The first one of this certificate is by the agent that was running when it came.
    let audit = std::fs::read_to_string(world.folder().join("audit.log")).unwrap();
    let by_agent = |line: &&str| line.contains(&print) && line.contains("lockkeeper");
    let cordon = audit.lines().filter(by_agent).find(|line| line.contains("\"verb\":\"patch\""));
    assert!(cordon.is_some(), "no patch by the agent with the new certificate");
}

/// Garbage for a kubeconfig, a certificate of a stranger, a Node that does not exist: each is said
/// and waited out, and no reason to reboot undrained.
pub fn a_credential_that_is_none_is_waited_for(world: &World) {
    let host = world.host("n2");
    let boot = host.boot_id();
    let own =
        |name: &str| format!("[node]\nkubeconfig = \"{OWN_KUBECONFIG}\"\nname = \"{name}\"\n");
    host.write(OWN_KUBECONFIG, "}{ this is no kubeconfig");
    restart_with(host, &own("n2"));
    host.stage(&world.version(), &[]);
    host.waits_for("no-credential", 30);
    assert!(world.cluster.holders().is_empty());

    let good = host.sh("cat /etc/kubernetes/kubelet.conf");
    host.write(
        OWN_KUBECONFIG,
        &good.replace(
            "/var/lib/kubelet/pki/kubelet-client-current.pem",
            "/etc/lockkeeper/stranger.pem",
        ),
    );
    host.write("/etc/lockkeeper/stranger.pem", &stranger());
    host.waits_for("credential-refused", 60);

    // Stopped, since the administrator may see this Node, too, until the next start names another.
    host.lab("agent", &["stop"]);
    let admin = std::fs::read_to_string(world.folder().join("admin.kubeconfig")).unwrap();
    let pki = world.folder().join("pki");
    for name in ["admin.crt", "admin.key"] {
        let text = std::fs::read_to_string(pki.join(name)).unwrap();
        host.write(&format!("/etc/lockkeeper/story-{name}"), &text);
    }
    let here = format!("{}/", pki.display());
    host.write(OWN_KUBECONFIG, &admin.replace(&here, "/etc/lockkeeper/story-"));
    restart_with(host, &own("n99"));
    host.waits_for("node-missing", 60);
    assert!(world.cluster.holders().is_empty());
    assert_eq!(host.boot_id(), boot);
    assert_eq!(world.cluster.cordon("n2"), (false, None));

    restart_with(host, "");
    host.ends("updated", 90);
    host.sh("rm -f /etc/lockkeeper/*.kubeconfig /etc/lockkeeper/story-* /etc/lockkeeper/*.pem");
}

/// As a pod would: a service account with the rights that the agent needs and no more.
pub fn a_service_account_will_do(world: &World) {
    let host = world.host("n1");
    let about = json!({ "name": "lockkeeper-story", "namespace": "kube-system" });
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    world.cluster.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": about },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": about,
          "rules": [
            rule("", &["nodes"], &["get", "list", "watch", "patch"]),
            rule("", &["nodes/status"], &["patch"]),
            rule("", &["pods"], &["list", "watch", "delete"]),
            rule("", &["pods/eviction"], &["create"]),
            rule("events.k8s.io", &["events"], &["create"]),
            rule("storage.k8s.io", &["volumeattachments"], &["get", "list", "watch"]),
          ] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
          "metadata": about,
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "lockkeeper-story" },
          "subjects": [{ "kind": "ServiceAccount", "name": "lockkeeper-story",
            "namespace": "kube-system" }] },
    ] }));
    let token = ["create", "token", "--namespace", "kube-system", "lockkeeper-story"];
    let token = world.cluster.kubectl(&token);
    let authority = std::fs::read_to_string(world.folder().join("pki/ca.crt")).unwrap();
    host.write("/etc/story-account/token", token.trim());
    host.write("/etc/story-account/ca.crt", &authority);
    host.write("/etc/story-account/namespace", "kube-system");
    // /run is empty after the boot; this has it filled before the agent starts.
    host.write(
        "/etc/tmpfiles.d/story.conf",
        "L+ /run/secrets/kubernetes.io/serviceaccount - - - - /etc/story-account\n",
    );
    let port = host.sh("sed -n 's|.*https://127.0.0.1:||p' /etc/kubernetes/kubelet.conf");
    host.write(
        "/etc/systemd/system/lockkeeper.service.d/story.conf",
        &format!(
            "[Service]\nEnvironment=KUBERNETES_SERVICE_HOST=127.0.0.1\n\
         Environment=KUBERNETES_SERVICE_PORT={}\nEnvironment=NODE_NAME=n1\n",
            port.trim()
        ),
    );
    host.sh("systemd-tmpfiles --create /etc/tmpfiles.d/story.conf; systemctl daemon-reload");
    restart_with(host, "[node]\ncredentials = \"in-cluster\"\n");
    host.waits_for("no-update", 30);
    host.stage(&world.version(), &[]);
    host.ends("updated", 60);
    let missing = host.entries().iter().any(|e| e.field("MESSAGE").contains("rights are missing"));
    assert!(!missing, "the rights suffice");
    let audit = std::fs::read_to_string(world.folder().join("audit.log")).unwrap();
    let evicted = audit.lines().any(|line| {
        line.contains("system:serviceaccount:kube-system:lockkeeper-story")
            && line.contains("/nodes/n1")
    });
    assert!(evicted, "it was the service account that acted");

    host.sh("rm -r /etc/tmpfiles.d/story.conf /etc/story-account \
        /etc/systemd/system/lockkeeper.service.d; systemctl daemon-reload");
    restart_with(host, "");
    for kind in ["clusterrolebinding", "clusterrole"] {
        world.cluster.kubectl(&["delete", kind, "lockkeeper-story"]);
    }
    let account = ["delete", "--namespace", "kube-system", "serviceaccount", "lockkeeper-story"];
    world.cluster.kubectl(&account);
}

/// No Node: the same cycle without cordon and drain.
pub fn a_host_without_kubernetes_goes_round(world: &World) {
    let host = world.host("n3");
    host.sh("systemctl disable --now kubelet 2>/dev/null; rm -rf /var/lib/lockkeeper/*");
    restart_with(host, "[node]\nkubernetes = \"none\"\n");
    let patched = || world.cluster.node("n3")["metadata"]["managedFields"].clone();
    let by_agent = |fields: &Value| {
        let all = fields.as_array().cloned().unwrap_or_default();
        all.iter().filter(|one| one["manager"] == "lockkeeper").count()
    };
    let before = by_agent(&patched());
    let version = world.version();
    host.stage(&version, &[]);
    host.ends("updated", 60);
    assert_eq!(host.version(), version);
    assert_eq!(host.stages().iter().filter(|stage| *stage == "rebooting").count(), 1);
    assert_eq!(world.cluster.cordon("n3"), (false, None));
    assert!(by_agent(&patched()) <= before, "the Node is left alone");
    host.sh("systemctl enable --now kubelet 2>/dev/null");
    restart_with(host, "");
    lab(&["wait", "n3", "ready", "60"]).good();
}

/// `[node]` is read at the start only.
fn restart_with(host: &Host, text: &str) {
    host.write("/etc/lockkeeper/config.d/99-story.toml", text);
    host.lab("agent", &["restart"]);
    until(20, "the agent answers", || host.status());
}

/// A certificate and its key that no authority of the cluster has signed.
fn stranger() -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj /O=system:nodes/CN=system:node:n2 -keyout key -out crt 2>/dev/null && cat crt key";
    let output =
        Command::new("sh").args(["-c", script]).current_dir(folder.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
