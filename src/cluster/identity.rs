//! Who we are to the API server, and whether that is enough.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use crate::lifecycle::NodeTrouble;

use super::Cluster;

/// The user name of a kubelet is this and the name of its Node.
const KUBELET: &str = "system:node:";
/// Where a token that is bound to a pod says on which Node the pod runs.
const BOUND_NODE: &str = "authentication.kubernetes.io/node-name";

/// The Node's name as the identity tells it, else from the environment.
pub(super) async fn node_name(
    cluster: &Cluster,
    client: &kube::Client,
) -> Result<String, NodeTrouble> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let question = SelfSubjectReview::default();
    let user = match cluster.bounded(api.create(&PostParams::default(), &question)).await {
        Ok(review) => review.status.and_then(|status| status.user_info),
        // Not offered, or taken away from `system:authenticated`: there are other ways.
        Err(kube::Error::Api(status)) if matches!(status.code, 403..=405) => None,
        Err(error) => return Err(cluster.explain(&error)),
    };
    if let Some(name) = user.as_ref().and_then(named_by) {
        return Ok(name);
    }
    if let Some(name) = std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty()) {
        return Ok(name);
    }
    host_name().ok_or_else(|| {
        NodeTrouble::NoCredential(
            "the Node's name is unknown: expected an identity system:node:NAME, $NODE_NAME or a \
             host name; set [node] name"
                .to_owned(),
        )
    })
}

/// The Node that an identity is bound to.
fn named_by(user: &UserInfo) -> Option<String> {
    let username = user.username.as_deref().unwrap_or_default();
    if let Some(name) = username.strip_prefix(KUBELET) {
        return Some(name.to_owned()).filter(|name| !name.is_empty());
    }
    let extra: &BTreeMap<String, Vec<String>> = user.extra.as_ref()?;
    extra.get(BOUND_NODE)?.first().cloned()
}

/// The host's name as kubelet takes it by default: lower case.
pub fn host_name() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let name = name.trim().to_lowercase();
    Some(name).filter(|name| !name.is_empty())
}

/// Asks the API server for every right that the agent needs. Empty: all are there. Each entry is a
/// line for people.
///
/// # Errors
/// The question itself was not answered; a server may also forbid it.
pub async fn self_check(cluster: &Cluster) -> Result<Vec<String>, NodeTrouble> {
    let (client, name) = (cluster.client().await?, cluster.node_name().await?);
    let api: Api<SelfSubjectAccessReview> = Api::all(client);
    let mut missing = Vec::new();
    for right in rights(&name) {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(right.clone()),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = cluster.bounded(api.create(&PostParams::default(), &review)).await;
        let status = answer.map_err(|error| cluster.explain(&error))?.status.unwrap_or_default();
        if !status.allowed {
            missing.push(sentence(&right, status.reason.as_deref()));
        }
    }
    Ok(missing)
}

/// What the agent does at the API server.
fn rights(node: &str) -> Vec<ResourceAttributes> {
    let right = |verb: &str, group: &str, resource: &str| ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        ..Default::default()
    };
    let own = |attributes: ResourceAttributes| ResourceAttributes {
        name: Some(node.to_owned()),
        ..attributes
    };
    let sub = |attributes: ResourceAttributes, subresource: &str| ResourceAttributes {
        subresource: Some(subresource.to_owned()),
        ..attributes
    };
    let selected = |attributes: ResourceAttributes| ResourceAttributes {
        field_selector: Some(FieldSelectorAttributes {
            raw_selector: Some(format!("spec.nodeName={node}")),
            requirements: None,
        }),
        ..attributes
    };
    vec![
        own(right("get", "", "nodes")),
        own(right("list", "", "nodes")),
        own(right("watch", "", "nodes")),
        own(right("patch", "", "nodes")),
        own(sub(right("patch", "", "nodes"), "status")),
        selected(right("list", "", "pods")),
        selected(right("watch", "", "pods")),
        right("delete", "", "pods"),
        sub(right("create", "", "pods"), "eviction"),
        ResourceAttributes {
            namespace: Some("default".to_owned()),
            ..right("create", "events.k8s.io", "events")
        },
    ]
}

fn sentence(right: &ResourceAttributes, reason: Option<&str>) -> String {
    let mut text = format!(
        "may not {} {}",
        right.verb.as_deref().unwrap_or_default(),
        right.resource.as_deref().unwrap_or_default()
    );
    if let Some(subresource) = &right.subresource {
        text = format!("{text}/{subresource}");
    }
    if let Some(name) = &right.name {
        text = format!("{text} {name}");
    }
    if let Some(selector) = right.field_selector.as_ref().and_then(|s| s.raw_selector.as_ref()) {
        text = format!("{text} with {selector}");
    }
    if let Some(namespace) = &right.namespace {
        text = format!("{text} in namespace {namespace}");
    }
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{text} ({reason})"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_names_the_node() {
        let user = |username: &str, bound: Option<&str>| UserInfo {
            username: Some(username.to_owned()),
            extra: bound.map(|n| BTreeMap::from([(BOUND_NODE.to_owned(), vec![n.to_owned()])])),
            ..Default::default()
        };
        for (user, name) in [
            (user("system:node:n1", None), Some("n1")),
            (user("system:node:", None), None),
            (user("system:serviceaccount:lockkeeper:agent", Some("n2")), Some("n2")),
            (user("system:serviceaccount:lockkeeper:agent", None), None),
            (user("admin", None), None),
        ] {
            assert_eq!(named_by(&user).as_deref(), name, "{user:?}");
        }
    }

    #[test]
    fn a_missing_right_is_one_line() {
        let lines: Vec<_> = rights("n1").iter().map(|right| sentence(right, None)).collect();
        assert!(lines.contains(&"may not patch nodes/status n1".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"may not list pods with spec.nodeName=n1".to_owned()));
        assert!(lines.contains(&"may not create pods/eviction".to_owned()));
        assert!(lines.contains(&"may not create events in namespace default".to_owned()));
    }
}
