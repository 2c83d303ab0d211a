//! Credentials that are missing, half, replaced or refused.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use super::fake::{FakeApi, NODE, SOON, TOKEN};
use super::*;

/// A cluster with a kubeconfig of this user, beside the given files.
fn with_user(dir: &Path, server: &str, user: &str) -> Cluster {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{{server}}}}}]\nusers: [{user}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    );
    fs::write(dir.join("kubelet.conf"), text).unwrap();
    cluster_at(&[dir.join("kubelet.conf")])
}

fn cluster_at(paths: &[std::path::PathBuf]) -> Cluster {
    Cluster::new(&NodeSettings { credentials: Credentials::Kubeconfig(paths.to_vec()), name: None })
}

async fn complaint(cluster: &Cluster) -> String {
    let Err(NodeTrouble::NoCredential(text)) = cluster.client().await else {
        unreachable!("a client was built, or the trouble is another one");
    };
    text
}

const SERVER: &str = "server: \"https://127.0.0.1:1\"";

#[tokio::test]
async fn what_is_wrong_with_a_credential_is_said_with_its_file() {
    let half = "{name: u, user: {client-certificate: pki/c.pem}}";
    let key_only = "{name: u, user: {client-key: pki/c.pem}}";
    let both = "{name: u, user: {client-certificate: pki/c.pem, client-key: pki/c.pem}}";
    let token_file = "{name: u, user: {tokenFile: token}}";
    let files: &[(&str, &str)] = &[("pki/c.pem", "-----BEGIN CERTIFICATE-----\n")];
    for (server, user, files, file, expected) in [
        ("", "{name: u, user: {token: t}}", files, "kubelet.conf", "server of cluster \"k\""),
        (SERVER, "{name: other, user: {token: t}}", files, "kubelet.conf", "user \"u\""),
        (SERVER, "{name: u, user: {}}", files, "kubelet.conf", "client-certificate and client-key"),
        (SERVER, half, files, "kubelet.conf", "client-key of user \"u\""),
        (SERVER, key_only, files, "kubelet.conf", "client-certificate of user \"u\""),
        (SERVER, both, files, "pki/c.pem", "the key of the client certificate (PEM)"),
        (SERVER, both, &[], "pki/c.pem", "a client certificate (PEM)"),
        (SERVER, both, &[("pki/c.pem", "")], "pki/c.pem", "a client certificate (PEM)"),
        (SERVER, token_file, &[], "token", "a bearer token"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pki")).unwrap();
        for (path, text) in files {
            fs::write(dir.path().join(path), text).unwrap();
        }
        let text = complaint(&with_user(dir.path(), server, user)).await;
        let start = format!("{}: expected {expected}", dir.path().join(file).display());
        assert!(text.starts_with(&start), "{text}\nshould begin with\n{start}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_or_no_yaml_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    let text = complaint(&cluster_at(&paths)).await;
    let all = format!("expected one of {}, {}", paths[0].display(), paths[1].display());
    assert!(text.contains(&all), "{text}");

    fs::write(&paths[1], "users: [{name: u, user: {token: hush-hush").unwrap();
    let text = complaint(&cluster_at(&paths)).await;
    let start = format!("{}: expected the YAML of a kubeconfig", paths[1].display());
    assert!(text.starts_with(&start), "{text}");
    assert!(!text.contains("hush-hush"), "a secret is told: {text}");

    fs::write(&paths[1], "").unwrap();
    let text = complaint(&cluster_at(&paths)).await;
    assert!(text.contains("expected current-context, found none"), "{text}");
}

#[tokio::test]
async fn the_identity_names_the_node_once() {
    let api = FakeApi::start();
    let cluster = api.cluster();
    assert_eq!(cluster.node_name().await.unwrap(), NODE);
    assert_eq!(cluster.node_name().await.unwrap(), NODE);
    assert_eq!(api.seen("POST", "selfsubjectreviews").len(), 1);

    let named = NodeSettings { name: Some("other".to_owned()), ..api.settings() };
    assert_eq!(Cluster::new(&named).node_name().await.unwrap(), "other");
    assert_eq!(api.seen("POST", "selfsubjectreviews").len(), 1);
}

#[tokio::test]
async fn a_client_is_kept_until_its_files_change() {
    let api = FakeApi::start();
    let cluster = api.cluster();
    assert_eq!(cluster.connection().await.unwrap().generation, 1);
    assert_eq!(cluster.connection().await.unwrap().generation, 1);
    api.server.write_kubeconfig(TOKEN);
    assert_eq!(cluster.connection().await.unwrap().generation, 2);
    assert_eq!(cluster.connection().await.unwrap().generation, 2);
}

#[tokio::test]
async fn a_401_has_the_client_built_anew() {
    let api = FakeApi::start();
    let cluster = api.cluster();
    let first = cluster.connection().await.unwrap();
    api.take_token("second-token");
    let nodes: Api<Node> = Api::all(first.client);
    let error = cluster.bounded(nodes.get(NODE)).await.unwrap_err();
    let trouble = cluster.explain(&error);
    assert!(matches!(trouble, NodeTrouble::Refused(_)), "{trouble:?}");
    let file = api.server.kubeconfig().display().to_string();
    assert!(trouble.text().starts_with(&file), "{trouble:?}");
    assert_eq!(cluster.connection().await.unwrap().generation, 2);
    assert_eq!(cluster.connection().await.unwrap().generation, 2);

    api.server.write_kubeconfig("second-token");
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    assert!(cluster.bounded(nodes.get(NODE)).await.is_ok());
}

/// Key and certificate, made anew each time, as kubelet keeps them: in one file.
fn certificate(path: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["system:node:n1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    fs::write(path, certificate.pem() + &key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn a_rotated_certificate_outdates_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path().join("pki");
    fs::create_dir(&pki).unwrap();
    certificate(&pki.join("kubelet-client-1.pem"));
    symlink("kubelet-client-1.pem", pki.join("current.pem")).unwrap();
    let user =
        "{name: u, user: {client-certificate: pki/current.pem, client-key: pki/current.pem}}";
    let server = "server: \"https://127.0.0.1:1\", certificate-authority: pki/current.pem";
    let cluster = with_user(dir.path(), server, user);
    let connection = cluster.connection().await.unwrap();

    let outdated = {
        let (cluster, connection) = (cluster.clone(), connection.clone());
        tokio::spawn(async move { cluster.outdated(&connection).await })
    };
    certificate(&pki.join("kubelet-client-2.pem"));
    assert_eq!(cluster.connection().await.unwrap().generation, 1);
    assert!(!outdated.is_finished());
    symlink("kubelet-client-2.pem", pki.join("next")).unwrap();
    fs::rename(pki.join("next"), pki.join("current.pem")).unwrap();
    tokio::time::timeout(SOON, outdated).await.unwrap().unwrap();
    assert_eq!(cluster.connection().await.unwrap().generation, 2);
    // Replaced already: nobody waits in vain for a change that has been seen.
    tokio::time::timeout(SOON, cluster.outdated(&connection)).await.unwrap();
}

#[tokio::test]
async fn a_credential_that_appears_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = cluster_at(&[dir.path().join("late/kubelet.conf")]);
    complaint(&cluster).await;
    let changed = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.changed().await }
    });
    tokio::task::yield_now().await;
    fs::create_dir(dir.path().join("late")).unwrap();
    fs::write(dir.path().join("late/kubelet.conf"), "x").unwrap();
    tokio::time::timeout(SOON, changed).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_api_server_that_is_away_is_unreachable() {
    let mut api = FakeApi::start();
    let cluster = api.cluster();
    api.server.stop();
    let trouble = cluster.node_name().await.unwrap_err();
    assert_eq!(trouble.kind(), "api-unreachable", "{trouble:?}");
    assert!(trouble.text().contains("refused"), "{trouble:?}");
}

#[tokio::test]
async fn a_self_check_names_what_is_missing() {
    let api = FakeApi::start();
    // The fake server echoes the review: nothing is allowed.
    let missing = self_check(&api.cluster()).await.unwrap();
    assert!(missing.contains(&"may not create pods/eviction".to_owned()), "{missing:#?}");
    api.take_token("other");
    let trouble = self_check(&api.cluster()).await.unwrap_err();
    assert!(matches!(trouble, NodeTrouble::Refused(_)), "{trouble:?}");
}
