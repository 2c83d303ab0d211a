//! Namespaces, which a kubelet's credential may not read and that of a pod may.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::Cluster;
use crate::lifecycle::NodeTrouble;

/// Things that are told once, at most; past that nothing is.
const TOLD_MAX: usize = 500;

/// What was told, and whether a credential may read namespaces.
#[derive(Debug, Default)]
pub(super) struct Told {
    things: BTreeSet<String>,
    /// For which generation of the client it is known, and what.
    may_read: Option<(u64, bool)>,
}

impl Cluster {
    /// Labels and annotations of a namespace; `None`: there is none of this name, or the credential may
    /// not read it, which is told once. One that may read one namespace may read all.
    ///
    /// A refusal is believed at once: who asks has just listed pods with the same credential, so that
    /// the server does know its rights.
    ///
    /// # Errors
    /// It cannot be read now.
    pub async fn namespace(&self, name: &str) -> Result<Option<ObjectMeta>, NodeTrouble> {
        let connection = self.connection().await?;
        let known = self.told().may_read.filter(|(of, _)| *of == connection.generation);
        if known.is_some_and(|(_, may)| !may) {
            return Ok(None);
        }
        let api: Api<Namespace> = Api::all(connection.client);
        let answer = self.bounded(api.get(name)).await.map_err(|error| self.explain(&error));
        let (found, may) = match answer {
            Ok(namespace) => (Some(namespace.metadata), true),
            Err(NodeTrouble::Missing(_)) => (None, true),
            // What was allowed before is no matter of whose credential it is.
            Err(NodeTrouble::Forbidden(_)) if known.is_none() => (None, false),
            Err(trouble) => return Err(trouble),
        };
        self.told().may_read = Some((connection.generation, may));
        if !may && self.first_time("namespaces") {
            tracing::info!(
                "the credential may not read namespaces: lockkeeper.dev/drain counts on pods alone"
            );
        }
        Ok(found)
    }

    /// Whether this was not asked before: what is told once is told the first time. It is bounded; past
    /// its bound nothing is new.
    pub fn first_time(&self, what: &str) -> bool {
        let mut told = self.told();
        told.things.len() < TOLD_MAX && told.things.insert(what.to_owned())
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.inner.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
