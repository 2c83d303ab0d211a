//! An API server that misbehaves on demand, for tests. It speaks plain HTTP on loopback and knows
//! one Node; requests, tokens and answers are at the test's command.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub(crate) mod server;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::config::NodeSettings;

use server::FakeServer;
pub(crate) use server::TOKEN;

/// The node's name, as the server tells it to who asks.
pub(crate) const NODE: &str = "n1";

/// Nothing that a test waits for takes this long; one that waits in vain fails.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Waits until the server has come to this. It lives on a thread of its own and has no way to be
/// awaited, so its state is looked at instead.
pub(crate) async fn until(what: &str, reached: impl Fn() -> bool) {
    let looking = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, looking).await.is_ok(), "in vain: {what}");
}

/// The server, its folder with a kubeconfig, and what it saw.
pub(crate) struct FakeApi {
    pub(crate) server: FakeServer,
    shared: Arc<Shared>,
}

/// One request that came in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

struct Shared {
    state: Mutex<State>,
    /// Moves when the Node changed or watches are to break.
    turn: watch::Sender<u64>,
}

type Meddling = Box<dyn Fn(&mut Value) + Send>;

#[derive(Default)]
struct State {
    node: Option<Value>,
    revision: u64,
    deleted: Option<Value>,
    token: String,
    /// Answers to give instead: to a method and a part of the path, in order.
    answers: VecDeque<(String, String, u16)>,
    /// Changes that somebody else makes right before a PATCH is looked at.
    meddle: VecDeque<Meddling>,
    breaks: u64,
    seen: Vec<Seen>,
}

impl FakeApi {
    /// Starts it with a Node that is Ready and schedulable.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { token: TOKEN.to_owned(), ..State::default() }),
            turn: watch::Sender::new(0),
        });
        let of_server = shared.clone();
        let server =
            FakeServer::start(Router::new().fallback(move |method, uri, headers, body| {
                let shared = of_server.clone();
                async move { answer(&shared, method, uri, headers, body) }
            }));
        let api = Self { server, shared };
        api.set_node(node("uid-1"));
        api
    }

    pub(crate) fn settings(&self) -> NodeSettings {
        NodeSettings { credentials: self.server.credentials(), name: None }
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::new(&self.settings())
    }

    /// Only this token is taken from now on.
    pub(crate) fn take_token(&self, token: &str) {
        self.lock().token = token.to_owned();
    }

    /// Answers the next such request with this code.
    pub(crate) fn answer_once(&self, method: &str, path: &str, code: u16) {
        self.lock().answers.push_back((method.to_owned(), path.to_owned(), code));
    }

    /// Has somebody else write the Node right before the next PATCH.
    pub(crate) fn meddle(&self, change: impl Fn(&mut Value) + Send + 'static) {
        self.lock().meddle.push_back(Box::new(change));
    }

    pub(crate) fn node(&self) -> Value {
        self.lock().node.clone().unwrap()
    }

    pub(crate) fn set_node(&self, node: Value) {
        self.lock().write(node);
        self.shared.turn.send_modify(|turn| *turn += 1);
    }

    /// Changes the Node as somebody else would.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut node = self.node();
        change(&mut node);
        self.set_node(node);
    }

    pub(crate) fn delete_node(&self) {
        let mut state = self.lock();
        state.revision += 1;
        state.deleted = state.node.take();
        drop(state);
        self.shared.turn.send_modify(|turn| *turn += 1);
    }

    /// Ends every watch in the middle.
    pub(crate) fn break_watches(&self) {
        self.lock().breaks += 1;
        self.shared.turn.send_modify(|turn| *turn += 1);
    }

    /// Requests so far whose method and path match, reviews of the own identity left out.
    pub(crate) fn seen(&self, method: &str, path: &str) -> Vec<Seen> {
        let matches = |seen: &&Seen| seen.method == method && seen.path.contains(path);
        self.lock().seen.iter().filter(matches).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }
}

/// A Node that is Ready and schedulable.
pub(crate) fn node(uid: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": NODE, "uid": uid, "annotations": { "other": "stays" } },
        "spec": {},
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            "nodeInfo": {
                "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": "",
                "bootID": "3f2a9c1e-0b1c-4d5e-8f90-a1b2c3d4e5f6",
            },
        },
    })
}

impl State {
    fn write(&mut self, mut node: Value) {
        self.revision += 1;
        node["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.deleted = None;
        self.node = Some(node);
    }

    fn patch(&mut self, patch: &Value, content_type: &str) -> Result<Value, u16> {
        let mut node = self.node.clone().ok_or(404_u16)?;
        if let Some(meddle) = self.meddle.pop_front() {
            meddle(&mut node);
            self.write(node);
            node = self.node.clone().unwrap();
        }
        for key in ["resourceVersion", "uid"] {
            let wanted = &patch["metadata"][key];
            if !wanted.is_null() && *wanted != node["metadata"][key] {
                return Err(409);
            }
        }
        if content_type.contains("strategic") {
            merge_conditions(&mut node, patch);
        } else {
            merge(&mut node, patch);
        }
        self.write(node);
        Ok(self.node.clone().unwrap())
    }
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in changes {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// The one strategic merge that is needed: conditions by their type.
pub(crate) fn merge_conditions(node: &mut Value, patch: &Value) {
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    for change in patch["status"]["conditions"].as_array().unwrap() {
        conditions.retain(|condition| condition["type"] != change["type"]);
        if change["$patch"] != "delete" {
            conditions.push(change.clone());
        }
    }
}

fn answer(
    shared: &Arc<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut state = shared.state.lock().unwrap();
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    state.seen.push(Seen {
        method: method.to_string(),
        path: path.to_owned(),
        query: query.to_owned(),
        body: body.clone(),
    });
    if !header("user-agent").starts_with("lockkeeper/") {
        // The audit log of a cluster would not tell it from the kubelet.
        return status(400);
    }
    if header("authorization") != format!("Bearer {}", state.token) {
        return status(401);
    }
    let wanted =
        |(m, p, _): &(String, String, u16)| method.as_str() == m && path.contains(p.as_str());
    if let Some(index) = state.answers.iter().position(wanted) {
        return status(state.answers.remove(index).unwrap().2);
    }
    let own = format!("/api/v1/nodes/{NODE}");
    match (method.as_str(), path) {
        ("GET", "/api/v1/nodes") if query.contains("watch=true") => {
            let known: u64 = query_value(query, "resourceVersion").parse().unwrap_or_default();
            Body::from_stream(events(shared.clone(), known, state.breaks)).into_response()
        }
        ("GET", "/api/v1/nodes") => ok(json!({
            "apiVersion": "v1", "kind": "NodeList",
            "metadata": { "resourceVersion": state.revision.to_string() },
            "items": state.node.iter().collect::<Vec<_>>(),
        })),
        ("GET", _) if path == own => state.node.clone().map_or_else(|| status(404), ok),
        ("PATCH", _) if path.starts_with(&own) => {
            let patched = state.patch(&body, header("content-type"));
            drop(state);
            shared.turn.send_modify(|turn| *turn += 1);
            patched.map_or_else(status, ok)
        }
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews") => {
            let mut review = body;
            review["status"] = json!({ "userInfo": { "username": format!("system:node:{NODE}") } });
            ok(review)
        }
        ("POST", _) => ok(body),
        _ => status(404),
    }
}

fn query_value<'a>(query: &'a str, key: &str) -> &'a str {
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    pair.unwrap_or_default()
}

/// A watch: the Node's last state whenever it is newer than what the client knows.
fn events(
    shared: Arc<Shared>,
    known: u64,
    breaks: u64,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let turn = shared.turn.subscribe();
    stream::unfold((shared, turn, known), move |(shared, mut turn, known)| async move {
        loop {
            {
                let state = shared.state.lock().unwrap();
                if state.breaks != breaks {
                    return None;
                }
                if state.revision > known {
                    let (kind, object) = match (&state.node, &state.deleted) {
                        (Some(node), _) => ("MODIFIED", node.clone()),
                        (None, Some(node)) => ("DELETED", node.clone()),
                        (None, None) => return None,
                    };
                    let revision = state.revision;
                    drop(state);
                    let line = format!("{}\n", json!({ "type": kind, "object": object }));
                    return Some((Ok(Bytes::from(line)), (shared, turn, revision)));
                }
            }
            turn.changed().await.ok()?;
        }
    })
}

fn ok(value: Value) -> Response {
    axum::Json(value).into_response()
}

fn status(code: u16) -> Response {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "message": format!("told to answer {code}"), "reason": "Told",
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}
