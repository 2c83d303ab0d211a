//! The coordinator as a process that is killed in mid-work, again and again.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How long anything may take that should take a moment; a loaded 2-core machine is the measure.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOTS: usize = 3;
const NODES: usize = 6;
const ROUNDS: usize = 10;

/// What a node knows of its slot from the answers that it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Held,
    Free,
    /// The answer to its last question never came.
    Lost,
}

/// What the nodes share between two kills.
struct Round {
    known: Mutex<BTreeMap<String, Known>>,
    /// How many answers there are before the kill, and how many are left.
    answers: isize,
    answers_left: AtomicIsize,
}

/// `lockkeeper coordinator` over a folder; killed with SIGKILL when it is dropped.
struct Coordinator {
    child: Child,
    address: String,
}

impl Coordinator {
    fn start(folder: &Path) -> Self {
        let config = folder.join("config.toml");
        let place = folder.display();
        let text = format!(
            "[coordinator]\nlisten = \"127.0.0.1:0\"\nstate_dir = \"{place}/state\"\n\
             run_dir = \"{place}/run\"\n[[coordinator.groups]]\nname = \"default\"\n\
             slots = {SLOTS}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .args(["coordinator", "--log-level", "info", "--config"])
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (ready, address) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // Reads to the end, so that the coordinator never waits for its reader.
        std::thread::spawn(move || {
            let mut told = String::new();
            for line in lines.map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("coordinator ready address=") {
                    let address = rest.split(' ').next().unwrap_or_default();
                    let _ = ready.send(Ok(address.to_owned()));
                }
                told.push_str(&line);
                told.push('\n');
            }
            let _ = ready.send(Err(told));
        });
        let address = address.recv_timeout(PATIENCE).expect("it neither begins nor ends");
        let address = address.unwrap_or_else(|told| panic!("it ended by itself:\n{told}"));
        Self { child, address }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The status of the answer; `None` if none came whole.
fn ask(address: &str, api: &str, id: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = format!(r#"{{"client_params":{{"id":"{id}","group":"default"}}}}"#);
    let request = format!(
        "POST /v1/{api} HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n")?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Takes and gives back the slot of `id` until an answer stays out. Whoever gets the last answer of
/// the round tells so, and asks no more; in the second half, n0 stops once it holds a slot and n1
/// once it holds none. So at the kill, some nodes have an open question and some must be right.
fn node(address: &str, id: &str, round: &Round, last: &mpsc::Sender<()>) {
    let known = &round.known;
    loop {
        let before = known.lock().unwrap()[id];
        let api = if before == Known::Held { "steady-state" } else { "pre-reboot" };
        // From here on it may be the other way round, whatever is heard of it.
        known.lock().unwrap().insert(id.to_owned(), Known::Lost);
        let now = match (ask(address, api, id), before) {
            (None, _) => return,
            (Some(200), Known::Held) => Known::Free,
            (Some(200), Known::Free | Known::Lost) => Known::Held,
            (Some(409), Known::Free) => Known::Free,
            (status, before) => panic!("{id}: {api} was answered by {status:?} when {before:?}"),
        };
        let mut known = known.lock().unwrap();
        known.insert(id.to_owned(), now);
        let held = known.values().filter(|known| **known == Known::Held).count();
        assert!(held <= SLOTS, "{held} slots of {SLOTS} are held: {known:?}");
        drop(known);
        let left = round.answers_left.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= 0 {
            let _ = last.send(());
            return;
        }
        let second_half = left < round.answers / 2;
        if second_half && [("n0", Known::Held), ("n1", Known::Free)].contains(&(id, now)) {
            return;
        }
    }
}

/// Who holds a slot, as a person on the host is told.
fn listed(folder: &Path) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["slots", "list", "--json", "--config"])
        .arg(folder.join("config.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let holders = told["groups"][0]["holders"].as_array().unwrap();
    holders.iter().map(|holder| holder["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_kill_at_any_moment_loses_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..NODES).map(|n| format!("n{n}")).collect();
    let mut known: BTreeMap<_, _> = ids.iter().map(|id| (id.clone(), Known::Free)).collect();
    for number in 0..ROUNDS {
        let answers = 40 + 7 * isize::try_from(number).unwrap();
        let answers_left = AtomicIsize::new(answers);
        let round = Arc::new(Round { known: Mutex::new(known), answers, answers_left });
        let coordinator = Coordinator::start(folder.path());
        let (last, was_last) = mpsc::channel();
        let nodes: Vec<_> = ids
            .iter()
            .map(|id| {
                let (address, id) = (coordinator.address.clone(), id.clone());
                let (round, last) = (Arc::clone(&round), last.clone());
                std::thread::spawn(move || node(&address, &id, &round, &last))
            })
            .collect();
        drop(last);
        was_last.recv_timeout(PATIENCE).expect("the coordinator stopped answering");
        drop(coordinator);
        nodes.into_iter().for_each(|node| node.join().unwrap());

        let coordinator = Coordinator::start(folder.path());
        let held = listed(folder.path());
        drop(coordinator);
        assert!(held.len() <= SLOTS, "{held:?}");
        known = std::mem::take(&mut *round.known.lock().unwrap());
        for (id, known) in &mut known {
            match (*known, held.contains(id)) {
                (Known::Held, false) => panic!("round {number}: the grant of {id} is lost"),
                (Known::Free, true) => panic!("round {number}: the release of {id} is lost"),
                (Known::Held, true) | (Known::Free, false) => {}
                (Known::Lost, true) => *known = Known::Held,
                (Known::Lost, false) => *known = Known::Free,
            }
        }
    }
}
