//! Plays the cells: side by side on the hosts, and those that hit all hosts at once together.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::check::Before;
use crate::fault::Fault;
use crate::host::text;
use crate::place::Place;
use crate::station::{Station, let_uncordon, refuse_to_uncordon};
use crate::table::{self, Cell};
use crate::world::World;

/// What a cell came to.
pub struct Played {
    /// The cell.
    pub cell: Cell,
    /// How its attempt ended; or what was not as it must be.
    pub end: Result<String, String>,
    /// From the clean host to the checked end.
    pub took: Duration,
}

/// A cell that has begun.
struct Begun {
    cell: Cell,
    before: Before,
    version: String,
    began: Instant,
}

/// Plays the cells that the command line names.
pub fn run() -> ExitCode {
    let missing = lockkeeper::lifecycle::Stage::ALL
        .into_iter()
        .find(|stage| Place::ALL.into_iter().all(|place| place.stage() != *stage));
    assert!(missing.is_none(), "no host is hit while {missing:?}");
    let (options, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let known = ["--full", "--list", "--nocapture", "--quiet"];
    if let Some(unknown) = options.iter().find(|option| !known.contains(&option.as_str())) {
        eprintln!("unknown option {unknown}; there are --full and --list");
        return ExitCode::from(2);
    }
    let asked = |option: &str| options.iter().any(|given| given == option);
    let all = if asked("--full") { table::full() } else { table::short() };
    let wanted = |cell: &Cell| {
        words.is_empty() || words.iter().any(|word| cell.name().contains(word.as_str()))
    };
    let cells: Vec<Cell> = all.into_iter().filter(wanted).collect();
    if asked("--list") {
        cells.iter().for_each(|cell| println!("{}: test", cell.name()));
        return ExitCode::SUCCESS;
    }
    if cells.is_empty() {
        eprintln!("no cell has such a name; --list prints them, --full --list prints all");
        return ExitCode::from(2);
    }
    println!("\nplaying {} cells", cells.len());
    let began = Instant::now();
    let Ok((played, left)) = catch_unwind(|| sweep(&cells)) else { return ExitCode::FAILURE };
    let failed: Vec<&Played> = played.iter().filter(|one| one.end.is_err()).collect();
    for one in &failed {
        println!("    {}", one.cell.name());
    }
    let good = played.len() - failed.len();
    let ok = left && good == cells.len();
    let result = if ok { "ok" } else { "FAILED" };
    let bad = cells.len() - good;
    let took = began.elapsed();
    println!("\nsweep result: {result}. {good} held; {bad} failed; {} s\n", took.as_secs());
    crate::report::write(&played, took);
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Brings the lab up, plays, and leaves everything as it was; whether that went well.
fn sweep(cells: &[Cell]) -> (Vec<Played>, bool) {
    let world = World::new();
    world.begin();
    let workload = |web: u32, queue: u32| {
        for (name, count) in [("web", web), ("queue", queue)] {
            let count = format!("--replicas={count}");
            world.cluster.kubectl(&["--namespace", "shop", "scale", "deployment", name, &count]);
        }
    };
    // Pods that wander between the hosts would have them wait for each other.
    workload(0, 0);
    let coordinator = std::fs::read_to_string(world.folder().join("coordinator.toml")).unwrap();
    let address = coordinator.split("listen = \"").nth(1).and_then(|rest| rest.split('"').next());
    let address = address.expect("where the coordinator listens");
    refuse_to_uncordon(&world.cluster, &world.hosts()[0].name);
    let hosts = world.hosts().iter().collect();
    let stations = side_by_side(hosts, |host| Station::new(host, &world.cluster, address));
    let mut played = each_by_itself(&stations, cells);
    for fault in [Fault::Api, Fault::Coordinator] {
        let mut queue: VecDeque<Cell> =
            cells.iter().copied().filter(|cell| cell.fault == fault).collect();
        while !queue.is_empty() && stations.iter().any(Station::plays) {
            played.extend(all_at_once(&stations, &mut queue, fault, world.folder()));
        }
    }
    let left = catch_unwind(AssertUnwindSafe(|| {
        stations.iter().for_each(Station::leave);
        let_uncordon(&world.cluster);
        world.cluster.sweep();
        workload(4, 2);
        world.restore(played.iter().any(|one| one.end.is_err()));
        assert_eq!(world.coordinator_errors(), Vec::<String>::new());
    }));
    (played, left.is_ok())
}

/// The faults of one host: whichever host is free takes the next cell.
fn each_by_itself(stations: &[Station<'_>], cells: &[Cell]) -> Vec<Played> {
    let queue: VecDeque<Cell> =
        cells.iter().copied().filter(|cell| !cell.fault.hits_all()).collect();
    let (queue, played) = (Mutex::new(queue), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for station in stations {
            let (queue, played) = (&queue, &played);
            scope.spawn(move || {
                while station.plays() {
                    let Some(cell) = queue.lock().unwrap().pop_front() else { return };
                    let one = play(station, cell);
                    played.lock().unwrap().push(one);
                }
            });
        }
    });
    played.into_inner().unwrap()
}

/// A fault of all hosts: each host stands in its stage when it hits.
fn all_at_once(
    stations: &[Station<'_>],
    queue: &mut VecDeque<Cell>,
    fault: Fault,
    folder: &std::path::Path,
) -> Vec<Played> {
    let playing = stations.iter().filter(|station| station.plays());
    let pairs: Vec<(&Station<'_>, Cell)> =
        playing.map_while(|station| Some((station, queue.pop_front()?))).collect();
    let brought = side_by_side(pairs, |(station, cell)| (station, begin(station, cell)));
    fault.hit_all(folder);
    side_by_side(brought, |(station, begun)| end(station, begun, |_| {}))
}

/// One thread for each.
fn side_by_side<T: Send, R: Send>(all: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(move || each(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic gets here")).collect()
    })
}

/// A cell from its beginning to its end.
fn play(station: &Station<'_>, cell: Cell) -> Played {
    let begun = begin(station, cell);
    end(station, begun, |station| cell.fault.hit_host(station))
}

/// Brings the host to the stage.
fn begin(station: &Station<'_>, cell: Cell) -> Result<Begun, Played> {
    let began = Instant::now();
    let version = version();
    let brought = catch_unwind(AssertUnwindSafe(|| {
        let before = Before::new(station);
        cell.place.bring(station, &version);
        before
    }));
    match brought {
        Ok(before) => Ok(Begun { cell, before, version, began }),
        Err(panic) => Err(failed(station, cell, began, panic.as_ref())),
    }
}

/// Hits, lets go, waits for the end and checks it; then the host is as before.
fn end(
    station: &Station<'_>,
    begun: Result<Begun, Played>,
    hit: impl FnOnce(&Station<'_>),
) -> Played {
    let Begun { cell, before, version, began } = match begun {
        Ok(begun) => begun,
        Err(played) => return played,
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        hit(station);
        cell.place.let_go(station, cell.fault, &version);
        let last: Value = before.end(station);
        before.check(station, cell, &version, &last);
        let took = began.elapsed();
        station.tidy();
        (text(&last["outcome"]).to_owned(), took)
    }));
    match ended {
        Ok((outcome, took)) => {
            let (name, host) = (cell.name(), &station.host.name);
            println!("cell {name} on {host} ... {outcome} ({:.1} s)", took.as_secs_f64());
            Played { cell, end: Ok(outcome), took }
        }
        Err(panic) => failed(station, cell, began, panic.as_ref()),
    }
}

fn failed(
    station: &Station<'_>,
    cell: Cell,
    began: Instant,
    panic: &(dyn std::any::Any + Send),
) -> Played {
    let took = began.elapsed();
    let told = panic.downcast_ref::<String>().cloned();
    let told = told.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let told = told.unwrap_or_default();
    let (name, host) = (cell.name(), &station.host.name);
    println!("cell {name} on {host} ... FAILED ({:.1} s)\n  {told}", took.as_secs_f64());
    drop(catch_unwind(AssertUnwindSafe(|| station.host.report())));
    if catch_unwind(AssertUnwindSafe(|| station.scrub())).is_err() {
        println!("  and {host} cannot be cleaned: it plays no more");
        station.give_up();
    }
    Played { cell, end: Err(told), took }
}

/// A version that no host has seen.
fn version() -> String {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("60.{}.{}", now.as_secs(), COUNT.fetch_add(1, SeqCst))
}
