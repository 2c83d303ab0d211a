//! A FleetLock server that grants or denies as it is told, and keeps when it was asked for what.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long anything may take that should come by itself.
const PATIENCE: Duration = Duration::from_secs(180);

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Microseconds since the epoch.
    pub at: u64,
    /// `pre-reboot` or `steady-state`.
    pub api: String,
    /// The node's name, as it tells it.
    pub node: String,
}

/// The server, as long as the process lives.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where it listens.
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    grants: AtomicBool,
    asked: Mutex<Vec<Asked>>,
    news: Condvar,
}

/// Now, in microseconds since the epoch: the clock that the hosts share with this machine.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

// === impl Server ===

impl Server {
    /// Listens on loopback. Denies until it is told otherwise.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let server = Self { url, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        server
    }

    /// What to say from now on.
    pub fn grants(&self, grants: bool) {
        self.shared.grants.store(grants, Ordering::SeqCst);
    }

    /// Has an agent ask here, in the words of its configuration.
    pub fn configuration(&self) -> String {
        format!("[slot]\nbase_url = \"{}\"\n", self.url)
    }

    /// How many requests there were since then.
    pub fn count(&self, since: u64) -> usize {
        self.shared.asked.lock().unwrap().iter().filter(|one| one.at >= since).count()
    }

    /// The first request of this kind since then.
    pub fn first(&self, node: &str, api: &str, since: u64) -> Asked {
        let end = Instant::now() + PATIENCE;
        let mut asked = self.shared.asked.lock().unwrap();
        loop {
            let fits = |one: &&Asked| one.at >= since && one.node == node && one.api == api;
            if let Some(found) = asked.iter().find(fits) {
                return found.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{node} asked for no {api}");
            asked = self.shared.news.wait_timeout(asked, left).unwrap().0;
        }
    }
}

fn answer(stream: TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut node, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line).ok()?;
    let api = line.split(' ').nth(1)?.rsplit('/').next()?.to_owned();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("lockkeeper-node") => {
                value.clone_into(&mut node)
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?
            }
            Some(_) => {}
        }
    }
    let at = now();
    reader.read_exact(&mut vec![0; length]).ok()?;
    let grants = api == "steady-state" || shared.grants.load(Ordering::SeqCst);
    let (status, kind) = if grants { ("200 OK", "granted") } else { ("409 Conflict", "held") };
    let body = format!(r#"{{"kind":"{kind}","value":"as the benchmark wants it"}}"#);
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    reader.get_mut().write_all(format!("{head}{body}").as_bytes()).ok()?;
    shared.asked.lock().unwrap().push(Asked { at, api, node });
    shared.news.notify_all();
    Some(())
}
