//! Bare watchers: of objects at the API server, and of rpm-ostree's signals on a host's bus.

use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::server::now;

/// How long anything may take that should come by itself.
const PATIENCE: Duration = Duration::from_secs(180);

/// Something that was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Microseconds since the epoch.
    pub at: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`; of a signal its path.
    pub kind: String,
    /// The object; of a signal its message.
    pub object: Value,
}

/// What was seen so far, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<(Mutex<Vec<Seen>>, Condvar)>);

/// A monitor of a host's bus; ends when it is dropped.
#[derive(Debug)]
pub struct Signals {
    child: Child,
    /// What it saw.
    pub log: Log,
}

// === impl Log ===

impl Log {
    fn push(&self, kind: &str, object: Value) {
        self.push_at(now(), kind, object);
    }

    fn push_at(&self, at: u64, kind: &str, object: Value) {
        let seen = Seen { at, kind: kind.to_owned(), object };
        self.0.0.lock().unwrap().push(seen);
        self.0.1.notify_all();
    }

    /// Everything since then.
    pub fn since(&self, since: u64) -> Vec<Seen> {
        self.0.0.lock().unwrap().iter().filter(|seen| seen.at >= since).cloned().collect()
    }

    /// The first one since then that is so.
    pub fn first(&self, what: &str, since: u64, is: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + PATIENCE;
        let mut all = self.0.0.lock().unwrap();
        loop {
            if let Some(found) = all.iter().find(|seen| seen.at >= since && is(seen)) {
                return found.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "in vain: {what}");
            all = self.0.1.wait_timeout(all, left).unwrap().0;
        }
    }
}

/// Watches all objects of a kind as the administrator, from now on and for as long as the process
/// lives.
pub fn objects<K>(folder: &Path, api: fn(kube::Client) -> Api<K>) -> Log
where
    K: Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let log = Log::default();
    let (file, mine) = (folder.join("admin.kubeconfig"), log.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let config = Kubeconfig::read_from(file).unwrap();
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
            let api = api(kube::Client::try_from(config).unwrap());
            loop {
                // The server ends a watch after some minutes; what is there is then told again.
                let parameters = WatchParams::default().timeout(290);
                let Ok(events) = api.watch(&parameters, "0").await else {
                    // Sleeps: a server that is away tells nobody when it is back.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let read = events.try_for_each(|event| {
                    let (kind, object) = match &event {
                        WatchEvent::Added(object) => ("ADDED", serde_json::to_value(object)),
                        WatchEvent::Modified(object) => ("MODIFIED", serde_json::to_value(object)),
                        WatchEvent::Deleted(object) => ("DELETED", serde_json::to_value(object)),
                        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => ("", Ok(Value::Null)),
                    };
                    mine.push(kind, object.unwrap());
                    std::future::ready(Ok(()))
                });
                drop(read.await);
            }
        });
    });
    log
}

// === impl Signals ===

impl Signals {
    /// Watches rpm-ostree's changes of properties on the bus of a host.
    pub fn of_rpm_ostree(host: &str) -> Self {
        let rule = "type='signal',interface='org.freedesktop.DBus.Properties',\
                    path_namespace='/org/projectatomic/rpmostree1'";
        let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab"))
            .args([
                "exec",
                host,
                "stdbuf",
                "-oL",
                "busctl",
                "--system",
                "--match",
                rule,
                "--json=short",
                "monitor",
            ])
            .env("LAB_EXEC_SECONDS", "7200")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tests/lab/lab runs");
        // What is told before it listens would be missed.
        let mut says = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(says.any(|line| line.contains("Monitoring bus")), "no monitor of the host's bus");
        std::thread::spawn(move || says.for_each(drop));
        let log = Log::default();
        let (lines, mine) = (BufReader::new(child.stdout.take().unwrap()).lines(), log.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str::<Value>(&line) {
                    let path = message["path"].as_str().unwrap_or_default().to_owned();
                    let at = message["timestamp-realtime"].as_u64().unwrap_or_else(now);
                    mine.push_at(at, &path, message);
                }
            }
        });
        Self { child, log }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
