//! What the identity of the agent is called, and what it may not do: said when it is known, and
//! again when it changed.

use std::convert::Infallible;

use tokio::sync::watch;

use crate::admin::Snapshot;
use crate::cluster::{self, Cluster, Retry};
use crate::lifecycle::NodeTrouble;

/// How often a server that forbids the question is asked: while it starts, it forbids all of them.
const FORBIDDEN_MAX: u32 = 10;

/// Looks once the Node was seen, and again with every other credential. It never ends; where the
/// Node is not seen, the watch of the Node says so and this waits.
pub(super) async fn watch(cluster: Cluster, snapshots: watch::Sender<Snapshot>) -> Infallible {
    let mut told = None;
    let mut retry = Retry::new();
    loop {
        seen(&snapshots).await;
        let (connection, trouble) = match look(&cluster, &snapshots).await {
            Ok((connection, missing)) => {
                say(&mut told, Ok(missing));
                (Some(connection), None)
            }
            Err((connection, trouble)) => (connection, Some(trouble)),
        };
        if let Some(trouble) = trouble {
            let rest = retry.failed();
            let forbidden = matches!(trouble, NodeTrouble::Forbidden(_));
            if !(forbidden && retry.failures() >= FORBIDDEN_MAX) {
                tokio::time::sleep(rest).await;
                continue;
            }
            say(&mut told, Err(trouble.text().to_owned()));
        }
        retry.succeeded();
        match connection {
            Some(connection) => cluster.outdated(&connection).await,
            None => cluster.changed().await,
        }
    }
}

type Looked =
    Result<(cluster::Connection, Vec<String>), (Option<cluster::Connection>, NodeTrouble)>;

async fn look(cluster: &Cluster, snapshots: &watch::Sender<Snapshot>) -> Looked {
    let connection = cluster.connection().await.map_err(|trouble| (None, trouble))?;
    let failed = |trouble| (Some(connection.clone()), trouble);
    let name = cluster.node_name().await.map_err(failed)?;
    snapshots.send_if_modified(|snapshot| {
        let changed = snapshot.node_name.as_ref() != Some(&name);
        snapshot.node_name = Some(name);
        changed
    });
    let missing = cluster::self_check(cluster).await.map_err(failed)?;
    Ok((connection, missing))
}

/// Waits until the watch of the Node sees it.
async fn seen(snapshots: &watch::Sender<Snapshot>) {
    let mut views = snapshots.subscribe();
    // It cannot end: we hold the sender.
    let _ = views.wait_for(|snapshot| matches!(snapshot.state.view.node, Some(Ok(_)))).await;
}

/// One line, unless it is the last one again.
fn say(told: &mut Option<Result<Vec<String>, String>>, now: Result<Vec<String>, String>) {
    if told.as_ref() == Some(&now) {
        return;
    }
    match &now {
        Ok(missing) if missing.is_empty() => {
            tracing::info!("the credential may do all that the agent needs");
        }
        Ok(missing) => {
            let missing = missing.join("; ");
            tracing::warn!(missing, "rights are missing: {missing}");
        }
        Err(error) => {
            tracing::warn!(error, "the API server does not tell which rights there are: {error}");
        }
    }
    *told = Some(now);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::admin::sample;
    use crate::cluster::fake::{self, FakeApi, NODE, until};
    use crate::signals::node;

    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    fn asked(api: &FakeApi) -> usize {
        api.seen("POST", REVIEWS).len()
    }

    #[tokio::test]
    async fn rights_are_looked_at_once_the_node_is_seen_and_with_each_credential() {
        let api = FakeApi::start();
        let mut start = sample::idle();
        start.node_name = None;
        start.state.view.node = Some(Err(NodeTrouble::NoCredential("not there yet".to_owned())));
        let snapshots = watch::Sender::new(start);
        let mut told = snapshots.subscribe();
        tokio::spawn(watch(api.cluster(), snapshots.clone()));
        // As long as it would take to ask, it does not.
        cluster::self_check(&api.cluster()).await.unwrap();
        assert_eq!(asked(&api), 10);
        // While the server starts it forbids what it does not know yet: asked again.
        api.answer_once("POST", REVIEWS, 403);
        let view = node::view(&serde_json::from_value(fake::node("uid-1")).unwrap());
        snapshots.send_modify(|snapshot| snapshot.state.view.node = Some(Ok(view)));
        let named = |snapshot: &Snapshot| snapshot.node_name.as_deref() == Some(NODE);
        tokio::time::timeout(fake::SOON, told.wait_for(named)).await.unwrap().unwrap();
        until("every right was asked for", || asked(&api) == 10 + 1 + 10).await;
        api.take_token("second");
        api.server.write_kubeconfig("second");
        until("and again", || asked(&api) == 10 + 1 + 10 + 10).await;
    }

    #[test]
    fn a_line_is_said_only_when_it_is_another() {
        let mut told = None;
        let missing = || Ok(vec!["may not patch nodes n1".to_owned()]);
        for (now, lines) in [
            (missing(), 1),
            (missing(), 0),
            (Ok(Vec::new()), 1),
            (Ok(Vec::new()), 0),
            (Err("forbidden".to_owned()), 1),
            (missing(), 1),
        ] {
            let before = crate::telemetry::heard(|| say(&mut told, now.clone()));
            assert_eq!(before.lines().count(), lines, "{now:?}: {before}");
        }
    }
}
