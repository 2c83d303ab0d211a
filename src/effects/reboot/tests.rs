//! A real bus and a real private socket, with a daemon whose transactions end as they are told.

#![allow(clippy::unwrap_used, clippy::type_complexity)]

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use tokio::net::UnixListener;
use zbus::{Guid, Message, MessageStream, OwnedObjectPath, OwnedVariant, Variant};

use super::reboot;
use crate::lifecycle::RebootAnswer;
use crate::model::{AttemptId, BootId, Source, Target};
use crate::signals::bus::Host;
use crate::signals::bus::fake::{Answer, Fake, error, reply, value};
use crate::signals::bus::private::PrivateBus;
use crate::signals::rpm_ostree::NAME;

const DIGEST: &str = "sha256:77";
const BASE: &str = "ba5e";

/// How one transaction goes.
#[derive(Debug, Clone, Copy)]
enum Transaction {
    Finished(bool, &'static str),
    /// Its socket closes after Start.
    Closed,
    /// Nobody listens at its address.
    Deaf,
    /// There is none: the call itself fails.
    Refused(&'static str),
    /// Start fails.
    NotStarted,
}

#[derive(Debug, Default)]
struct Daemon {
    transactions: VecDeque<Transaction>,
    /// Checksums that were ordered.
    ordered: Vec<String>,
    nothing_staged: bool,
    busy: usize,
    lost: usize,
}

#[derive(Debug)]
struct Scene {
    bus: PrivateBus,
    root: tempfile::TempDir,
    daemon: Arc<Mutex<Daemon>>,
    _rpm_ostreed: Fake,
}

impl Scene {
    async fn new(transactions: &[Transaction]) -> Self {
        let bus = PrivateBus::start();
        let root = tempfile::tempdir().unwrap();
        let daemon = Arc::new(Mutex::new(Daemon {
            transactions: transactions.iter().copied().collect(),
            ..Daemon::default()
        }));
        let _rpm_ostreed = Fake::serve(&bus.bus(), NAME, {
            let (daemon, folder) = (daemon.clone(), root.path().to_owned());
            move |called, call| rpm_ostreed(&mut daemon.lock().unwrap(), &folder, called, call)
        })
        .await;
        Self { bus, root, daemon, _rpm_ostreed }
    }

    async fn logind(&self, going: bool) -> Fake {
        Fake::serve(&self.bus.bus(), "org.freedesktop.login1", move |called, call| match called {
            "Get:PreparingForShutdown" => value(call, going),
            "SetWallMessage" => reply(call, &()),
            _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
        })
        .await
    }

    async fn reboot(&self, identity: &str) -> RebootAnswer {
        let host = Host::new(self.bus.bus(), self.root.path());
        reboot(&host, &target(identity), &attempt(), "into 44.1").await
    }

    fn ordered(&self) -> Vec<String> {
        self.daemon.lock().unwrap().ordered.clone()
    }
}

fn target(identity: &str) -> Target {
    Target { source: Source::RpmOstree, identity: identity.to_owned(), version: None }
}

fn attempt() -> AttemptId {
    AttemptId::new(&BootId::parse("3f2a9c1e0b1c4d5e8f90a1b2c3d4e5f6").unwrap(), 1)
}

fn rpm_ostreed(daemon: &mut Daemon, folder: &Path, called: &str, call: &Message) -> Answer {
    if daemon.lost > 0 {
        daemon.lost -= 1;
        return error(call, "org.freedesktop.DBus.Error.NoReply", "it left");
    }
    match called {
        "RegisterClient" | "Reload" => reply(call, &()),
        "Get:ActiveTransaction" => {
            let method = if daemon.busy > 0 { "refresh-md" } else { "" };
            daemon.busy = daemon.busy.saturating_sub(1);
            value(call, Variant::new((method, "", "")))
        }
        "Get:Deployments" => {
            let mut list = vec![HashMap::from([
                ("checksum", Variant::from("run")),
                ("booted", Variant::from(true)),
            ])];
            if !daemon.nothing_staged {
                let staged = HashMap::from([
                    ("container-image-reference-digest", Variant::from(DIGEST)),
                    ("base-checksum", Variant::from(BASE)),
                    ("checksum", Variant::from("70b")),
                    ("staged", Variant::from(true)),
                ]);
                list.insert(0, staged);
            }
            value(call, Variant::new(list))
        }
        "Get:Booted" => value(call, OwnedObjectPath::try_from("/").unwrap()),
        "GetOS" => reply(call, &OwnedObjectPath::try_from("/os/fedora_coreos").unwrap()),
        "FinalizeDeployment" => finalize(daemon, folder, call),
        _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
    }
}

fn finalize(daemon: &mut Daemon, folder: &Path, call: &Message) -> Answer {
    assert_eq!(call.header().path().unwrap().as_str(), "/os/fedora_coreos");
    let body = call.body();
    let options: HashMap<String, OwnedVariant> = body.deserialize().unwrap();
    assert_eq!(*options["allow-unlocked"], Variant::from(true));
    daemon.ordered.push(String::try_from(&*options["checksum"]).unwrap());
    let script = daemon.transactions.pop_front().unwrap();
    if let Transaction::Refused(text) = script {
        return error(call, "org.projectatomic.rpmostreed.Error.Failed", text);
    }
    let path = folder.join(format!("transaction-{}", daemon.ordered.len()));
    if !matches!(script, Transaction::Deaf) {
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(transaction(listener, script));
    }
    reply(call, &format!("unix:path={}", path.display()))
}

async fn transaction(listener: UnixListener, script: Transaction) {
    let (stream, _) = listener.accept().await.unwrap();
    let stream = stream.into_std().unwrap();
    let connection = zbus::connection::Builder::unix_stream(stream)
        .server(Guid::generate())
        .p2p()
        .build()
        .await
        .unwrap();
    let mut messages = MessageStream::from(connection.clone());
    while let Some(Ok(call)) = messages.next().await {
        let header = call.header();
        assert_eq!(header.member().unwrap().as_str(), "Start");
        let interface = "org.projectatomic.rpmostree1.Transaction";
        match script {
            Transaction::Finished(well, text) => {
                // Even before the answer to Start: it must not be missed.
                let nobody = None::<&str>;
                let finished = (well, text);
                connection
                    .emit_signal(nobody, "/", interface, "Finished", &finished)
                    .await
                    .unwrap();
                connection.reply(&header, &true).await.unwrap();
            }
            Transaction::NotStarted => {
                let name = "org.freedesktop.DBus.Error.Failed";
                connection.reply_error(&header, name, &"no").await.unwrap();
            }
            Transaction::Closed | Transaction::Deaf | Transaction::Refused(_) => {
                connection.close().await.unwrap();
                return;
            }
        }
    }
}

fn kind(answer: &RebootAnswer) -> (&'static str, &str) {
    match answer {
        RebootAnswer::Accepted => ("accepted", ""),
        RebootAnswer::Refused(why) => ("refused", why),
        RebootAnswer::Unknown(why) => ("unknown", why),
    }
}

#[tokio::test]
async fn every_end_of_a_transaction_has_its_meaning() {
    use Transaction::{Closed, Deaf, Finished, NotStarted, Refused};
    let other_name = Finished(false, "Expected staged base checksum sha256:77, but found ba5e");
    let stranger = Finished(false, "Expected staged base checksum sha256:77, but found other");
    let blocked = "Reboot blocked by a systemd inhibitor lock in `block` mode\nHeld by: backup";
    let table: [(&[Transaction], (&str, &str), &[&str]); 14] = [
        (&[Finished(true, "")], ("accepted", ""), &[DIGEST]),
        (&[other_name, Finished(true, "")], ("accepted", ""), &[DIGEST, BASE]),
        (&[other_name, other_name], ("refused", "but found ba5e"), &[DIGEST, BASE]),
        (&[stranger], ("refused", "but found other"), &[DIGEST]),
        (&[Finished(false, blocked)], ("refused", "Held by: backup"), &[DIGEST]),
        (
            &[Finished(false, "No pending staged deployment found")],
            ("refused", "No pending"),
            &[DIGEST],
        ),
        (
            &[Finished(false, "Staged deployment already unlocked")],
            ("refused", "already unlocked"),
            &[DIGEST],
        ),
        // It may have unlocked the deployment by then.
        (&[Finished(false, "systemctl reboot: failed")], ("unknown", "systemctl"), &[DIGEST]),
        (&[Closed], ("unknown", ""), &[DIGEST]),
        (&[NotStarted], ("unknown", "Start"), &[DIGEST]),
        // Never started: nothing has happened.
        (&[Deaf], ("refused", "the transaction"), &[DIGEST]),
        (
            &[Refused("Transaction in progress: upgrade"), Finished(true, "")],
            ("accepted", ""),
            &[DIGEST, DIGEST],
        ),
        // An earlier order of ours may still be carried out.
        (
            &[Refused("Reboot initiated, cannot start new transaction")],
            ("unknown", "Reboot initiated"),
            &[DIGEST],
        ),
        (&[Refused("not allowed")], ("refused", "not allowed"), &[DIGEST]),
    ];
    for (transactions, (answer, why), ordered) in table {
        let scene = Scene::new(transactions).await;
        let logind = scene.logind(false).await;
        let found = scene.reboot(DIGEST).await;
        let found = kind(&found);
        assert_eq!(found.0, answer, "{transactions:?}: {found:?}");
        assert!(found.1.contains(why), "{transactions:?}: {found:?}");
        assert_eq!(scene.ordered(), ordered, "{transactions:?}");
        // Set before, and taken back unless the host goes down.
        let messages = if answer == "accepted" { 1 } else { 2 };
        assert_eq!(logind.count("SetWallMessage"), messages, "{transactions:?}");
    }
}

#[tokio::test]
async fn what_is_not_as_ordered_is_never_finalized() {
    let scene = Scene::new(&[]).await;
    // logind does not answer.
    assert_eq!(kind(&scene.reboot(DIGEST).await).0, "refused");
    let _logind = scene.logind(false).await;
    let answer = scene.reboot("sha256:88").await;
    assert_eq!(answer, RebootAnswer::Refused("sha256:77 is staged, not sha256:88".to_owned()));
    // Its other names are no identity.
    assert_eq!(kind(&scene.reboot(BASE).await).0, "refused");

    let lock: PathBuf = scene.root.path().join("run/ostree/staged-deployment-locked");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    assert!(kind(&scene.reboot(DIGEST).await).1.contains("would drop the update"));
    std::fs::remove_file(&lock).unwrap();

    scene.daemon.lock().unwrap().nothing_staged = true;
    let answer = scene.reboot(DIGEST).await;
    assert_eq!(answer, RebootAnswer::Refused("no deployment is staged".to_owned()));
    assert!(scene.ordered().is_empty());
}

#[tokio::test]
async fn a_host_that_goes_down_is_left_alone() {
    let scene = Scene::new(&[]).await;
    let _logind = scene.logind(true).await;
    assert_eq!(scene.reboot(DIGEST).await, RebootAnswer::Accepted);
    assert!(scene.ordered().is_empty());
}

#[tokio::test]
async fn lost_replies_and_other_transactions_are_waited_out() {
    let scene = Scene::new(&[Transaction::Finished(true, "")]).await;
    let _logind = scene.logind(false).await;
    (scene.daemon.lock().unwrap().lost, scene.daemon.lock().unwrap().busy) = (2, 2);
    assert_eq!(scene.reboot(DIGEST).await, RebootAnswer::Accepted);
}

/// A logind and a systemd of some version, and how the flags of reboots are answered.
async fn by_logind(
    version: &'static str,
    mode: &'static str,
    refuse: fn(u64) -> Option<&'static str>,
) -> (RebootAnswer, Vec<u64>) {
    let bus = PrivateBus::start();
    let flags: Arc<Mutex<Vec<u64>>> = Arc::default();
    let _systemd = Fake::serve(&bus.bus(), "org.freedesktop.systemd1", move |called, call| {
        assert_eq!(called, "Get:Version");
        value(call, version)
    })
    .await;
    let _logind = Fake::serve(&bus.bus(), "org.freedesktop.login1", {
        let flags = flags.clone();
        move |called, call| match called {
            "Get:PreparingForShutdown" => value(call, false),
            "SetWallMessage" => reply(call, &()),
            "ListInhibitors" => {
                reply(call, &vec![("shutdown", "backup", "nightly", mode, 0u32, 1u32)])
            }
            "RebootWithFlags" => {
                let body = call.body();
                let given: u64 = body.deserialize().unwrap();
                flags.lock().unwrap().push(given);
                match refuse(given) {
                    Some(name) => error(call, name, "no"),
                    None => reply(call, &()),
                }
            }
            _ => error(call, "org.freedesktop.DBus.Error.UnknownMethod", called),
        }
    })
    .await;
    let target = Target { source: Source::Sentinel, ..target("sentinel:/run/reboot-required") };
    let host = Host::new(bus.bus(), "/nowhere");
    let answer = reboot(&host, &target, &attempt(), "because").await;
    let flags = flags.lock().unwrap().clone();
    (answer, flags)
}

#[tokio::test]
async fn logind_is_asked_as_its_version_wants() {
    let never = |_: u64| None;
    let odd = |flags| (flags != 0).then_some("org.freedesktop.DBus.Error.InvalidArgs");
    let blocked = |_: u64| Some("org.freedesktop.login1.BlockedByInhibitorLock");
    let running = |_: u64| Some("org.freedesktop.login1.OperationInProgress");
    let lost = |_: u64| Some("org.freedesktop.DBus.Error.NoReply");
    for (version, expected) in [
        ("252.38-1~deb12u1", vec![1]),
        ("256", vec![1]),
        ("257.4-3.fc42", vec![0]),
        ("258~rc1", vec![0]),
        ("unknown", vec![1]),
    ] {
        let answer = by_logind(version, "delay", never).await;
        assert_eq!(answer, (RebootAnswer::Accepted, expected));
    }
    let answer = by_logind("252", "delay", odd).await;
    assert_eq!(answer, (RebootAnswer::Accepted, vec![1, 0]));
    let (answer, flags) = by_logind("252", "block", odd).await;
    assert_eq!((kind(&answer).0, flags), ("refused", vec![1]));
    assert_eq!(by_logind("252", "delay", running).await.0, RebootAnswer::Accepted);
    assert_eq!(kind(&by_logind("257", "delay", lost).await.0).0, "unknown");
    let (answer, _) = by_logind("257", "block", blocked).await;
    assert_eq!(kind(&answer), ("refused", "blocked by an inhibitor lock: backup (nightly)"));
}
