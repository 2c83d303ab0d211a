//! A host with a bridge and a Zincati.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::lifecycle::Event;
use lockkeeper::signals::zincati::{BridgeSettings, Desk, serve};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::zincati::config::{self, Config};
use crate::zincati::machine::{Fault, Host, Killed, Machine};

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Five minutes are 100 ms.
pub(crate) const SPEED: f64 = 3000.0;

pub(crate) struct Rig {
    pub(crate) root: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) desk: Desk,
    events: mpsc::Receiver<Event>,
    bridge: JoinHandle<()>,
}

/// A Zincati that runs, and what it said.
pub(crate) struct Zincati {
    told: mpsc::UnboundedReceiver<String>,
    pub(crate) process: JoinHandle<Killed>,
}

/// What the host says to Zincati and what Zincati did to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct System(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    staged: Option<String>,
    users: bool,
    finalized: Vec<String>,
}

impl Rig {
    pub(crate) async fn start(hold: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        fs::create_dir_all(root.path().join("etc/zincati/config.d")).unwrap();
        fs::write(root.path().join("etc/machine-id"), "2e074e9b299c41a59923c51ae16f279b\n")
            .unwrap();
        // Whoever runs the tests is Zincati's user.
        let user = format!("zincati:x:{}:1::/:/sbin/nologin\n", nix::unistd::geteuid());
        fs::write(root.path().join("etc/passwd"), user).unwrap();
        lock_server(root.path(), &format!("http://{address}/"));
        let (to, events) = mpsc::channel(16);
        let settings = BridgeSettings { listen: address, hold, root: root.path().to_owned() };
        let desk = Desk::default();
        let bridge = tokio::spawn(serve(settings, desk.clone(), to));
        Self { root, address, desk, events, bridge }
    }

    pub(crate) fn zincati(&self, system: &System, faults: &[Fault]) -> Zincati {
        Zincati::start(self.config(), system, faults)
    }

    pub(crate) fn config(&self) -> Config {
        config::load(self.root.path()).unwrap()
    }

    pub(crate) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("no event").unwrap()
    }

    /// Answers steady-state as soon as it is asked.
    pub(crate) async fn lets_it_be_steady(&mut self) {
        assert_eq!(self.event().await, Event::ZincatiSteady);
        self.desk.steady();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.bridge.abort();
    }
}

/// Zincati's configuration with a slot server.
pub(crate) fn lock_server(root: &Path, base_url: &str) {
    let text = format!(
        "[updates]\nstrategy = \"fleet_lock\"\nfleet_lock.base_url = \"{base_url}\"\n\
         [[updates.fleet_lock.window]]\ndays = [\"ignored\"]\n"
    );
    let folder = root.join("etc/zincati/config.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("55-updates-strategy.toml"), text).unwrap();
}

impl Zincati {
    pub(crate) fn start(config: Config, system: &System, faults: &[Fault]) -> Self {
        let (to, told) = mpsc::unbounded_channel();
        let tell = move |line: &str| drop(to.send(line.to_owned()));
        let mut machine = Machine::new(config, system.clone(), SPEED, faults, tell).unwrap();
        let process = tokio::spawn(async move { machine.run().await });
        Self { told, process }
    }

    /// Waits until it says a line that begins like this.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        let said = async {
            loop {
                let line = self.told.recv().await.expect("it ended");
                if line.starts_with(beginning) {
                    return line;
                }
            }
        };
        let said = timeout(PATIENCE, said).await;
        said.unwrap_or_else(|_| panic!("it never said {beginning}"))
    }

    /// SIGTERM and SIGKILL are the same to the other side.
    pub(crate) async fn ends(self) {
        self.process.abort();
        let _ = self.process.await;
    }
}

impl System {
    pub(crate) fn with_update(release: &str) -> Self {
        let system = Self::default();
        system.inside(|inside| inside.staged = Some(release.to_owned()));
        system
    }

    pub(crate) fn has_users(&self, users: bool) {
        self.inside(|inside| inside.users = users);
    }

    pub(crate) fn finalized(&self) -> Vec<String> {
        self.inside(|inside| inside.finalized.clone())
    }

    fn inside<T>(&self, act: impl FnOnce(&mut Inside) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

impl Host for System {
    async fn staged(&mut self) -> Result<Option<String>, String> {
        Ok(self.inside(|inside| inside.staged.clone()))
    }

    async fn has_users(&mut self) -> bool {
        self.inside(|inside| inside.users)
    }

    async fn finalize(&mut self, release: &str) -> Result<(), String> {
        self.inside(|inside| inside.finalized.push(release.to_owned()));
        Ok(())
    }
}
