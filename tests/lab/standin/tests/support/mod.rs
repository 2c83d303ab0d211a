//! A host in a folder: a private bus that activates the daemon, and a `systemctl` that writes.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use zbus::message::{Message, Type};
use zbus::wire::{OwnedVariant, Variant};
use zbus::{Connection, MessageStream};

pub const NAME: &str = "org.projectatomic.rpmostree1";
pub const SYSROOT_PATH: &str = "/org/projectatomic/rpmostree1/Sysroot";
pub const SYSROOT: &str = "org.projectatomic.rpmostree1.Sysroot";
pub const OS_PATH: &str = "/org/projectatomic/rpmostree1/fedora_coreos";
pub const OS: &str = "org.projectatomic.rpmostree1.OS";
pub const TRANSACTION: &str = "org.projectatomic.rpmostree1.Transaction";
/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Host {
    folder: tempfile::TempDir,
    bus: Option<Child>,
}

impl Host {
    /// A fresh root with 40.1 booted, and no bus.
    pub fn new() -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap(), bus: None };
        fs::create_dir_all(host.path("root/usr/lib")).unwrap();
        fs::write(
            host.path("root/usr/lib/os-release"),
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION=\"12 (bookworm)\"\n",
        )
        .unwrap();
        fs::create_dir_all(host.path("root/proc/sys/kernel/random")).unwrap();
        let script =
            format!("#!/bin/sh\necho \"$@\" >> {}\n", host.path("systemctl.log").display());
        fs::write(host.path("systemctl"), script).unwrap();
        fs::set_permissions(host.path("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(host.path("bin")).unwrap();
        for name in ["rpm-ostreed", "rpm-ostree", "ostree", "standin"] {
            symlink(env!("CARGO_BIN_EXE_standin"), host.path("bin").join(name)).unwrap();
        }
        host.run("standin", &["init", "40.1"]);
        host.boot("boot-1");
        host
    }

    /// The same with a bus that activates the daemon.
    pub fn with_bus() -> Self {
        let mut host = Self::new();
        host.start_bus();
        host
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub fn root(&self, relative: &str) -> PathBuf {
        self.path("root").join(relative)
    }

    pub fn address(&self) -> String {
        format!("unix:path={}", self.path("bus").display())
    }

    fn start_bus(&mut self) {
        let services = self.path("services");
        fs::create_dir(&services).unwrap();
        fs::write(
            services.join(format!("{NAME}.service")),
            format!(
                "[D-BUS Service]\nName={NAME}\nExec={}\n",
                self.path("bin/rpm-ostreed").display()
            ),
        )
        .unwrap();
        fs::write(
            self.path("bus.conf"),
            format!(
                "<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth>\
                 <servicedir>{}</servicedir><policy context=\"default\"><allow send_destination=\"*\"/>\
                 <allow eavesdrop=\"false\"/><allow own=\"*\"/></policy></busconfig>",
                self.address(),
                services.display()
            ),
        )
        .unwrap();
        let mut command = Command::new("dbus-daemon");
        command.arg("--nofork").arg("--nopidfile").arg("--config-file").arg(self.path("bus.conf"));
        self.environment(&mut command);
        let log = fs::File::create(self.path("bus.log")).unwrap();
        command.arg("--print-address").stderr(log).stdout(Stdio::piped());
        let mut bus = command.spawn().expect("dbus-daemon (package dbus) is needed");
        // The address is printed when the bus listens; nothing, when it dies.
        let mut line = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.bus = Some(bus);
        assert!(line.starts_with("unix:"), "the bus did not come up: {line:?}");
    }

    pub fn environment(&self, command: &mut Command) {
        command
            .env("STANDIN_ROOT", self.path("root"))
            .env("STANDIN_SYSTEMCTL", self.path("systemctl"))
            .env("DBUS_SYSTEM_BUS_ADDRESS", self.address())
            .env_remove("NOTIFY_SOCKET");
    }

    pub fn try_run(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.path("bin").join(name));
        self.environment(&mut command);
        command.args(arguments).output().unwrap()
    }

    /// Runs one of our commands that must succeed; gives its output.
    pub fn run(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.try_run(name, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs one of our commands that must fail; gives what it said.
    pub fn fail(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.try_run(name, arguments);
        assert!(!output.status.success(), "{name} {arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A new boot: /run is empty, the boot id is new.
    pub fn boot(&self, boot_id: &str) {
        let run = self.root("run");
        if run.exists() {
            fs::remove_dir_all(&run).unwrap();
        }
        fs::create_dir_all(&run).unwrap();
        fs::write(self.root("proc/sys/kernel/random/boot_id"), format!("{boot_id}\n")).unwrap();
        self.run("standin", &["boot-select"]);
    }

    /// `standin status --json`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run("standin", &["status", "--json"])).unwrap()
    }

    /// The versions of all deployments in order, `*` at the booted one.
    pub fn versions(&self) -> Vec<String> {
        self.status()["deployments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| {
                let version = each["version"].as_str().unwrap();
                let mark = if each["booted"] == true { "*" } else { "" };
                let staged = if each["staged"] == true { "+" } else { "" };
                format!("{mark}{staged}{version}")
            })
            .collect()
    }

    /// What was asked of systemctl so far.
    pub fn systemctl(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("systemctl.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub async fn connect(&self) -> Client {
        let bus = zbus::connection::Builder::address(self.address().as_str())
            .method_timeout(PATIENCE)
            .build()
            .await
            .unwrap();
        Client { bus }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut bus) = self.bus.take() {
            let _ = bus.kill();
            let _ = bus.wait();
        }
        // A test that failed may have left the full /boot, which keeps the folder from going.
        let umount = Command::new("umount").arg(self.root("boot")).stderr(Stdio::null()).status();
        drop(umount);
    }
}

/// A client of the daemon.
#[derive(Debug)]
pub struct Client {
    pub bus: Connection,
}

impl Client {
    pub async fn get(&self, path: &str, interface: &str, name: &str) -> zbus::Result<OwnedVariant> {
        let properties = Some("org.freedesktop.DBus.Properties");
        let reply =
            self.bus.call_method(Some(NAME), path, properties, "Get", &(interface, name)).await?;
        reply.body().deserialize()
    }

    pub async fn deployments(&self) -> Vec<HashMap<String, OwnedVariant>> {
        let value = self.get(SYSROOT_PATH, SYSROOT, "Deployments").await.unwrap();
        Vec::<HashMap<String, OwnedVariant>>::try_from(value).unwrap()
    }

    pub async fn active_method(&self) -> String {
        let value = self.get(SYSROOT_PATH, SYSROOT, "ActiveTransaction").await.unwrap();
        let structure = zbus::wire::Structure::try_from(value).unwrap();
        <(String, String, String)>::try_from(structure).unwrap().0
    }

    /// A method of the OS object that answers the address of a transaction.
    pub async fn order<B>(&self, method: &str, body: &B) -> zbus::Result<String>
    where
        B: serde::Serialize + zbus::wire::DynamicType,
    {
        let reply = self.bus.call_method(Some(NAME), OS_PATH, Some(OS), method, body).await?;
        reply.body().deserialize()
    }

    pub async fn finalize(&self, options: &Options) -> zbus::Result<String> {
        self.order("FinalizeDeployment", options).await
    }

    /// Starts the transaction of FinalizeDeployment, waits for its end and until it is gone:
    /// an order before that finds it still in progress.
    pub async fn finalized(&self, options: &Options) -> (bool, String) {
        let mut signals = self.signals().await;
        let mut peer = Peer::connect(&self.finalize(options).await.unwrap()).await;
        peer.start().await.unwrap();
        let finished = peer.finished().await.expect("no Finished");
        drop(peer);
        while !self.active_method().await.is_empty() {
            next(&mut signals, changed).await.expect("the bus is gone");
        }
        finished
    }

    pub async fn owner(&self) -> Option<String> {
        let reply = self
            .bus
            .call_method(
                Some("org.freedesktop.DBus"),
                "/org/freedesktop/DBus",
                Some("org.freedesktop.DBus"),
                "GetNameOwner",
                &NAME,
            )
            .await
            .ok()?;
        reply.body().deserialize().ok()
    }

    /// All signals of the daemon and of its name from now on.
    pub async fn signals(&self) -> MessageStream {
        let proxy = zbus::fdo::DBusProxy::new(&self.bus).await.unwrap();
        for rule in [
            "type='signal',path_namespace='/org/projectatomic/rpmostree1'".to_owned(),
            format!("type='signal',member='NameOwnerChanged',arg0='{NAME}'"),
        ] {
            let rule = zbus::MatchRule::try_from(rule.as_str()).unwrap();
            proxy.add_match_rule(rule).await.unwrap();
        }
        MessageStream::from(&self.bus)
    }
}

pub type Options = HashMap<&'static str, Variant<'static>>;

pub fn options(checksum: Option<&str>, flags: &[&'static str]) -> Options {
    let mut options: Options = flags.iter().map(|flag| (*flag, Variant::from(true))).collect();
    if let Some(checksum) = checksum {
        options.insert("checksum", Variant::from(checksum.to_owned()));
    }
    options
}

/// The next message of a stream that `wanted` takes.
pub async fn next<T>(
    stream: &mut MessageStream,
    mut wanted: impl FnMut(&Message) -> Option<T>,
) -> Option<T> {
    let found = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Some(value) = wanted(&message) {
                return Some(value);
            }
        }
        None
    };
    tokio::time::timeout(PATIENCE, found).await.expect("waited too long")
}

/// Interface and names of a PropertiesChanged.
pub fn changed(message: &Message) -> Option<(String, Vec<String>)> {
    let header = message.header();
    if message.message_type() != Type::Signal || header.member()?.as_str() != "PropertiesChanged" {
        return None;
    }
    let body = message.body();
    let (interface, values, _): (String, HashMap<String, OwnedVariant>, Vec<String>) =
        body.deserialize().unwrap();
    let mut names: Vec<String> = values.into_keys().collect();
    names.sort();
    Some((interface, names))
}

/// The new owner of the daemon's name.
pub fn owner_changed(message: &Message) -> Option<String> {
    let header = message.header();
    if message.message_type() != Type::Signal || header.member()?.as_str() != "NameOwnerChanged" {
        return None;
    }
    let (name, _, now): (String, String, String) = message.body().deserialize().unwrap();
    (name == NAME).then_some(now)
}

/// A connection to a transaction.
#[derive(Debug)]
pub struct Peer {
    pub connection: Connection,
    pub messages: MessageStream,
}

impl Peer {
    pub async fn connect(address: &str) -> Self {
        let connection = zbus::connection::Builder::address(address)
            .p2p()
            .method_timeout(PATIENCE)
            .build()
            .await
            .unwrap();
        let messages = MessageStream::from(&connection);
        Self { connection, messages }
    }

    pub async fn start(&self) -> zbus::Result<bool> {
        let nobody = None::<zbus::names::BusName<'_>>;
        let reply =
            self.connection.call_method(nobody, "/", Some(TRANSACTION), "Start", &()).await?;
        reply.body().deserialize()
    }

    /// Waits for Finished; `None` when the connection ends without it.
    pub async fn finished(&mut self) -> Option<(bool, String)> {
        next(&mut self.messages, |message| {
            let header = message.header();
            (header.member()?.as_str() == "Finished").then(|| message.body().deserialize().unwrap())
        })
        .await
    }
}

pub fn text(table: &HashMap<String, OwnedVariant>, key: &str) -> Option<String> {
    String::try_from(table.get(key)?.try_clone().ok()?).ok()
}

pub fn flag(table: &HashMap<String, OwnedVariant>, key: &str) -> Option<bool> {
    bool::try_from(table.get(key)?.try_clone().ok()?).ok()
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The text of a method error.
pub fn error_text(error: zbus::Error) -> String {
    match error {
        zbus::Error::MethodError(name, text, _) => {
            format!("{name}: {}", text.unwrap_or_default())
        }
        zbus::Error::FDO(error) => error.to_string(),
        other => panic!("not a method error: {other}"),
    }
}
