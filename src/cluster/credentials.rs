//! From a kubeconfig or a service account to a client configuration, and what is wrong if not.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use reqwest::header::{HeaderValue, USER_AGENT};

use crate::config::Credentials;
use crate::config::file::{read_bounded, read_text_bounded};

use super::files::Stamps;

/// A connection that does not come about: long enough for a lost SYN or two.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence on a connection. Longer than a watch without any event may last
/// ([`super::WATCH_SECONDS`]), so that it ends dead connections only.
const READ_TIMEOUT: Duration = Duration::from_secs(super::WATCH_SECONDS as u64 + 10);
/// Our requests are some kB.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// A CA bundle of a whole distribution is about 250 kB, a kubeconfig some kB.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The service account that a pod is given.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why there is no usable credential. Every one names the file and what was expected of it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// None of the kubeconfigs exists.
    #[error("no kubeconfig: expected one of {}", list(.0))]
    NoKubeconfig(Vec<PathBuf>),
    /// A file cannot be read.
    #[error("{}: expected {expected}, cannot read it: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        expected: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A file is of another shape.
    #[error("{}: expected {expected}, {found}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        expected: String,
        /// What it is.
        found: String,
    },
    /// `in-cluster` outside of a pod.
    #[error(
        "in-cluster credentials: expected $KUBERNETES_SERVICE_HOST and a service account in \
         {SERVICE_ACCOUNT}: {0}"
    )]
    NotInPod(String),
    /// The parts are there and no client can be made of them.
    #[error("{origin}: no client can be built from it: {why}")]
    Unusable {
        /// Where the credential comes from.
        origin: String,
        /// What failed.
        why: String,
    },
}

/// What one look at the credential found.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The configuration for a client, or why there is none.
    pub(super) config: Result<kube::Config, CredentialError>,
    /// Where it comes from, for messages.
    pub(super) origin: String,
    /// Every file that the result depends on, as it was *before* it was read.
    pub(super) stamps: Stamps,
}

/// Reads the credential.
pub(super) async fn load(credentials: &Credentials) -> Loaded {
    let mut loaded = match credentials {
        Credentials::Kubeconfig(paths) => load_kubeconfig(paths).await,
        Credentials::InCluster => load_in_cluster(),
    };
    if let Ok(config) = &mut loaded.config {
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.write_timeout = Some(WRITE_TIMEOUT);
        config.reset_reader_on_write = true;
        // Who reads the audit log of the server sees the agent apart from the kubelet, whose
        // credential it may be.
        let name = HeaderValue::from_static(concat!("lockkeeper/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, name));
    }
    loaded
}

fn load_in_cluster() -> Loaded {
    let files = ["token", "ca.crt"].map(|name| Path::new(SERVICE_ACCOUNT).join(name));
    Loaded {
        stamps: Stamps::take(files),
        config: kube::Config::incluster().map_err(|e| CredentialError::NotInPod(e.to_string())),
        origin: "in-cluster credentials".to_owned(),
    }
}

async fn load_kubeconfig(candidates: &[PathBuf]) -> Loaded {
    let mut stamps = Stamps::take(candidates.iter().cloned());
    let Some(path) = candidates.iter().find(|path| path.exists()) else {
        return Loaded {
            config: Err(CredentialError::NoKubeconfig(candidates.to_vec())),
            origin: list(candidates),
            stamps,
        };
    };
    let config = match read_kubeconfig(path) {
        Ok(kubeconfig) => {
            // Stamped before they are read: a change in between is then seen as one.
            stamps.extend(referenced_files(&kubeconfig));
            into_config(path, kubeconfig).await
        }
        Err(error) => Err(error),
    };
    Loaded { config, origin: path.display().to_string(), stamps }
}

fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, CredentialError> {
    let shape = |expected: &str, found: String| CredentialError::Shape {
        path: path.to_owned(),
        expected: expected.to_owned(),
        found,
    };
    let whole = read_bounded(path, FILE_BYTES_MAX);
    let unreadable = |source| CredentialError::Unreadable {
        path: path.to_owned(),
        expected: "a kubeconfig",
        source,
    };
    // The library has no bound, and would wait for the other end of a pipe.
    whole.map_err(unreadable)?;
    match Kubeconfig::read_from(path) {
        Ok(kubeconfig) => Ok(kubeconfig),
        Err(KubeconfigError::ReadConfig(source, _)) => Err(unreadable(source)),
        // The snippet that the parser would show may hold a token or a key.
        Err(KubeconfigError::Parse(error)) => {
            Err(shape("the YAML of a kubeconfig", one_line(&error.without_snippet().to_string())))
        }
        Err(error) => Err(shape("a kubeconfig", one_line(&error.to_string()))),
    }
}

/// Checks that all parts are there, since the client library takes a missing user for an anonymous
/// one, and builds the configuration.
async fn into_config(path: &Path, kubeconfig: Kubeconfig) -> Result<kube::Config, CredentialError> {
    let chosen = Chosen::of(&kubeconfig).map_err(|(expected, found)| CredentialError::Shape {
        path: path.into(),
        expected,
        found,
    })?;
    if let Some(file) = &chosen.cluster.certificate_authority
        && chosen.cluster.certificate_authority_data.is_none()
    {
        check_pem(file, "CERTIFICATE", "the cluster's certificate authority (PEM)")?;
    }
    if let Some(file) = &chosen.user.client_certificate
        && chosen.user.client_certificate_data.is_none()
    {
        check_pem(file, "CERTIFICATE", "a client certificate (PEM)")?;
    }
    if let Some(file) = &chosen.user.client_key
        && chosen.user.client_key_data.is_none()
    {
        check_pem(file, "PRIVATE KEY", "the key of the client certificate (PEM)")?;
    }
    if let Some(file) = &chosen.user.token_file
        && chosen.user.token.is_none()
    {
        read(file, "a bearer token")?;
    }
    let own_proxy = chosen.cluster.proxy_url.is_some();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|e| CredentialError::Unusable {
                origin: path.display().to_string(),
                why: one_line(&e.to_string()),
            })?;
    if !own_proxy {
        // $HTTPS_PROXY is meant for the world outside; no kubelet reaches its API server by it,
        // and the client would refuse to be built.
        config.proxy_url = None;
    }
    Ok(config)
}

/// The cluster and user of the current context.
struct Chosen<'a> {
    cluster: &'a kube::config::Cluster,
    user: &'a AuthInfo,
}

impl<'a> Chosen<'a> {
    /// What is missing comes back as (expected, found).
    fn of(kubeconfig: &'a Kubeconfig) -> Result<Self, (String, String)> {
        let found = |what: &str| what.to_owned();
        let context_name = kubeconfig
            .current_context
            .as_deref()
            .filter(|name| !name.is_empty())
            .ok_or_else(|| (found("current-context"), found("found none")))?;
        let context = kubeconfig
            .contexts
            .iter()
            .find(|c| c.name == context_name)
            .and_then(|c| c.context.as_ref())
            .ok_or_else(|| (format!("context {context_name:?}"), found("found none")))?;
        let cluster_name = &context.cluster;
        let cluster = kubeconfig
            .clusters
            .iter()
            .find(|c| &c.name == cluster_name)
            .and_then(|c| c.cluster.as_ref())
            .ok_or_else(|| (format!("cluster {cluster_name:?}"), found("found none")))?;
        if cluster.server.as_deref().unwrap_or_default().is_empty() {
            return Err((format!("server of cluster {cluster_name:?}"), found("found none")));
        }
        let user_name = context.user.as_deref().unwrap_or_default();
        let user = kubeconfig
            .auth_infos
            .iter()
            .find(|u| u.name == user_name)
            .and_then(|u| u.auth_info.as_ref())
            .ok_or_else(|| (format!("user {user_name:?}"), found("found none")))?;
        check_user(user_name, user)?;
        Ok(Self { cluster, user })
    }
}

fn check_user(name: &str, user: &AuthInfo) -> Result<(), (String, String)> {
    let certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let key = user.client_key.is_some() || user.client_key_data.is_some();
    let other = user.token.is_some()
        || user.token_file.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some()
        || user.username.is_some();
    match (certificate, key) {
        (true, true) => Ok(()),
        (true, false) => {
            Err((format!("client-key of user {name:?}"), "found a client-certificate only".into()))
        }
        (false, true) => {
            Err((format!("client-certificate of user {name:?}"), "found a client-key only".into()))
        }
        (false, false) if other => Ok(()),
        (false, false) => Err((
            format!("client-certificate and client-key, token, tokenFile or exec of user {name:?}"),
            "found none".into(),
        )),
    }
}

/// Files that the current context draws in; all contexts' files would be too many to watch.
fn referenced_files(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let Ok(chosen) = Chosen::of(kubeconfig) else { return Vec::new() };
    [
        &chosen.cluster.certificate_authority,
        &chosen.user.client_certificate,
        &chosen.user.client_key,
        &chosen.user.token_file,
    ]
    .into_iter()
    .flatten()
    .map(PathBuf::from)
    .collect()
}

fn check_pem(path: &str, label: &str, expected: &'static str) -> Result<(), CredentialError> {
    let text = read(path, expected)?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.contains(label);
    if text.lines().any(begins) {
        return Ok(());
    }
    Err(CredentialError::Shape {
        path: path.into(),
        expected: expected.to_owned(),
        found: format!("found no block \"{label}\" in it"),
    })
}

fn read(path: &str, expected: &'static str) -> Result<String, CredentialError> {
    let unreadable = |source| CredentialError::Unreadable { path: path.into(), expected, source };
    let text = read_text_bounded(Path::new(path), FILE_BYTES_MAX).map_err(unreadable)?;
    if text.trim().is_empty() {
        return Err(CredentialError::Shape {
            path: path.into(),
            expected: expected.to_owned(),
            found: "found it empty".to_owned(),
        });
    }
    Ok(text)
}

/// Errors of parsers span lines; a status line does not.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}
