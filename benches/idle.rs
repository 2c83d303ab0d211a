//! What an idle agent costs, beside what else idles on the same host.
//!
//! `LAB_PROFILE=release cargo bench --bench idle` brings the lab up (tests/lab) and looks at the agent of one of its
//! hosts, on which no update waits, for five minutes (`IDLE_SECONDS`): memory, wake-ups (every time that
//! one of its threads gave up the processor and got it again), requests to the API server from the
//! audit log, and requests to its slot server, which is the benchmark.
//!
//! It fails if the agent writes to the API server, asks for a slot, is larger than 15 MB in memory (6 MB of
//! its own) or on disk, or wakes up more than twice a minute beyond what the watchdog wants.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(dead_code, unreachable_pub, reason = "the lab's rooms are shared with tests/cycle")]

#[path = "parts/audit.rs"]
mod audit;
#[path = "parts/figures.rs"]
mod figures;
#[path = "../tests/cycle/host.rs"]
mod host;
#[path = "../tests/cycle/journal.rs"]
mod journal;
#[path = "../tests/cycle/lab.rs"]
mod lab;
#[path = "parts/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use audit::{Audit, counted};
use figures::Section;
use host::Host;
use lab::Lab;
use server::{Server, now};

const MB: f64 = 1e6;

/// Services of the host that idle beside the agent.
const PEERS: [&str; 4] = ["kubelet", "systemd-journald", "systemd-logind", "dbus"];

/// A process at one moment.
#[derive(Debug, Clone)]
struct Sample {
    resident: f64,
    anonymous: f64,
    /// By thread.
    switches: BTreeMap<String, f64>,
}

fn main() -> ExitCode {
    let length = std::env::var("IDLE_SECONDS").map_or(300, |text| text.parse().unwrap());
    let lab = Lab::new();
    let host = Host::new(&lab.folder, "n1");
    host.begin();
    let server = Server::start();
    host.configure(&server.configuration());
    host.waits_for("no-update", 60);
    // What it did to come here is none of the idle agent's.
    std::thread::sleep(Duration::from_secs(15));

    let names: Vec<&str> = ["lockkeeper"].into_iter().chain(PEERS).collect();
    let pids: Vec<String> = names.iter().map(|name| pid(&host, name)).collect();
    let audit = Audit::from_now(&lab.folder);
    let began = now();
    let before: Vec<Sample> = pids.iter().map(|pid| sample(&host, pid)).collect();
    std::thread::sleep(Duration::from_secs(length));
    let after: Vec<Sample> = pids.iter().map(|pid| sample(&host, pid)).collect();
    let minutes = figures::seconds(began, now()) / 60.0;
    let requests = audit.requests("lockkeeper", "system:node:n1");
    let slots = server.count(began);
    let binary = host.sh("stat --dereference --format=%s \"$(command -v lockkeeper)\"");
    let interval = host.sh("systemctl show --property=WatchdogUSec --value lockkeeper");
    host.configure_no_more();
    drop(lab);

    let mut section = Section::new(&format!(
        "## An idle agent\n\n{minutes:.1} minutes on a node on which no update waits.\n\n"
    ));
    section
        .line("| process | resident MB | anonymous MB | wake-ups a minute | memory, times the agent's |\n|---|---:|---:|---:|---:|");
    for (at, name) in names.iter().enumerate() {
        let wakes = wake_ups(&before[at], &after[at]) / minutes;
        let (resident, anonymous) = (after[at].resident / MB, after[at].anonymous / MB);
        let times = after[at].resident / after[0].resident;
        section.line(&format!(
            "| {name} | {resident:.1} | {anonymous:.1} | {wakes:.1} | {times:.1} |"
        ));
    }
    section.line("\nMeasured elsewhere: Zincati 31 MB and 2 wake-ups a minute, FLUO's agent 32 and 28, kured 39 and 36.\n");
    section.line("| the agent's | measured | limit | |\n|---|---:|---:|---|");
    let writes = requests.iter().filter(|one| !["get", "list", "watch"].contains(&verb(&one.what)));
    let writes = writes.count() as f64;
    section.row(&format!("writes to the API server | {writes} | 0"), writes, 0.0);
    section.row(&format!("requests to the slot server | {slots} | 0"), slots as f64, 0.0);
    let (resident, anonymous) = (after[0].resident / MB, after[0].anonymous / MB);
    section.row(&format!("resident MB | {resident:.1} | 15"), resident, 15.0);
    section.row(&format!("anonymous MB | {anonymous:.1} | 6"), anonymous, 6.0);
    let binary = binary.trim().parse::<f64>().unwrap() / MB;
    section.row(&format!("binary MB | {binary:.1} | 15"), binary, 15.0);
    // systemd wants to hear twice in each interval.
    let pings = 120.0 / watchdog_seconds(interval.trim());
    let wakes = wake_ups(&before[0], &after[0]) / minutes;
    let limit = pings + 2.0;
    let words =
        format!("wake-ups a minute | {wakes:.1} | {limit:.1}, {pings:.1} of them the watchdog's");
    section.row(&words, wakes, limit);
    section.line(&format!(
        "\nAsked of the API server meanwhile: {}.",
        nothing_or(&counted(&requests))
    ));
    section.end("50-idle.md")
}

fn verb(what: &str) -> &str {
    what.split(' ').next().unwrap_or_default()
}

fn nothing_or(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

/// Seconds of what systemd prints, as in `2min`.
fn watchdog_seconds(text: &str) -> f64 {
    let parts = text.split(' ').map(|part| {
        let digits = part.trim_end_matches(char::is_alphabetic);
        let number: f64 = digits.parse().expect("a number of systemd's");
        match &part[digits.len()..] {
            "min" => 60.0 * number,
            "s" => number,
            other => panic!("a unit of systemd's: {other}"),
        }
    });
    parts.sum()
}

fn pid(host: &Host, service: &str) -> String {
    host.sh(&format!("systemctl show --property=MainPID --value {service}")).trim().to_owned()
}

fn sample(host: &Host, pid: &str) -> Sample {
    let text = host.sh(&format!(
        "awk '/^Rss:|^Anonymous:/ {{ print $2 }}' /proc/{pid}/smaps_rollup
        grep -H ^voluntary /proc/{pid}/task/*/status"
    ));
    let (memory, threads): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| !line.contains("voluntary"));
    let kilobytes = |at: usize| memory[at].parse::<f64>().unwrap() * 1024.0;
    let switches = threads.iter().map(|line| {
        let (thread, count) = line.split_once(":voluntary_ctxt_switches:").unwrap();
        (thread.to_owned(), count.trim().parse().unwrap())
    });
    Sample { resident: kilobytes(0), anonymous: kilobytes(1), switches: switches.collect() }
}

/// How often threads woke up in between. Of a thread that came and went again nothing is seen, and
/// one that went took what it did since the first look along: at least one each.
fn wake_ups(before: &Sample, after: &Sample) -> f64 {
    let stayed = after
        .switches
        .iter()
        .map(|(thread, count)| count - before.switches.get(thread).copied().unwrap_or(0.0));
    let went = before.switches.keys().filter(|thread| !after.switches.contains_key(*thread));
    stayed.sum::<f64>() + went.map(|_| 1.0).sum::<f64>()
}
