//! The own Node read, cordoned and uncordoned. Only a cordon with our mark is ever lifted.
//!
//! Mark and cordon are set and lifted in one patch, which carries the resource version that was
//! read: whoever wrote in between wins, and the Node is looked at again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::lifecycle::{CordonAnswer, NodeTrouble, NodeView, UncordonAnswer};
use crate::model::{AttemptId, NodeUid};
use crate::signals::node::{CORDONED_BY, view};

/// Who we are in the Node's `managedFields`.
pub const FIELD_MANAGER: &str = "lockkeeper";
/// A kubelet writes its Node some times a minute and a controller after each cordon; ten conflicts
/// in a row are somebody fighting for it, and the heart decides when to try again.
const CONFLICTS: u32 = 10;
/// Rest after a conflict, times the conflicts so far.
const CONFLICT_REST: Duration = Duration::from_millis(50);

/// Reads the own Node once.
///
/// # Errors
/// Why it cannot be read.
pub async fn read(cluster: &Cluster) -> Result<NodeView, NodeTrouble> {
    Ok(view(&get(cluster).await?))
}

/// Makes the Node unschedulable with our mark. One that is so without it is left as it is.
pub async fn cordon(cluster: &Cluster, attempt: &AttemptId, uid: &NodeUid) -> CordonAnswer {
    let decide = |seen: &NodeView| decide_cordon(seen, attempt, uid);
    match change(cluster, decide).await {
        Ok(answer) => answer,
        Err(trouble) => CordonAnswer::Failed(trouble),
    }
}

/// Lifts the cordon if it carries our mark, and removes a mark that was left over.
pub async fn uncordon(cluster: &Cluster) -> UncordonAnswer {
    match change(cluster, decide_uncordon).await {
        Ok(answer) => answer,
        Err(NodeTrouble::Missing(_)) => UncordonAnswer::NoNode,
        Err(trouble) => UncordonAnswer::Failed(trouble),
    }
}

/// Puts a person's cordon back, unmarked. `true`: it had been lifted. Where the Node is gone there
/// is nothing to put back.
///
/// # Errors
/// A sentence that says why it could not be done.
pub async fn restore(cluster: &Cluster) -> Result<bool, String> {
    match change(cluster, decide_restore).await {
        Ok(answer) => Ok(answer),
        Err(NodeTrouble::Missing(_)) => Ok(false),
        Err(trouble) => Err(trouble.text().to_owned()),
    }
}

/// What one look at the Node leads to: an answer, and what must be written for it to be true.
#[derive(Debug, PartialEq, Eq)]
struct Decision<A> {
    answer: A,
    write: Option<Write>,
}

/// A change of cordon and mark.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    /// `None`: as it is.
    unschedulable: Option<bool>,
    /// `None`: removed.
    mark: Option<String>,
}

fn decide_cordon(seen: &NodeView, attempt: &AttemptId, uid: &NodeUid) -> Decision<CordonAnswer> {
    let mark = Some(attempt.as_str().to_owned());
    if seen.uid != *uid {
        Decision { answer: CordonAnswer::OtherNode(seen.uid.clone()), write: None }
    } else if !seen.unschedulable {
        let write = Some(Write { unschedulable: Some(true), mark });
        Decision { answer: CordonAnswer::Ours, write }
    } else if seen.mark.is_none() {
        Decision { answer: CordonAnswer::Foreign, write: None }
    } else if seen.mark == mark {
        Decision { answer: CordonAnswer::Ours, write: None }
    } else {
        // Left by an attempt that ended without coming to its uncordon.
        Decision { answer: CordonAnswer::Ours, write: Some(Write { unschedulable: None, mark }) }
    }
}

fn decide_uncordon(seen: &NodeView) -> Decision<UncordonAnswer> {
    match (seen.unschedulable, seen.mark.is_some()) {
        (true, true) => Decision {
            answer: UncordonAnswer::Lifted,
            write: Some(Write { unschedulable: Some(false), mark: None }),
        },
        (true, false) => Decision { answer: UncordonAnswer::Foreign, write: None },
        (false, true) => Decision {
            answer: UncordonAnswer::AlreadySchedulable,
            write: Some(Write { unschedulable: None, mark: None }),
        },
        (false, false) => Decision { answer: UncordonAnswer::AlreadySchedulable, write: None },
    }
}

/// A mark that clings to a person's cordon would have it lifted one day.
fn decide_restore(seen: &NodeView) -> Decision<bool> {
    match (seen.unschedulable, seen.mark.is_some()) {
        (true, false) => Decision { answer: false, write: None },
        (true, true) => {
            Decision { answer: false, write: Some(Write { unschedulable: None, mark: None }) }
        }
        (false, _) => {
            Decision { answer: true, write: Some(Write { unschedulable: Some(true), mark: None }) }
        }
    }
}

/// Reads, decides and writes, again after every conflict. What the watch shows is as good as a read
/// where it leads to a write: that fails if it was old.
async fn change<A>(
    cluster: &Cluster,
    decide: impl Fn(&NodeView) -> Decision<A>,
) -> Result<A, NodeTrouble> {
    if let Some(node) = cluster.watched() {
        let Decision { answer, write } = decide(&view(&node));
        if let Some(write) = write
            && put(cluster, &node, &write).await?.is_ok()
        {
            return Ok(answer);
        }
    }
    let mut conflicts = 0;
    loop {
        let node = get(cluster).await?;
        let Decision { answer, write } = decide(&view(&node));
        let Some(write) = write else { return Ok(answer) };
        let Err(Conflict(message)) = put(cluster, &node, &write).await? else {
            return Ok(answer);
        };
        conflicts += 1;
        if conflicts == CONFLICTS {
            return Err(NodeTrouble::Unreachable(format!(
                "the Node was changed by others {conflicts} times in a row: {message}"
            )));
        }
        tokio::time::sleep(CONFLICT_REST * conflicts).await;
    }
}

/// The Node is another than the one that was read; what the server says of it.
struct Conflict(String);

async fn put(
    cluster: &Cluster,
    node: &Node,
    write: &Write,
) -> Result<Result<(), Conflict>, NodeTrouble> {
    let api: Api<Node> = Api::all(cluster.client().await?);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..Default::default() };
    let patch = Patch::Merge(patch(node, write));
    match cluster.bounded(api.patch(name, &params, &patch)).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Err(Conflict(status.message))),
        Err(error) => Err(cluster.explain(&error)),
    }
}

/// The merge patch. Resource version and UID make it fail on anything but what was read.
fn patch(node: &Node, write: &Write) -> Value {
    let mut patch = json!({
        "metadata": {
            "uid": node.metadata.uid,
            "resourceVersion": node.metadata.resource_version,
            "annotations": { CORDONED_BY: write.mark },
        },
    });
    if let Some(unschedulable) = write.unschedulable {
        patch["spec"] = json!({ "unschedulable": unschedulable });
    }
    patch
}

async fn get(cluster: &Cluster) -> Result<Node, NodeTrouble> {
    let api: Api<Node> = Api::all(cluster.client().await?);
    let name = cluster.node_name().await?;
    cluster.bounded(api.get(&name)).await.map_err(|error| cluster.explain(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::cluster::fake::FakeApi;
    use crate::model::BootId;

    fn attempt(ordinal: u32) -> AttemptId {
        AttemptId::new(&BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap(), ordinal)
    }

    fn uid() -> NodeUid {
        NodeUid("uid-1".to_owned())
    }

    /// Sets cordon and mark as somebody left them.
    fn leave(api: &FakeApi, unschedulable: bool, mark: Option<&str>) {
        api.change(|node| {
            node["spec"]["unschedulable"] = json!(unschedulable);
            if let Some(mark) = mark {
                node["metadata"]["annotations"][CORDONED_BY] = json!(mark);
            }
        });
    }

    /// (unschedulable, mark) as the server has them.
    async fn left(cluster: &Cluster) -> (bool, Option<String>) {
        let view = read(cluster).await.unwrap();
        (view.unschedulable, view.mark)
    }

    #[tokio::test]
    async fn a_cordon_leaves_what_is_not_ours() {
        let mark = || Some(attempt(2).as_str().to_owned());
        for (unschedulable, before, answer, after) in [
            (false, None, CordonAnswer::Ours, (true, mark())),
            (false, Some("3f2a9c1e-1"), CordonAnswer::Ours, (true, mark())),
            (true, Some("3f2a9c1e-1"), CordonAnswer::Ours, (true, mark())),
            (true, Some("3f2a9c1e-2"), CordonAnswer::Ours, (true, mark())),
            (true, None, CordonAnswer::Foreign, (true, None)),
        ] {
            let api = FakeApi::start();
            leave(&api, unschedulable, before);
            let cluster = api.cluster();
            let said = cordon(&cluster, &attempt(2), &uid()).await;
            assert_eq!(said, answer, "{unschedulable} {before:?}");
            assert_eq!(left(&cluster).await, after, "{unschedulable} {before:?}");
            assert_eq!(api.node()["metadata"]["annotations"]["other"], "stays");
            let writes = api.seen("PATCH", "nodes").len();
            let needed = before != Some("3f2a9c1e-2") && answer != CordonAnswer::Foreign;
            assert_eq!(writes, usize::from(needed), "{unschedulable} {before:?}");
        }
    }

    #[tokio::test]
    async fn an_uncordon_lifts_what_is_ours_alone() {
        for (unschedulable, mark, answer, after) in [
            (true, Some("any"), UncordonAnswer::Lifted, (false, None)),
            (true, None, UncordonAnswer::Foreign, (true, None)),
            (false, Some("any"), UncordonAnswer::AlreadySchedulable, (false, None)),
            (false, None, UncordonAnswer::AlreadySchedulable, (false, None)),
        ] {
            let api = FakeApi::start();
            leave(&api, unschedulable, mark);
            let cluster = api.cluster();
            assert_eq!(uncordon(&cluster).await, answer, "{unschedulable} {mark:?}");
            assert_eq!(left(&cluster).await, after, "{unschedulable} {mark:?}");
            assert_eq!(api.seen("PATCH", "nodes").len(), usize::from(mark.is_some()));
        }
    }

    #[tokio::test]
    async fn a_persons_cordon_is_put_back_unmarked() {
        for (unschedulable, mark, lifted) in [
            (false, None, true),
            (true, None, false),
            (true, Some("m"), false),
            (false, Some("m"), true),
        ] {
            let api = FakeApi::start();
            leave(&api, unschedulable, mark);
            let cluster = api.cluster();
            assert_eq!(restore(&cluster).await, Ok(lifted), "{unschedulable} {mark:?}");
            assert_eq!(left(&cluster).await, (true, None), "{unschedulable} {mark:?}");
        }
    }

    #[tokio::test]
    async fn a_conflict_is_looked_at_again() {
        let api = FakeApi::start();
        let cluster = api.cluster();
        // A heartbeat first, then a person who cordons.
        api.meddle(|node| node["status"]["heartbeat"] = json!(1));
        api.meddle(|node| node["spec"]["unschedulable"] = json!(true));
        assert_eq!(cordon(&cluster, &attempt(1), &uid()).await, CordonAnswer::Foreign);
        assert_eq!(left(&cluster).await, (true, None));
        assert_eq!(api.seen("PATCH", "nodes").len(), 2);
    }

    #[tokio::test]
    async fn what_the_watch_shows_spares_a_read_and_is_not_believed_blindly() {
        let shown = |unschedulable: bool, mark: Option<&str>| {
            let api = FakeApi::start();
            leave(&api, unschedulable, mark);
            let cluster = api.cluster();
            cluster.keep_watched(Some(serde_json::from_value(api.node()).unwrap()));
            (api, cluster)
        };
        let (api, cluster) = shown(false, None);
        assert_eq!(cordon(&cluster, &attempt(1), &uid()).await, CordonAnswer::Ours);
        assert!(api.seen("GET", "nodes").is_empty());
        assert_eq!(left(&cluster).await, (true, Some(attempt(1).as_str().to_owned())));

        // A person cordons, and it is not on the watch yet.
        let (api, cluster) = shown(false, None);
        leave(&api, true, None);
        assert_eq!(cordon(&cluster, &attempt(1), &uid()).await, CordonAnswer::Foreign);
        assert_eq!(left(&cluster).await, (true, None));

        // Our old cordon was lifted, and it is not on the watch yet.
        let (api, cluster) = shown(true, Some(attempt(1).as_str()));
        leave(&api, false, Some(attempt(1).as_str()));
        assert_eq!(cordon(&cluster, &attempt(1), &uid()).await, CordonAnswer::Ours);
        assert!(left(&cluster).await.0);
    }

    #[tokio::test]
    async fn endless_conflicts_come_to_an_end() {
        let api = FakeApi::start();
        for _ in 0..CONFLICTS {
            api.answer_once("PATCH", "nodes", 409);
        }
        let said = cordon(&api.cluster(), &attempt(1), &uid()).await;
        assert!(matches!(said, CordonAnswer::Failed(NodeTrouble::Unreachable(_))), "{said:?}");
        assert_eq!(api.seen("PATCH", "nodes").len(), CONFLICTS as usize);
    }

    #[tokio::test]
    async fn a_node_of_another_uid_is_another_node() {
        let api = FakeApi::start();
        let cluster = api.cluster();
        let other = NodeUid("uid-0".to_owned());
        assert_eq!(cordon(&cluster, &attempt(1), &other).await, CordonAnswer::OtherNode(uid()));
        assert!(api.seen("PATCH", "nodes").is_empty());
        // Registered again between the read and the write.
        api.meddle(|node| node["metadata"]["uid"] = json!("uid-2"));
        let said = cordon(&cluster, &attempt(1), &uid()).await;
        assert_eq!(said, CordonAnswer::OtherNode(NodeUid("uid-2".to_owned())));
        assert_eq!(left(&cluster).await, (false, None));
    }

    #[tokio::test]
    async fn a_node_that_is_gone_has_no_cordon() {
        let api = FakeApi::start();
        let cluster = api.cluster();
        api.delete_node();
        assert_eq!(uncordon(&cluster).await, UncordonAnswer::NoNode);
        assert_eq!(restore(&cluster).await, Ok(false));
        let said = cordon(&cluster, &attempt(1), &uid()).await;
        assert!(matches!(said, CordonAnswer::Failed(NodeTrouble::Missing(_))), "{said:?}");
    }

    #[tokio::test]
    async fn a_missing_right_is_told_as_such() {
        let api = FakeApi::start();
        leave(&api, true, Some("m"));
        api.answer_once("PATCH", "nodes", 403);
        let said = uncordon(&api.cluster()).await;
        assert!(matches!(said, UncordonAnswer::Failed(NodeTrouble::Forbidden(_))), "{said:?}");
    }
}
