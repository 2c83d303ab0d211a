//! What pods and namespaces say about drains, as far as the credential may read them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cluster::Cluster;
use crate::drain::{DRAIN, UnknownWish, Wish, asks_its_namespace, wish_of};
use crate::fleetlock::clean_value;
use crate::lifecycle::NodeTrouble;

/// Namespaces that were read, each once in the life of this.
pub(super) struct Wishes {
    cluster: Cluster,
    read: BTreeMap<String, Option<Wish>>,
}

impl Wishes {
    /// Nothing is read yet.
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone(), read: BTreeMap::new() }
    }

    /// What the namespace of this pod says; `None` also where the pod's own word counts, and where
    /// the credential may read no namespace.
    ///
    /// # Errors
    /// The namespace cannot be read now: what it says is not known.
    pub(super) async fn of_namespace(&mut self, pod: &Pod) -> Result<Option<Wish>, NodeTrouble> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let own = self.understood(&pod.metadata, || format!("pod {namespace}/{name}"));
        if own == Some(Wish::Skip) {
            self.left_alone(namespace, name, "it says");
        }
        if namespace.is_empty() || !asks_its_namespace(pod) {
            return Ok(None);
        }
        let wish = match self.read.get(namespace) {
            Some(known) => *known,
            None => self.read(namespace).await?,
        };
        if wish == Some(Wish::Skip) {
            self.left_alone(namespace, name, "its namespace says");
        }
        Ok(wish)
    }

    async fn read(&mut self, namespace: &str) -> Result<Option<Wish>, NodeTrouble> {
        let meta = self.cluster.namespace(namespace).await?;
        let wish =
            meta.and_then(|meta| self.understood(&meta, || format!("namespace {namespace}")));
        self.read.insert(namespace.to_owned(), wish);
        Ok(wish)
    }

    /// Tells once which pod stays, and why.
    fn left_alone(&self, namespace: &str, name: &str, says: &str) {
        let pod = clean_value(&format!("{namespace}/{name}"));
        if self.cluster.first_time(&format!("{pod} is left alone")) {
            tracing::info!("{pod} is left alone by the drain: {says} {DRAIN} = skip");
        }
    }

    /// The word, if it is one; one that is none is told once.
    fn understood(&self, meta: &ObjectMeta, who: impl FnOnce() -> String) -> Option<Wish> {
        match wish_of(meta) {
            Ok(wish) => wish,
            Err(UnknownWish(word)) => {
                let who = clean_value(&who());
                if self.cluster.first_time(&format!("{who}: {word}")) {
                    tracing::warn!(
                        "{who}: {DRAIN} = {word:?} counts for nothing; expected skip or \
                         wait-completed"
                    );
                }
                None
            }
        }
    }
}
