//! A host in a folder: the stand-in below it, a private bus, and a small logind and systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lockkeeper::signals::bus::{Bus, Host};
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedObjectPath, interface};

pub(crate) const BOOT_ID: &str = "3f2a9c1e-0b1c-4d5e-8f90-a1b2c3d4e5f6";
const SYSROOT: &str = "org.projectatomic.rpmostree1.Sysroot";
const NAME: &str = "org.projectatomic.rpmostree1";

/// What the small services say.
#[derive(Debug, Default)]
struct Said {
    preparing: bool,
    inhibitors: Vec<(String, String, String, String, u32, u32)>,
    job: Option<&'static str>,
    failed: Vec<String>,
    files: Vec<String>,
    restarts: usize,
}

pub(crate) struct Place {
    pub(crate) host: Host,
    folder: tempfile::TempDir,
    said: Arc<Mutex<Said>>,
    services: Connection,
    bus: Child,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for sub in ["usr/lib", "usr/bin", "proc/sys/kernel/random", "run", "boot"] {
            fs::create_dir_all(root.join(sub)).unwrap();
        }
        fs::write(root.join("usr/lib/os-release"), "ID=debian\nPRETTY_NAME=\"x\"\n").unwrap();
        fs::write(root.join("proc/sys/kernel/random/boot_id"), format!("{BOOT_ID}\n")).unwrap();
        let binary = standin();
        let line = |name: &str| {
            let (binary, root) = (binary.display(), root.display());
            format!("#!/bin/sh\nexec {binary} --root {root} {name} \"$@\"\n")
        };
        script(&root.join("usr/bin/ostree"), &line("ostree"));
        script(
            &root.join("usr/bin/journalctl"),
            "#!/bin/sh\nprintf 'error: During /etc merge:\\n\\tNot a directory\\n'\n",
        );
        script(&folder.path().join("rpm-ostreed"), &line("rpm-ostreed"));
        let log = folder.path().join("systemctl.log");
        script(
            &folder.path().join("systemctl"),
            &format!("#!/bin/sh\necho \"$@\" >> {}\n", log.display()),
        );
        let bus = start_bus(folder.path());
        let address = format!("unix:path={}", folder.path().join("bus").display());
        let said: Arc<Mutex<Said>> = Arc::default();
        let services = zbus::connection::Builder::address(address.as_str())
            .name("org.freedesktop.login1")
            .name("org.freedesktop.systemd1")
            .serve_at("/org/freedesktop/login1", Logind(said.clone()))
            .serve_at("/org/freedesktop/systemd1", Systemd(said.clone()))
            .serve_at("/well", Unit("active"))
            .serve_at("/failed", Unit("failed"))
            .build()
            .await
            .unwrap();
        let host = Host::new(Bus::At(address), &root);
        let place = Self { host, folder, said, services, bus };
        place.standin(&["init", "40.1"]);
        place.standin(&["boot-select"]);
        place
    }

    /// Runs a command of the stand-in that must succeed; what it said.
    pub(crate) fn standin(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(standin());
        command.env("STANDIN_ROOT", self.folder.path().join("root"));
        environment(&mut command, self.folder.path());
        let output = command.args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether the staged deployment is locked, by ostree's own word.
    pub(crate) fn is_locked(&self) -> Option<bool> {
        let status = self.standin(&["ostree", "admin", "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let deployments = status["deployments"].as_array().unwrap();
        let staged = deployments.iter().find(|one| one["staged"] == true)?;
        staged["finalization-locked"].as_bool()
    }

    pub(crate) fn systemctl_lines(&self, wanted: &str) -> usize {
        let log = self.folder.path().join("systemctl.log");
        let text = fs::read_to_string(log).unwrap_or_default();
        text.lines().filter(|line| *line == wanted).count()
    }

    pub(crate) async fn wait_for_systemctl(&self, wanted: &str) {
        self.wait(async || self.systemctl_lines(wanted) > 0).await;
    }

    pub(crate) async fn daemon_is_there(&self) -> bool {
        has_owner(&self.services).await
    }

    pub(crate) async fn wait_until_daemon_is_away(&self) {
        self.wait(async || !self.daemon_is_there().await).await;
    }

    async fn wait(&self, mut done: impl AsyncFnMut() -> bool) {
        for _ in 0..600 {
            if done().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited too long");
    }

    /// Connections to the bus, and whatever else it has open.
    pub(crate) fn open_at_the_bus(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.bus.id())).unwrap().count()
    }

    /// Waits until no more than this is open there: it notices that one has gone in its own time.
    pub(crate) async fn wait_until_open_at_the_bus(&self, most: usize) {
        self.wait(async || self.open_at_the_bus() <= most).await;
    }

    pub(crate) fn restarts(&self) -> usize {
        self.said.lock().unwrap().restarts
    }

    pub(crate) fn prepare_for_shutdown(&self, preparing: bool) {
        self.said.lock().unwrap().preparing = preparing;
    }

    pub(crate) fn queue_job(&self, unit: Option<&'static str>) {
        self.said.lock().unwrap().job = unit;
    }

    pub(crate) fn block(&self, who: &str, why: &str) {
        let text = |text: &str| text.to_owned();
        let row = (text("shutdown"), text(who), text(why), text("block"), 0, 1);
        self.said.lock().unwrap().inhibitors.push(row);
    }

    pub(crate) fn unblock(&self) {
        self.said.lock().unwrap().inhibitors.clear();
    }

    pub(crate) fn fail_unit(&self, unit: &str) {
        self.said.lock().unwrap().failed.push(unit.to_owned());
    }

    /// From now on nobody has systemd's name on the bus, or it is back.
    pub(crate) async fn systemd_answers(&self, answers: bool) {
        let name = "org.freedesktop.systemd1";
        if answers {
            self.services.request_name(name).await.unwrap();
        } else {
            self.services.release_name(name).await.unwrap();
        }
    }

    pub(crate) fn add_unit_file(&self, file: &str) {
        self.said.lock().unwrap().files.push(file.to_owned());
    }

    /// Whether the daemon is in a transaction.
    pub(crate) async fn is_busy(&self) -> bool {
        let (path, interface) = ("/org/projectatomic/rpmostree1/Sysroot", SYSROOT);
        let name = (interface, "ActiveTransactionPath");
        let properties = Some("org.freedesktop.DBus.Properties");
        let answer = self.services.call_method(Some(NAME), path, properties, "Get", &name).await;
        let Ok(answer) = answer else { return false };
        let value: zbus::wire::OwnedVariant = answer.body().deserialize().unwrap();
        !String::try_from(value).unwrap().is_empty()
    }

    /// From now on ostree takes a second, in which the transaction that is under way ends.
    pub(crate) fn end_transactions_when_called(&self) {
        let (binary, root) = (standin().display(), self.folder.path().join("root"));
        let standin = format!("{binary} --root {}", root.display());
        let text = format!(
            "#!/bin/sh\n{standin} fault clear || exit\nsleep 1\nexec {standin} ostree \"$@\"\n"
        );
        script(&self.host.path("/usr/bin/ostree"), &text);
    }

    /// From now on ostree fails.
    pub(crate) fn break_ostree(&self) {
        script(&self.host.path("/usr/bin/ostree"), "#!/bin/sh\necho no space >&2\nexit 1\n");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The daemon ends with its bus.
        let _ = self.bus.kill();
        let _ = self.bus.wait();
    }
}

/// The stand-in's binary, built once.
fn standin() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "standin", "--manifest-path"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .status()
            .unwrap();
        assert!(built.success(), "the stand-in does not build");
        let tests = std::env::current_exe().unwrap();
        // target/PROFILE/deps/TEST
        let target = tests.ancestors().nth(3).unwrap();
        let binary = target.join("debug/standin");
        assert!(binary.exists(), "{} is missing", binary.display());
        binary
    })
}

fn script(path: &Path, text: &str) {
    // Written beside it and renamed: a file that is open for writing cannot be executed.
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, path).unwrap();
}

fn environment(command: &mut Command, folder: &Path) {
    command
        .env("STANDIN_SYSTEMCTL", folder.join("systemctl"))
        .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", folder.join("bus").display()))
        .env_remove("NOTIFY_SOCKET");
}

/// A bus that starts the daemon when it is called.
fn start_bus(folder: &Path) -> Child {
    let services = folder.join("services");
    fs::create_dir(&services).unwrap();
    let daemon = folder.join("rpm-ostreed");
    fs::write(
        services.join(format!("{NAME}.service")),
        format!("[D-BUS Service]\nName={NAME}\nExec={}\n", daemon.display()),
    )
    .unwrap();
    let config = folder.join("bus.conf");
    fs::write(
        &config,
        format!(
            "<busconfig><type>session</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <servicedir>{}</servicedir><policy context=\"default\">\
             <allow send_destination=\"*\"/><allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>",
            folder.join("bus").display(),
            services.display()
        ),
    )
    .unwrap();
    let mut command = Command::new("dbus-daemon");
    command.args(["--nofork", "--nopidfile", "--config-file"]).arg(config);
    environment(&mut command, folder);
    let bus = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need dbus-daemon (package dbus)");
    for _ in 0..1000 {
        // The socket is there before anybody listens at it.
        if std::os::unix::net::UnixStream::connect(folder.join("bus")).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Where it did not come up, connecting says so.
    bus
}

async fn ask_bus<R>(connection: &Connection, method: &str) -> zbus::Result<R>
where
    R: serde::de::DeserializeOwned + zbus::Type,
{
    let name = "org.freedesktop.DBus";
    let reply = connection
        .call_method(Some(name), "/org/freedesktop/DBus", Some(name), method, &NAME)
        .await?;
    reply.body().deserialize()
}

async fn has_owner(connection: &Connection) -> bool {
    ask_bus(connection, "NameHasOwner").await.unwrap()
}

struct Logind(Arc<Mutex<Said>>);

#[interface(name = "org.freedesktop.login1.Manager")]
impl Logind {
    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.0.lock().unwrap().preparing
    }

    fn list_inhibitors(&self) -> Vec<(String, String, String, String, u32, u32)> {
        self.0.lock().unwrap().inhibitors.clone()
    }

    fn set_wall_message(&self, message: &str, _enable: bool) {
        assert!(message.is_empty() || message.contains("lockkeeper"));
    }
}

type JobRow = (u32, String, String, String, OwnedObjectPath, OwnedObjectPath);

struct Systemd(Arc<Mutex<Said>>);

fn path(text: &str) -> OwnedObjectPath {
    OwnedObjectPath::try_from(text.to_owned()).unwrap()
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    #[zbus(property)]
    fn soft_reboots_count(&self) -> u32 {
        2
    }

    fn subscribe(&self) {}

    /// As where the bus itself starts the daemon.
    fn start_unit(&self, name: &str, _mode: &str) -> zbus::fdo::Result<OwnedObjectPath> {
        Err(zbus::fdo::Error::Failed(format!("unit {name} is not known")))
    }

    async fn restart_unit(
        &self,
        name: &str,
        _mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> OwnedObjectPath {
        assert_eq!(name, "rpm-ostreed.service");
        let connection = emitter.connection().clone();
        let pid: zbus::Result<u32> = ask_bus(&connection, "GetConnectionUnixProcessID").await;
        if let Ok(pid) = pid {
            let before: String = ask_bus(&connection, "GetNameOwner").await.unwrap();
            let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
            // Somebody may have called the next one by then.
            while ask_bus(&connection, "GetNameOwner").await.is_ok_and(|now: String| now == before)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.0.lock().unwrap().restarts += 1;
        let job = path("/org/freedesktop/systemd1/job/7");
        Self::job_removed(&emitter, 7, job.clone(), name, "done").await.unwrap();
        job
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;

    fn list_jobs(&self) -> Vec<JobRow> {
        let job = self.0.lock().unwrap().job;
        let text = |text: &str| text.to_owned();
        job.into_iter()
            .map(|unit| (1, text(unit), text("start"), text("waiting"), path("/j"), path("/u")))
            .collect()
    }

    fn list_unit_files_by_patterns(
        &self,
        _states: Vec<String>,
        patterns: Vec<String>,
    ) -> Vec<(String, String)> {
        assert!(patterns.contains(&"k3s*.service".to_owned()));
        let files = self.0.lock().unwrap().files.clone();
        files.into_iter().map(|file| (file, "enabled".to_owned())).collect()
    }

    fn load_unit(&self, name: &str) -> OwnedObjectPath {
        let failed = self.0.lock().unwrap().failed.iter().any(|unit| unit == name);
        path(if failed { "/failed" } else { "/well" })
    }
}

struct Unit(&'static str);

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn load_state(&self) -> &str {
        "not-found"
    }

    #[zbus(property)]
    fn active_state(&self) -> &str {
        self.0
    }

    #[zbus(property)]
    fn sub_state(&self) -> &str {
        "dead"
    }
}
