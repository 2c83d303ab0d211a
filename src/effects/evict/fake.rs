//! An API server with the pods of one node, for tests: plain HTTP on loopback, with budgets, and
//! misbehaving on demand.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::cluster::fake::server::{FakeServer, TOKEN};
use crate::config::NodeSettings;

/// The server and what it saw.
pub(super) struct FakeApi {
    pub(super) server: FakeServer,
    shared: Arc<Shared>,
}

/// One request that came in.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Value,
}

struct Shared {
    state: Mutex<State>,
    /// Moves with every event and when watches are to break.
    turn: watch::Sender<u64>,
}

pub(super) struct State {
    pub(super) node: Value,
    pub(super) token: String,
    /// How long an accepted pod takes to go.
    pub(super) going: Duration,
    /// How long an answer to an eviction takes.
    pub(super) answering: Duration,
    /// Evictions that were decided; the answer leaves after that.
    pub(super) decided: usize,
    /// Answers to give instead, to a method and a part of the path: status code and body.
    pub(super) answers: VecDeque<(&'static str, &'static str, u16, Value)>,
    /// Budgets by the controller that they cover: name, and how many may go now.
    pub(super) budgets: BTreeMap<String, (String, usize)>,
    /// How long after a pod has gone its budget opens again.
    pub(super) refill: Option<Duration>,
    pub(super) objects: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    revision: u64,
    events: Vec<(u64, Value)>,
    /// Watches from before this revision are refused as too old.
    floor: u64,
    breaks: u64,
    /// The Node as the last list showed it; a watch tells what is different.
    listed_node: Value,
    /// Watches that began before this turn say nothing any more.
    silent: u64,
    seen: Vec<Seen>,
}

// === impl FakeApi: the test's side ===

impl FakeApi {
    pub(super) fn start() -> Self {
        let state = State {
            node: json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1",
                "uid": "node-1", "resourceVersion": "1"}, "spec": {"unschedulable": true}}),
            token: TOKEN.to_owned(),
            going: Duration::from_millis(20),
            answering: Duration::ZERO,
            decided: 0,
            answers: VecDeque::new(),
            budgets: BTreeMap::new(),
            refill: None,
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            revision: 10,
            events: Vec::new(),
            floor: 0,
            breaks: 0,
            listed_node: Value::Null,
            silent: 0,
            seen: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), turn: watch::Sender::new(0) });
        let of_server = shared.clone();
        let server =
            FakeServer::start(Router::new().fallback(move |method, uri, headers, body| {
                answer(of_server.clone(), method, uri, headers, body)
            }));
        Self { server, shared }
    }

    pub(super) fn cluster(&self) -> Cluster {
        Cluster::new(&NodeSettings {
            credentials: self.server.credentials(),
            name: Some("n1".to_owned()),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Adds a pod of the ReplicaSet `owner`; its UID is its name.
    pub(super) fn add(&self, name: &str, owner: &str) {
        self.add_with(name, owner, |_| ());
    }

    pub(super) fn add_with(&self, name: &str, owner: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner,
                "controller": true}]},
            "spec": {"containers": [], "nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut pod);
        self.shared.put(pod, "ADDED");
    }

    pub(super) fn remove(&self, uid: &str) {
        self.shared.remove(uid);
    }

    /// Ends every watch in the middle, as a proxy or a restart does.
    pub(super) fn break_watches(&self) {
        self.state().breaks += 1;
        self.shared.turn.send_modify(|turn| *turn += 1);
    }

    /// Has the watches that are open say nothing more, as if their connections had died.
    pub(super) fn silence_watches(&self) {
        let turn = *self.shared.turn.borrow();
        self.state().silent = turn + 1;
    }

    /// Forgets all events, so that a watch cannot be taken up again where it ended.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.revision += 1;
        state.floor = state.revision;
        state.events.clear();
    }

    pub(super) fn pods(&self) -> Vec<String> {
        self.state().pods.keys().cloned().collect()
    }

    /// Waits until the server has seen such a request `times` times.
    pub(super) async fn until_seen(&self, method: &str, part: &str, times: usize) {
        let mut turn = self.shared.turn.subscribe();
        let enough = async {
            while self.seen(method, part).len() < times {
                turn.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), enough).await.expect("never asked");
    }

    /// Requests with this method and this part in path or query.
    pub(super) fn seen(&self, method: &str, part: &str) -> Vec<Seen> {
        let fits = |seen: &&Seen| {
            seen.method == method && format!("{}?{}", seen.path, seen.query).contains(part)
        };
        self.state().seen.iter().filter(fits).cloned().collect()
    }

    /// How many requests there were: lists, watches, evictions, all.
    pub(super) fn counts(&self) -> [usize; 4] {
        let state = self.state();
        let count = |fits: &dyn Fn(&Seen) -> bool| state.seen.iter().filter(|s| fits(s)).count();
        let is_watch = |seen: &Seen| seen.query.contains("watch=true");
        [
            count(&|seen| seen.path == "/api/v1/pods" && !is_watch(seen)),
            count(&|seen| seen.path == "/api/v1/pods" && is_watch(seen)),
            count(&|seen| seen.path.ends_with("/eviction")),
            state.seen.len(),
        ]
    }
}

// === impl Shared: the server's side ===

impl Shared {
    fn put(&self, mut pod: Value, kind: &str) {
        let mut state = self.state.lock().unwrap();
        state.revision += 1;
        let revision = state.revision;
        pod["metadata"]["resourceVersion"] = json!(revision.to_string());
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        state.pods.insert(uid, pod.clone());
        state.events.push((revision, json!({"type": kind, "object": pod})));
        drop(state);
        self.turn.send_modify(|turn| *turn += 1);
    }

    fn remove(&self, uid: &str) {
        let mut state = self.state.lock().unwrap();
        let Some(mut pod) = state.pods.remove(uid) else { return };
        state.revision += 1;
        let revision = state.revision;
        pod["metadata"]["resourceVersion"] = json!(revision.to_string());
        state.events.push((revision, json!({"type": "DELETED", "object": pod})));
        drop(state);
        self.turn.send_modify(|turn| *turn += 1);
    }

    /// A pod goes the way that a kubelet takes it; its budget opens again a while later.
    async fn go(self: Arc<Self>, uid: String) {
        let (mut pod, going, refill) = {
            let state = self.state.lock().unwrap();
            let Some(pod) = state.pods.get(&uid) else { return };
            (pod.clone(), state.going, state.refill)
        };
        pod["metadata"]["deletionTimestamp"] = json!("2026-03-01T10:00:00Z");
        let owner = pod["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned);
        self.put(pod, "MODIFIED");
        tokio::time::sleep(going).await;
        self.remove(&uid);
        if let (Some(refill), Some(owner)) = (refill, owner) {
            tokio::time::sleep(refill).await;
            if let Some((_, allowed)) = self.state.lock().unwrap().budgets.get_mut(&owner) {
                *allowed += 1;
            }
        }
    }
}

async fn answer(
    shared: Arc<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let query = uri.query().unwrap_or_default().replace("%3D", "=");
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (instead, known, answering) = {
        let mut state = shared.state.lock().unwrap();
        let (method, path, query) = (method.to_string(), path.clone(), query.clone());
        let fits =
            |a: &(&str, &str, u16, Value)| a.0 == method && format!("{path}?{query}").contains(a.1);
        let instead = state.answers.iter().position(fits).and_then(|i| state.answers.remove(i));
        state.seen.push(Seen { method, path, query, body: body.clone() });
        let bearer = headers.get("authorization").and_then(|v| v.to_str().ok());
        let known = bearer == Some(&format!("Bearer {}", state.token));
        (instead, known, state.answering)
    };
    shared.turn.send_modify(|turn| *turn += 1);
    if let Some((_, _, code, body)) = instead {
        return reply(code, &body);
    }
    if !known {
        return reply(401, &status("Unauthorized", "Unauthorized", &json!({})));
    }
    let name = path.trim_end_matches("/eviction").rsplit('/').next().unwrap().to_owned();
    if path.ends_with("/eviction") {
        tokio::time::sleep(answering).await;
        shared.state.lock().unwrap().decided += 1;
        return evict(&shared, &name, &body, query.contains("dryRun=All"));
    }
    match (method.as_str(), path.as_str()) {
        ("GET", "/api/v1/pods") if query.contains("watch=true") => follow(shared, &query),
        ("GET", "/api/v1/pods") => {
            let state = shared.state.lock().unwrap();
            let pods: Vec<&Value> = state.pods.values().filter(|p| selected(p, &query)).collect();
            let revision = state.revision.to_string();
            reply(
                200,
                &json!({"kind": "PodList", "apiVersion": "v1",
                "metadata": {"resourceVersion": revision}, "items": pods}),
            )
        }
        ("GET", "/api/v1/nodes") => {
            let mut state = shared.state.lock().unwrap();
            if query.contains("watch=true") {
                return follow_node(shared.clone(), &state.listed_node);
            }
            state.listed_node = state.node.clone();
            reply(
                200,
                &json!({"kind": "NodeList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"}, "items": [state.node]}),
            )
        }
        ("GET", "/api/v1/nodes/n1") => reply(200, &shared.state.lock().unwrap().node),
        ("DELETE", _) => {
            let uid = body["preconditions"]["uid"].as_str().unwrap_or_default().to_owned();
            tokio::spawn(shared.clone().go(uid));
            reply(200, &json!({"kind": "Status", "status": "Success"}))
        }
        _ => match shared.state.lock().unwrap().objects.get(&path) {
            Some(object) => reply(200, object),
            None => reply(404, &status("NotFound", "not found", &json!({}))),
        },
    }
}

/// Whether the request is for this pod: without a selector it is for those of all nodes.
fn selected(pod: &Value, query: &str) -> bool {
    let (_, node) = query.split_once("spec.nodeName=").unwrap_or(("", ""));
    let node = node.split('&').next().unwrap_or_default();
    node.is_empty() || pod["spec"]["nodeName"] == node
}

/// What the server does with an eviction.
fn evict(shared: &Arc<Shared>, name: &str, body: &Value, dry_run: bool) -> Response {
    let uid = {
        let mut state = shared.state.lock().unwrap();
        let Some(pod) = state.pods.values().find(|p| p["metadata"]["name"] == name).cloned() else {
            return reply(404, &status("NotFound", "pods not found", &json!({})));
        };
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        if body["deleteOptions"]["preconditions"]["uid"] != json!(uid) {
            return reply(
                409,
                &status(
                    "Conflict",
                    "Precondition failed: UID in precondition: \
                x, UID in object meta: y",
                    &json!({}),
                ),
            );
        }
        let owner = pod["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
        if let Some((budget, allowed)) = state.budgets.get_mut(owner) {
            if *allowed == 0 {
                return reply(429, &refusal(budget));
            }
            *allowed -= usize::from(!dry_run);
        }
        uid
    };
    if !dry_run {
        tokio::spawn(shared.clone().go(uid));
    }
    reply(201, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
}

/// A watch from the revision in the query on.
fn follow(shared: Arc<Shared>, query: &str) -> Response {
    let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
    let query = query.to_owned();
    let breaks = shared.state.lock().unwrap().breaks;
    let turn = shared.turn.subscribe();
    let born = *turn.borrow();
    let lines = stream::unfold(
        (shared, turn, from, breaks, query),
        move |(shared, mut turn, from, breaks, query)| async move {
            loop {
                let next = {
                    let state = shared.state.lock().unwrap();
                    if state.breaks != breaks {
                        return None;
                    }
                    if born < state.silent {
                        None
                    } else if from < state.floor {
                        let mut gone = status("Expired", "too old resource version", &json!({}));
                        gone["code"] = json!(410);
                        Some((state.floor, json!({"type": "ERROR", "object": gone})))
                    } else {
                        let next = |(revision, event): &&(u64, Value)| {
                            *revision > from && selected(&event["object"], &query)
                        };
                        state.events.iter().find(next).cloned()
                    }
                };
                if let Some((revision, event)) = next {
                    let line = Ok::<_, std::io::Error>(format!("{event}\n"));
                    return Some((line, (shared, turn, revision, breaks, query)));
                }
                turn.changed().await.ok()?;
            }
        },
    );
    Body::from_stream(lines).into_response()
}

/// A watch of the Node: every change of it.
fn follow_node(shared: Arc<Shared>, node: &Value) -> Response {
    let turn = shared.turn.subscribe();
    let start = (shared, turn, node.clone());
    let lines = stream::unfold(start, |(shared, mut turn, before)| async move {
        loop {
            let node = shared.state.lock().unwrap().node.clone();
            if node != before {
                let event = json!({"type": "MODIFIED", "object": node});
                let line = Ok::<_, std::io::Error>(format!("{event}\n"));
                return Some((line, (shared, turn, node)));
            }
            turn.changed().await.ok()?;
        }
    });
    Body::from_stream(lines).into_response()
}

fn reply(code: u16, body: &Value) -> Response {
    let mut body = body.clone();
    if code >= 400 && body.is_object() {
        body["code"] = json!(code);
    }
    (StatusCode::from_u16(code).unwrap(), [("content-type", "application/json")], body.to_string())
        .into_response()
}

/// A failure in the API's own shape.
pub(super) fn status(reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "details": details})
}

fn refusal(budget: &str) -> Value {
    let cause = format!("The disruption budget {budget} needs 3 healthy pods and has 3 currently");
    let details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    status("TooManyRequests", message, &details)
}
