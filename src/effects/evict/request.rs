//! The requests of a drain: one list, evictions, deletions.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, Preconditions as UidPrecondition,
};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::client::Body;
use kube::core::{Request, Status};

use crate::cluster::Cluster;
use crate::drain::{Answer, Ask, Cause, How, PodId, Reply, judge};
use crate::lifecycle::NodeTrouble;

/// How long one request may take. The server itself retries an eviction against a changing budget
/// for up to 10 s before it answers.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pods a page: more than the 110 to 250 that a node carries, so one page in practice.
pub(super) const PAGE_SIZE: u32 = 500;

/// Pages followed at most; a server that always names a next page is broken.
const PAGES: usize = 100;

/// The selector that a node's identity may list pods by.
pub(super) fn selector(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// All pods bound to the own Node.
pub(super) async fn list(cluster: &Cluster) -> Result<Vec<Pod>, NodeTrouble> {
    let name = cluster.node_name().await?;
    let api: Api<Pod> = Api::all(cluster.client().await?);
    let mut params = ListParams::default().fields(&selector(&name)).limit(PAGE_SIZE);
    let mut pods = Vec::new();
    for _ in 0..PAGES {
        let page = bounded(cluster, api.list(&params)).await?;
        pods.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(pods),
        }
    }
    Err(NodeTrouble::Unreachable(format!("the list of pods did not end after {PAGES} pages")))
}

/// Waits for one answer, a limited time. A 401 has the next client built anew.
pub(super) async fn bounded<T>(
    cluster: &Cluster,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, NodeTrouble> {
    let trouble = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => Cluster::trouble(&error),
        Err(_) => NodeTrouble::Unreachable(no_answer()),
    };
    if matches!(trouble, NodeTrouble::Refused(_)) {
        cluster.refused();
    }
    Err(trouble)
}

/// Asks a pod to leave. `grace` in seconds, at least 1; `None`: the pod's own.
pub(super) async fn ask(cluster: &Cluster, ask: &Ask, grace: Option<u32>, dry_run: bool) -> Answer {
    let client = match cluster.client().await {
        Ok(client) => client,
        Err(trouble) => return Answer::Unreachable { says: trouble.text().to_owned() },
    };
    let answer = match tokio::time::timeout(REQUEST_TIMEOUT, send(client, ask, grace, dry_run))
        .await
    {
        Ok(Ok(reply)) => judge(&reply),
        Ok(Err(error)) => Answer::Unreachable { says: Cluster::trouble(&error).text().to_owned() },
        Err(_) => Answer::Unreachable { says: no_answer() },
    };
    if matches!(answer, Answer::CredentialRefused { .. }) {
        cluster.refused();
    }
    tracing::debug!(
        namespace = ask.pod.namespace,
        pod = ask.pod.name,
        uid = ask.pod.uid,
        how = ?ask.how,
        dry_run,
        grace,
        ?answer,
        "a pod was asked to leave"
    );
    answer
}

fn no_answer() -> String {
    format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())
}

async fn send(
    client: kube::Client,
    ask: &Ask,
    grace: Option<u32>,
    dry_run: bool,
) -> kube::Result<Reply> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &ask.pod.namespace);
    let request = Request::new(api.resource_url());
    let built = match ask.how {
        How::Evict => {
            let params = PostParams { dry_run, ..PostParams::default() };
            let body = serde_json::to_vec(&eviction(&ask.pod, grace));
            let body = body.map_err(kube::Error::SerdeError)?;
            request.create_subresource("eviction", &ask.pod.name, &params, body)
        }
        How::Delete => request.delete(&ask.pod.name, &deletion(&ask.pod, grace, dry_run)),
    };
    let request = built.map_err(kube::Error::BuildRequest)?.map(Body::from);
    let (head, body) = client.send(request).await?.into_parts();
    let code = head.status.as_u16();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    // A field that the server does not know is dropped with nothing but this header.
    if let Some(warning) = header("warning") {
        tracing::info!(warning, pod = ask.pod.name, "the API server warns");
    }
    let retry_after = header("retry-after").and_then(|seconds| seconds.parse().ok());
    let body = body.collect_bytes().await?;
    Ok(reply(code, retry_after, &body))
}

/// The body of an eviction. Written out, since the client library's own way puts the options under
/// a key that servers ignore.
fn eviction(pod: &PodId, grace: Option<u32>) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: grace.map(|seconds| i64::from(seconds.max(1))),
            preconditions: Some(UidPrecondition {
                uid: Some(pod.uid.clone()),
                ..UidPrecondition::default()
            }),
            ..DeleteOptions::default()
        }),
    }
}

/// Grace 0 would take the object away while its containers still run.
fn deletion(pod: &PodId, grace: Option<u32>, dry_run: bool) -> DeleteParams {
    DeleteParams {
        dry_run,
        grace_period_seconds: grace.map(|seconds| seconds.max(1)),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    }
}

pub(super) fn reply(code: u16, retry_after: Option<u64>, body: &[u8]) -> Reply {
    let retry_after = retry_after.map(Duration::from_secs);
    if (200..300).contains(&code) {
        return Reply { code, retry_after, ..Reply::default() };
    }
    let Ok(status) = serde_json::from_slice::<Status>(body) else {
        let message = String::from_utf8_lossy(body).trim().to_owned();
        return Reply { code, message, retry_after, ..Reply::default() };
    };
    let details = status.details;
    let named = details.as_ref().map_or(0, |details| u64::from(details.retry_after_seconds));
    let causes = details.into_iter().flat_map(|details| details.causes);
    Reply {
        code,
        reason: status.reason,
        message: status.message,
        causes: causes
            .map(|cause| Cause { reason: cause.reason, message: cause.message })
            .collect(),
        retry_after: (named > 0).then(|| Duration::from_secs(named)).or(retry_after),
    }
}
