//! Credentials that are anything, and an API server that says anything: named, bounded, and in
//! words that can be shown.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::fake::server::FakeServer;
use super::guard::{ANSWER_BYTES_MAX, LINE_BYTES_MAX};
use super::*;
use crate::signals::bus::odd::{FORGED, is_plain};

/// Beyond a bound: what the sockets of both sides hold.
const ROOM: usize = 32 << 20;

/// An API server that answers as it is told, by path and query.
pub(crate) fn api(answer: impl Fn(&str, &str) -> Response + Send + Sync + 'static) -> FakeServer {
    let answer = Arc::new(answer);
    FakeServer::start(Router::new().fallback(move |uri: Uri| {
        let answer = answer.clone();
        async move { answer(uri.path(), uri.query().unwrap_or_default()) }
    }))
}

pub(crate) fn cluster_of(server: &FakeServer) -> Cluster {
    let name = Some("n1".to_owned());
    Cluster::new(&NodeSettings { credentials: server.credentials(), name })
}

/// A body that never ends, counted.
pub(crate) fn endless(piece: &'static [u8], sent: &Arc<AtomicUsize>) -> Response {
    let (piece, sent) = (Bytes::from(piece.repeat(1 + 60_000 / piece.len())), sent.clone());
    Body::from_stream(stream::repeat_with(move || {
        sent.fetch_add(piece.len(), Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(piece.clone())
    }))
    .into_response()
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    for (name, begin) in [("text", b"x" as &[u8]), ("JSON", b"[[["), ("lines", b"\n")] {
        sent.store(0, Ordering::Relaxed);
        let counted = sent.clone();
        let server = api(move |_, _| endless(begin, &counted));
        let cluster = cluster_of(&server);
        let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
        let error = nodes.list(&ListParams::default()).await.unwrap_err();
        let trouble = Cluster::trouble(&error);
        assert!(trouble.text().contains("sends too much"), "{name}: {}", trouble.text());
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < ANSWER_BYTES_MAX + ROOM, "{name}: {sent} bytes were taken");
    }
}

#[tokio::test]
async fn a_line_of_a_watch_without_end_is_cut_off_and_many_short_ones_are_not() {
    use futures::{StreamExt, TryStreamExt};
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let server = api(move |path, _| match path {
        "/api/v1/nodes" => endless(b"x", &counted),
        _ => {
            let node = r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod"}}"#;
            let line = Bytes::from(format!("{node}\n").repeat(1000));
            let lines = 2 * LINE_BYTES_MAX / line.len();
            let lines =
                stream::iter((0..lines).map(move |_| Ok::<_, std::io::Error>(line.clone())));
            Body::from_stream(lines).into_response()
        }
    });
    let client = cluster_of(&server).client().await.unwrap();
    let params = kube::api::WatchParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let mut watch = nodes.watch(&params, "0").await.unwrap().boxed();
    let error = watch.try_next().await.unwrap_err();
    assert!(Cluster::trouble(&error).text().contains("sends too much"), "{error}");
    assert!(sent.load(Ordering::Relaxed) < LINE_BYTES_MAX + ROOM);
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client);
    let watch = pods.watch(&params, "0").await.unwrap();
    let count = watch.try_fold(0, async |count, _| Ok(count + 1)).await.unwrap();
    assert!(count > 50_000, "{count}");
}

#[tokio::test]
async fn watches_that_end_at_once_are_begun_anew_at_a_bounded_rate() {
    let server = api(|_, _| ().into_response());
    let client = cluster_of(&server).client().await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let began = tokio::time::Instant::now();
    for _ in 0..12 {
        drop(nodes.watch(&kube::api::WatchParams::default(), "0").await.unwrap());
    }
    // Ten at once, the others a second apart.
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_plugin_that_hangs_has_no_second_one_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("plugin");
    let ran = dir.path().join("ran");
    fs::write(&plugin, format!("#!/bin/sh\necho x >> {}\nexec sleep 5\n", ran.display())).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("kubeconfig");
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, \
         interactiveMode: Never}}}}",
        plugin.display()
    );
    fs::write(&file, kubeconfig("http://127.0.0.1:1", &user)).unwrap();
    let cluster = at(&file);
    for _ in 0..3 {
        let asked = tokio::time::timeout(Duration::from_millis(300), cluster.client()).await;
        assert!(asked.is_err(), "it did not hang");
    }
    let ran = fs::read_to_string(&ran).unwrap_or_default();
    assert!(ran.lines().count() <= 1, "{} at once", ran.lines().count());
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    )
}

fn at(file: &Path) -> Cluster {
    let credentials = Credentials::Kubeconfig(vec![file.to_owned()]);
    Cluster::new(&NodeSettings { credentials, name: Some("n1".to_owned()) })
}

#[tokio::test]
async fn what_is_no_kubeconfig_is_named_with_its_file() {
    use nix::sys::stat::Mode;
    let bomb = (0..30).fold("a0: &a0 [x,x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [*a{n},*a{n},*a{n},*a{n}]\n", n + 1, n + 1)
    });
    let whole = kubeconfig("https://127.0.0.1:1", "{token: t}");
    let write = |text: String| move |at: &Path| fs::write(at, &text).unwrap();
    type Make = Box<dyn Fn(&Path)>;
    let cases: Vec<(&str, Make)> = vec![
        ("empty", Box::new(write(String::new()))),
        ("folder", Box::new(|at| fs::create_dir(at).unwrap())),
        ("pipe", Box::new(|at| nix::unistd::mkfifo(at, Mode::S_IRWXU).unwrap())),
        ("endless", Box::new(|at| symlink("/dev/zero", at).unwrap())),
        ("huge", Box::new(|at| fs::File::create(at).unwrap().set_len(1 << 40).unwrap())),
        ("bytes", Box::new(|at| fs::write(at, b"\xff\xfe\x00\xd8").unwrap())),
        ("NUL", Box::new(write("\0".repeat(100)))),
        ("text", Box::new(write(FORGED.to_owned()))),
        ("list", Box::new(write("- 1\n- 2\n".to_owned()))),
        ("types", Box::new(write(whole.replace("name: u", "name: [u]")))),
        ("bomb", Box::new(write(format!("{whole}{bomb}")))),
        ("deep", Box::new(write(format!("{whole}x: {}", "[".repeat(100_000))))),
        (
            "certificate",
            Box::new(write(
                whole.replace("token: t", "client-certificate-data: Zm9v, client-key-data: Zm9v"),
            )),
        ),
        (
            "base64",
            Box::new(write(
                whole.replace("token: t", "client-certificate-data: '***', client-key-data: '***'"),
            )),
        ),
        ("server", Box::new(write(whole.replace("https://127.0.0.1:1", "not a URL")))),
        (
            "plugin",
            Box::new(write(whole.replace(
                "token: t",
                "exec: {command: /nowhere/at/all, apiVersion: client.authentication.k8s.io/v1}",
            ))),
        ),
        (
            "plugin fails",
            Box::new(write(whole.replace(
                "token: t",
                "exec: {command: /bin/false, apiVersion: client.authentication.k8s.io/v1}",
            ))),
        ),
        ("token", Box::new(write(whole.replace("token: t", "tokenFile: /dev/zero")))),
        (
            "authority",
            Box::new(write(
                whole.replace("cluster: {", "cluster: {certificate-authority: /dev/zero, "),
            )),
        ),
    ];
    for (name, make) in cases {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubelet.conf");
        make(&file);
        let asked = tokio::time::timeout(Duration::from_secs(60), at(&file).client()).await;
        let trouble = asked.unwrap_or_else(|_| panic!("{name}: it hangs")).err();
        let Some(NodeTrouble::NoCredential(text)) = trouble else { panic!("{name}: {trouble:?}") };
        assert!(is_plain(&text), "{name}: {text:?}");
        let named = text.contains("kubelet.conf") || text.contains("/dev/zero");
        assert!(named, "{name}: {text}");
    }
}

/// JSON of a Kubernetes kind, more or less.
fn object() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "\"[ -~]{0,12}\"".prop_map(|text| text.replace('\\', "")),
        Just("\"x\\nLOCKKEEPER_TO=rebooting\\u001b[2J\"".to_owned()),
    ];
    let value = leaf.prop_recursive(4, 24, 4, |inner| {
        let key = proptest::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "name",
            "uid",
            "annotations",
            "spec",
            "status",
            "lockkeeper.dev/hold",
            "lockkeeper.dev/cordoned-by",
            "unschedulable",
            "conditions",
            "type",
            "reason",
            "message",
            "nodeInfo",
            "bootID",
            "items",
            "resourceVersion",
            "code",
            "details",
            "causes",
            "continue",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((key, inner), 0..5).prop_map(|fields| {
                let fields: Vec<String> =
                    fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    prop_oneof![
        4 => value.clone(),
        2 => value.clone().prop_map(|value| {
            format!(
                r#"{{"apiVersion":"v1","kind":"NodeList","metadata":{{"resourceVersion":"1"}},"items":[{value}]}}"#
            )
        }),
        2 => value.prop_map(|value| format!(r#"{{"kind":"Status","code":403,"message":{value}}}"#)),
        1 => "\\PC{0,60}",
        1 => Just("[".repeat(5000)),
    ]
}

#[test]
fn any_answer_of_an_api_server_is_an_object_or_trouble_with_plain_words() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let says = Arc::new(std::sync::Mutex::new((200_u16, String::new())));
    let told = says.clone();
    let server = api(move |_, _| {
        let (status, body) = told.lock().unwrap().clone();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        (status, [("content-type", "application/json")], body).into_response()
    });
    let cluster = cluster_of(&server);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let status = prop_oneof![2 => Just(200_u16), 1 => 200..600_u16];
    let asked = TestRunner::new(config).run(&(status, object()), |(status, body)| {
        *says.lock().unwrap() = (status, body.clone());
        runtime.block_on(async {
            let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
            let listed = cluster.bounded(nodes.list(&ListParams::default())).await;
            for node in listed.iter().flat_map(|list| &list.items) {
                let view = crate::signals::node::view(node);
                let texts = [view.mark, view.hold, view.not_ready_because];
                prop_assert!(texts.iter().flatten().all(|text| is_plain(text)), "{texts:?}");
            }
            if let Err(error) = listed {
                let trouble = cluster.explain(&error);
                prop_assert!(is_plain(trouble.text()), "{:?}", trouble.text());
            }
            let got = cluster.bounded(nodes.get("n1")).await;
            if let Err(error) = got {
                prop_assert!(is_plain(cluster.explain(&error).text()));
            }
            Ok(())
        })
    });
    asked.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_kubeconfig_is_used_or_named(
        at_byte: proptest::sample::Index,
        noise in proptest::collection::vec(any::<u8>(), 0..12),
        cut: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubelet.conf");
        let mut bytes = kubeconfig("http://127.0.0.1:1", "{token: t}").into_bytes();
        let place = at_byte.index(bytes.len());
        let rest = bytes.split_off(place);
        bytes.extend(&noise);
        if !cut {
            bytes.extend(rest);
        }
        fs::write(&file, bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match runtime.block_on(at(&file).client()) {
            Ok(_) => {}
            Err(trouble) => {
                let text = trouble.text();
                prop_assert!(text.contains("kubelet.conf") && is_plain(text), "{:?}", text);
            }
        }
    }
}
