//! Looks that change nothing: the rehearsal before the slot, and the last look before the reboot.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;

use super::request::{ask, bounded, list};
use super::rules;
use super::wishes::Wishes;
use crate::cluster::Cluster;
use crate::config::DrainSettings;
use crate::drain::{
    Answer, Ask, How, Obstacle, ObstacleKind, PodId, Rules, Verdict, Wish, classify, in_order,
};
use crate::lifecycle::{NodeTrouble, Rehearsal, Verification};
use crate::model::NodeUid;

/// Longest a rehearsal may take.
const REHEARSAL_LIMIT: Duration = Duration::from_secs(120);

/// How often one pod is asked in a rehearsal when the answer was no verdict.
const TRIES: u32 = 3;

/// Rests between these tries, unless the server names a time.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Asks every eviction of a drain with `dryRun=All`, which changes nothing, budgets included.
///
/// So it cannot see that a budget has room for one pod and not for the next; the drain waits then.
pub async fn rehearse(cluster: &Cluster, settings: &DrainSettings) -> Rehearsal {
    match tokio::time::timeout(REHEARSAL_LIMIT, ask_all(cluster, settings)).await {
        Ok(Ok(obstacles)) if obstacles.is_empty() => Rehearsal::Passes,
        Ok(Ok(obstacles)) => Rehearsal::Blocked(obstacles),
        Ok(Err(trouble)) => Rehearsal::Failed(trouble),
        Err(_) => Rehearsal::Failed(NodeTrouble::Unreachable(format!(
            "the rehearsal took longer than {} s",
            REHEARSAL_LIMIT.as_secs()
        ))),
    }
}

/// Looks at the Node's UID and cordon and, unless `pods_may_stay`, for pods that should have gone.
pub async fn verify(
    cluster: &Cluster,
    settings: &DrainSettings,
    uid: &NodeUid,
    pods_may_stay: bool,
) -> Verification {
    match look(cluster, settings, uid, pods_may_stay).await {
        Ok(verification) => verification,
        Err(trouble) => Verification::Failed(trouble),
    }
}

async fn look(
    cluster: &Cluster,
    settings: &DrainSettings,
    uid: &NodeUid,
    pods_may_stay: bool,
) -> Result<Verification, NodeTrouble> {
    let name = cluster.node_name().await?;
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    let node = bounded(cluster, nodes.get(&name)).await?;
    let found = NodeUid(node.metadata.uid.unwrap_or_default());
    if found != *uid {
        return Ok(Verification::OtherNode(found));
    }
    if node.spec.and_then(|spec| spec.unschedulable) != Some(true) {
        return Ok(Verification::Uncordoned);
    }
    if pods_may_stay {
        return Ok(Verification::Good);
    }
    let (rules, mut wishes) = (rules(settings), Wishes::new(cluster));
    let mut left = Vec::new();
    for pod in list(cluster).await? {
        let namespace = wishes.of_namespace(&pod).await?;
        left.extend(left_over(&pod, namespace, &rules));
    }
    if left.is_empty() {
        Ok(Verification::Good)
    } else {
        Ok(Verification::NotEmpty(in_order(left)))
    }
}

/// A pod that should have gone.
fn left_over(pod: &Pod, namespace: Option<Wish>, rules: &Rules) -> Option<Obstacle> {
    let kind = match classify(pod, namespace, rules) {
        Verdict::Leave { .. } => return None,
        Verdict::Complete { .. } => ObstacleKind::Completing,
        Verdict::Evict { .. } => ObstacleKind::Present,
        Verdict::Await { .. } => ObstacleKind::Terminating,
        Verdict::Refuse { rule } => ObstacleKind::Refused { rule: rule.to_string() },
    };
    Some(Obstacle::of(&PodId::of(pod)?, kind))
}

async fn ask_all(
    cluster: &Cluster,
    settings: &DrainSettings,
) -> Result<Vec<Obstacle>, NodeTrouble> {
    let (rules, mut wishes) = (rules(settings), Wishes::new(cluster));
    let mut obstacles = Vec::new();
    let mut targets = Vec::new();
    for pod in list(cluster).await? {
        let Some(id) = PodId::of(&pod) else { continue };
        match classify(&pod, wishes.of_namespace(&pod).await?, &rules) {
            Verdict::Evict { .. } => targets.push(id),
            Verdict::Refuse { rule } => {
                let kind = ObstacleKind::Refused { rule: rule.to_string() };
                obstacles.push(Obstacle::of(&id, kind));
            }
            // What terminates, or ends by itself, leaves without being asked.
            Verdict::Await { .. } | Verdict::Complete { .. } | Verdict::Leave { .. } => {}
        }
    }
    let answers = futures::stream::iter(targets)
        .map(|pod| ask_one(cluster, settings, pod))
        .buffer_unordered(settings.parallel.max(1));
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.next().await {
        obstacles.extend(answer?);
    }
    Ok(in_order(obstacles))
}

/// Asks one pod until there is a verdict, a few times.
async fn ask_one(
    cluster: &Cluster,
    settings: &DrainSettings,
    pod: PodId,
) -> Result<Option<Obstacle>, NodeTrouble> {
    let request = Ask { pod, how: How::Evict };
    let mut tries = 1;
    loop {
        let answer = ask(cluster, &request, settings.grace_period, true).await;
        match rest_after(&answer) {
            Some(rest) if tries < TRIES => tokio::time::sleep(rest.min(LONGEST_REST)).await,
            Some(_) | None => return obstacle_in(&request.pod, answer),
        }
        tries += 1;
    }
}

/// How long to rest after an answer that is no verdict on the pod; `None`: it is one.
fn rest_after(answer: &Answer) -> Option<Duration> {
    match answer {
        Answer::BudgetBusy { retry_after, .. } => Some(*retry_after),
        Answer::TooManyRequests { retry_after, .. } => Some(retry_after.unwrap_or(REST)),
        // The next request goes out with a new client.
        Answer::CredentialRefused { .. } => Some(Duration::ZERO),
        Answer::Forbidden { .. } | Answer::ApiTrouble { .. } | Answer::Unreachable { .. } => {
            Some(REST)
        }
        Answer::Accepted
        | Answer::Gone
        | Answer::Elsewhere
        | Answer::BudgetExhausted { .. }
        | Answer::SeveralBudgets { .. }
        | Answer::NamespaceTerminating => None,
    }
}

/// What an answer says of a drain: nothing in the way, an obstacle, or that nothing can be said.
fn obstacle_in(pod: &PodId, answer: Answer) -> Result<Option<Obstacle>, NodeTrouble> {
    let kind = match answer {
        // The drain empties a terminating namespace by deletion.
        Answer::Accepted | Answer::Gone | Answer::Elsewhere | Answer::NamespaceTerminating => {
            return Ok(None);
        }
        Answer::BudgetExhausted { budget, says, .. } | Answer::BudgetBusy { budget, says, .. } => {
            ObstacleKind::Budget { budget, says }
        }
        Answer::SeveralBudgets { says } => ObstacleKind::SeveralBudgets { says },
        Answer::Forbidden { says } => ObstacleKind::Forbidden { says },
        Answer::TooManyRequests { says, .. } | Answer::ApiTrouble { says } => {
            ObstacleKind::Api { says }
        }
        Answer::CredentialRefused { says } => return Err(NodeTrouble::Refused(says)),
        Answer::Unreachable { says } => return Err(NodeTrouble::Unreachable(says)),
    };
    Ok(Some(Obstacle::of(pod, kind)))
}
