//! Decisions a second of the real coordinator on its file store, beside the same writes alone.
//!
//! `cargo bench --bench fleetlock` starts `lockkeeper coordinator` with one slot in one group. 1, 8
//! and 64 clients take that slot and give it back over loopback as fast as they can; who stood in line in
//! vain and is denied asks again at once. A lock that is granted and an unlock are one decision each; denials need no
//! write and are counted apart. Before and after each of these turns, the same bytes are written in
//! the same folder with the same pattern (write, fsync, rename, fsync of the folder) by nobody else,
//! so that the disk of the moment is the measure. `FLEETLOCK_ROUNDS` and `FLEETLOCK_SECONDS` (of a turn)
//! change how long it takes.
//!
//! It fails if one client gets less than 0.8 decisions a pattern, or many less than one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How many clients, and what the ratio must be at least.
const TURNS: [(usize, f64); 3] = [(1, 0.8), (8, 1.0), (64, 1.0)];

/// How long anything may take that should take a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one turn counted.
#[derive(Debug, Default)]
struct Counts {
    decisions: AtomicU64,
    denials: AtomicU64,
}

/// One turn: so many a second.
#[derive(Debug, Clone, Copy)]
struct Turn {
    decisions: f64,
    denials: f64,
    patterns: f64,
}

/// `lockkeeper coordinator` over a folder; killed when it is dropped.
struct Coordinator {
    child: Child,
    address: String,
    state: PathBuf,
}

fn main() -> ExitCode {
    let rounds = number("FLEETLOCK_ROUNDS", 5);
    let length = Duration::from_secs(number("FLEETLOCK_SECONDS", 2));
    // Beside the build, not in /tmp: that may be in memory.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-fleetlock");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    let coordinator = Coordinator::start(&folder);
    let contents = contents(&coordinator);
    let alone = folder.join("alone");
    fs::create_dir(&alone).unwrap();

    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); TURNS.len()];
    for round in 1..=rounds {
        let mut before = patterns(&alone, &contents, length / 2);
        for (at, (clients, _)) in TURNS.iter().enumerate() {
            let (decisions, denials) = play(&coordinator.address, *clients, length);
            let after = patterns(&alone, &contents, length / 2);
            let turn = Turn { decisions, denials, patterns: f64::midpoint(before, after) };
            eprintln!("round {round}: {clients} clients {turn:.0?}");
            turns[at].push(turn);
            before = after;
        }
    }
    drop(coordinator);
    fs::remove_dir_all(&folder).unwrap();
    let (text, good) = table(&turns);
    println!("{text}");
    if let Some(report) = std::env::var_os("LOCKKEEPER_REPORT") {
        fs::write(Path::new(&report).join("51-fleetlock.md"), text).unwrap();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn table(turns: &[Vec<Turn>]) -> (String, bool) {
    let mut text = "## FleetLock: decisions beside bare writes\n\n\
        The coordinator on its file store, one slot; medians of the rounds. A pattern is write, fsync, rename and fsync \
        of the folder, of the same bytes on the same disk.\n\n\
        | clients | granted decisions/s | denials/s | patterns/s alone | ratio | at least | |\n\
        |---:|---:|---:|---:|---:|---:|---|\n"
        .to_owned();
    let mut good = true;
    for (rounds, (clients, least)) in turns.iter().zip(TURNS) {
        let ratio = median(rounds, |turn| turn.decisions / turn.patterns);
        let holds = ratio >= least;
        good &= holds;
        let _ = writeln!(
            text,
            "| {clients} | {:.0} | {:.0} | {:.0} | {ratio:.2} | {least} | {} |",
            median(rounds, |turn| turn.decisions),
            median(rounds, |turn| turn.denials),
            median(rounds, |turn| turn.patterns),
            if holds { "holds" } else { "**missed**" },
        );
    }
    (text, good)
}

fn median(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> f64 {
    let mut all: Vec<f64> = turns.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

// === The writes alone ===

/// What the store writes while the slot is held, and while it is free.
fn contents(coordinator: &Coordinator) -> [Vec<u8>; 2] {
    let mut stream = None;
    ["pre-reboot", "steady-state"].map(|api| {
        assert_eq!(ask(&coordinator.address, &mut stream, api, 0), 200);
        fs::read(coordinator.state.join("slots.json")).unwrap()
    })
}

/// Patterns a second.
fn patterns(folder: &Path, contents: &[Vec<u8>; 2], length: Duration) -> f64 {
    let (file, beside) = (folder.join("slots.json"), folder.join("slots.json.new"));
    let began = Instant::now();
    let mut count = 0_u32;
    while began.elapsed() < length {
        let mut new = File::create(&beside).unwrap();
        new.write_all(&contents[usize::from(count % 2 == 1)]).unwrap();
        new.sync_all().unwrap();
        fs::rename(&beside, &file).unwrap();
        File::open(folder).unwrap().sync_all().unwrap();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

// === The clients ===

/// Granted decisions and denials a second.
fn play(address: &str, clients: usize, length: Duration) -> (f64, f64) {
    let counts = Counts::default();
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for id in 0..clients {
            let (counts, stop) = (&counts, &stop);
            scope.spawn(move || client(address, id, counts, stop));
        }
        // Sleeps: this is how long the turn is.
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = began.elapsed().as_secs_f64();
    // Far from where a float loses whole numbers.
    #[allow(clippy::cast_precision_loss)]
    let rate = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
    (rate(&counts.decisions), rate(&counts.denials))
}

/// Takes the slot and gives it back until it is told to stop; then it holds nothing.
fn client(address: &str, id: usize, counts: &Counts, stop: &AtomicBool) {
    let mut stream = None;
    while !stop.load(Ordering::Relaxed) {
        match ask(address, &mut stream, "pre-reboot", id) {
            200 => {
                assert_eq!(ask(address, &mut stream, "steady-state", id), 200);
                counts.decisions.fetch_add(2, Ordering::Relaxed);
            }
            409 => {
                counts.denials.fetch_add(1, Ordering::Relaxed);
            }
            status => panic!("client {id}: {status}"),
        }
    }
}

/// The status of the answer. Keeps the connection where the server does.
fn ask(address: &str, kept: &mut Option<BufReader<TcpStream>>, api: &str, id: usize) -> u16 {
    let mut stream = kept.take().unwrap_or_else(|| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    });
    let body = format!(r#"{{"client_params":{{"id":"{id:032x}","group":"default"}}}}"#);
    let request = format!(
        "POST /v1/{api} HTTP/1.1\r\nhost: h\r\nfleet-lock-protocol: true\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut status, mut length, mut close) = (0, 0, false);
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the answer ends in its head");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            None => status = line.split(' ').nth(1).unwrap().parse().unwrap(),
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("connection", value)) => close = value == "close",
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    if !close {
        *kept = Some(stream);
    }
    status
}

// === impl Coordinator ===

impl Coordinator {
    fn start(folder: &Path) -> Self {
        let config = folder.join("config.toml");
        let state = folder.join("state");
        let text = format!(
            "[coordinator]\nlisten = \"127.0.0.1:0\"\nstate_dir = \"{}\"\nrun_dir = \"{}\"\n\
             [[coordinator.groups]]\nname = \"default\"\nslots = 1\n",
            state.display(),
            folder.join("run").display()
        );
        fs::write(&config, text).unwrap();
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
            for line in lines.map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("coordinator ready address=") {
                    let _ = ready.send(rest.split(' ').next().unwrap_or_default().to_owned());
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).expect("the coordinator is ready");
        Self { child, address, state }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
