//! A fleet, simulated: hundreds of agents with the real heart, and the real decisions of the slot
//! server with the real protocol on both sides, over a network, hosts and people that fail; in
//! virtual time, from one seed.
//!
//! `cargo test --test fleet` plays fixed seeds. `FLEET_MINUTES=10 cargo test --release --test fleet
//! random_seeds` plays others for so long, and `FLEET_SEED=7 FLEET_PROFILE=crashes cargo test --test fleet
//! one_seed` plays that one again, as a failure's message says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "a long run is as long as it was asked to be")]

mod broken;
mod effects;
mod happenings;
mod network;
mod node;
mod oracle;
mod people;
mod profile;
mod random;
mod server;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broken::{Broken, TABLE};
use profile::{ALL, Fault, Profile};
use world::{Counts, HOUR, World};

/// Seeds that every run of the tests plays with each profile.
const SEEDS: [u64; 2] = [1, 2];

/// How often it is looked whether all have come through, once faults have stopped.
const LOOK_EVERY: u64 = HOUR / 4;

/// What one run saw.
struct Run {
    counts: Counts,
    faults: BTreeMap<Fault, u64>,
    hash: u64,
    updated: usize,
    rollouts: usize,
    /// Milliseconds of virtual time.
    length: u64,
}

/// What one run found.
struct Wrong {
    promise: String,
    events: u64,
    /// For people: how it came, and how to see it again.
    text: String,
}

/// Plays one fleet to its end.
fn play(profile: Profile, seed: u64, broken: Broken) -> Result<Run, Wrong> {
    play_world(World::new(profile, seed, broken), seed)
}

fn play_world(mut world: World, seed: u64) -> Result<Run, Wrong> {
    let profile = world.profile;
    let faults_end = profile.hours * HOUR;
    world.play(faults_end);
    if world.wrong.is_none() && profile.bad_boot == 1000 {
        world.check_halt();
    }
    // One node after another, a quarter of an hour each, and the longest back-off; a window may
    // just have closed.
    let most = profile.nodes.div_ceil(profile.slots.len());
    let least = u64::from(*profile.slots.iter().min().unwrap());
    let hours = 12 + u64::try_from(most).unwrap() / least / 3 + if profile.window { 24 } else { 0 };
    let mut until = faults_end;
    while world.wrong.is_none() && until < faults_end + hours * HOUR {
        until += LOOK_EVERY;
        world.play(until);
        if world.unfinished().is_none() {
            break;
        }
    }
    // And there they stay.
    if world.wrong.is_none() {
        world.play(until + HOUR);
    }
    if world.wrong.is_none() {
        world.check_end();
    }
    if let Some((at, promise)) = world.wrong.take() {
        return Err(wrong(&world, seed, at, promise));
    }
    Ok(Run {
        counts: world.counts,
        hash: world.hash(),
        faults: world.faults.clone(),
        updated: world.nodes.iter().filter(|node| node.booted == world.latest).count(),
        rollouts: world.rollouts(),
        length: until,
    })
}

fn wrong(world: &World, seed: u64, at: usize, promise: String) -> Wrong {
    let (name, events, node) = (world.profile.name, world.counts.events, &world.nodes[at]);
    let policy = &world.policy;
    let mut text = format!(
        "{promise}\n  profile {name}, seed {seed}, event {events}, node {} of {}; on_deadline {:?}, \
         on_foreign_uncordon {:?}:\n",
        node.name, node.group, policy.on_deadline, policy.on_foreign_uncordon
    );
    for line in &node.story {
        let _ = writeln!(text, "    {line}");
    }
    let _ = write!(
        text,
        "  again: FLEET_SEED={seed} FLEET_PROFILE={name} cargo test --test fleet one_seed"
    );
    Wrong { promise, events, text }
}

fn play_well(profile: Profile, seed: u64) -> Run {
    play(profile, seed, Broken::Nothing).unwrap_or_else(|wrong| panic!("{}", wrong.text))
}

#[test]
fn no_promise_is_broken_in_any_fleet() {
    let mut text = "## A fleet, simulated\n\nThe real heart, the real slots and the protocol between \
        them, in virtual time.\n\n\
        | profile | seeds | agents | virtual hours | events | reboots | faults | updated | rollouts |\n\
        |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let mut faults = BTreeMap::new();
    for profile in ALL {
        let runs = SEEDS.map(|seed| play_well(*profile, seed));
        for (fault, times) in runs.iter().flat_map(|run| &run.faults) {
            *faults.entry(*fault).or_insert(0) += times;
        }
        let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
        let updated: usize = runs.iter().map(|run| run.updated).sum();
        let rollouts: usize = runs.iter().map(|run| run.rollouts).sum();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {updated} of {} | {rollouts} of {} |",
            profile.name,
            SEEDS.len(),
            profile.nodes,
            sum(|run| run.length) / HOUR,
            sum(|run| run.counts.events),
            sum(|run| run.counts.reboots),
            sum(|run| run.faults.values().sum()),
            profile.nodes * SEEDS.len(),
            profile.slots.len() * SEEDS.len(),
        );
    }
    text.push_str("\n| fault | times |\n|---|---:|\n");
    for fault in Fault::ALL {
        let times = faults.get(&fault).copied().unwrap_or(0);
        assert!(times > 0, "{fault:?} never came, so that nothing was shown of it");
        let _ = writeln!(text, "| {} | {times} |", fault.name());
    }
    println!("{text}");
    report("20-fleet.md", &text);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let crashes = ALL.iter().find(|profile| profile.name == "crashes").unwrap();
    let runs = [7, 7, 8].map(|seed| play_well(*crashes, seed).hash);
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

/// A promise that was never seen broken proves nothing.
#[test]
fn broken_parts_are_found_out() {
    let mut text = "\n| broken on purpose | found out as | profile, seed | events |\n\
        |---|---|---|---:|\n"
        .to_owned();
    for (broken, words) in TABLE {
        let mut others = Vec::new();
        let found = (1..=5)
            .flat_map(|seed| ALL.iter().map(move |profile| (profile, seed)))
            .filter(|(profile, _)| profile.nodes < 100)
            .find_map(|(profile, seed)| {
                let wrong = play(*profile, seed, broken).err()?;
                if wrong.promise.contains(words) {
                    return Some((profile.name, seed, wrong));
                }
                others.push(wrong.promise);
                None
            });
        let (name, seed, wrong) =
            found.unwrap_or_else(|| panic!("{broken:?} was not found out, but {others:?}"));
        let Wrong { promise, events, .. } = wrong;
        let _ = writeln!(text, "| {broken:?} | {promise} | {name}, {seed} | {events} |");
    }
    println!("{text}");
    report("21-fleet-broken.md", &text);
}

/// A limit that is known: should it go, [`World::late_releases`] goes with it.
#[test]
fn a_release_that_comes_too_late_frees_the_next_slot() {
    let calm = ALL.iter().find(|profile| profile.name == "calm").unwrap();
    let profile = Profile { network: 300, kill: 30, updates: 3, slots: &[4], ..*calm };
    let found = (1..=40).find_map(|seed| {
        let mut world = World::new(profile, seed, Broken::Nothing);
        world.late_releases = true;
        play_world(world, seed).err()
    });
    let wrong = found.expect("no release came too late in 40 fleets, or it frees nothing any more");
    assert!(
        wrong.promise.contains("loses its slot to a release while it is down"),
        "{}",
        wrong.text
    );
}

/// Plays what the environment names; without it, the first seed of the first profile.
#[test]
fn one_seed() {
    let seed = std::env::var("FLEET_SEED").map_or(SEEDS[0], |text| text.parse().expect("a number"));
    let name = std::env::var("FLEET_PROFILE").unwrap_or_else(|_| ALL[0].name.to_owned());
    let profile = ALL.iter().find(|profile| profile.name == name).expect("such a profile");
    play_well(*profile, seed);
}

/// As many random seeds as fit into `FLEET_MINUTES`, of `FLEET_PROFILE` if it is named; without it one
/// fixed seed of the small profiles.
#[test]
fn random_seeds() {
    let minutes = std::env::var("FLEET_MINUTES").map_or(0, |text| text.parse().expect("a number"));
    let (began, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // What nobody asked for must not fail by chance.
    let first = if minutes > 0 { now << 16 } else { 1000 };
    println!("from seed {first}");
    let only = std::env::var("FLEET_PROFILE").ok().filter(|_| minutes > 0);
    let meant = |profile: &&Profile| match &only {
        Some(name) => profile.name == name,
        None => minutes > 0 || profile.nodes < 100,
    };
    assert!(ALL.iter().any(|profile| meant(&profile)), "no profile {only:?}");
    let (mut runs, mut agents) = (0_u64, 0);
    loop {
        for profile in ALL.iter().filter(meant) {
            play_well(*profile, first + runs);
            runs += 1;
            agents += profile.nodes;
        }
        if began.elapsed() >= length {
            break;
        }
    }
    println!("{runs} random fleets of {agents} agents in all, from seed {first}");
    if minutes > 0 {
        let line =
            format!("\n{runs} random fleets of {agents} agents in all, from seed {first}.\n");
        report("22-fleet-random.md", &line);
    }
}

fn report(file: &str, text: &str) {
    if let Some(folder) = std::env::var_os("LOCKKEEPER_REPORT") {
        std::fs::write(std::path::Path::new(&folder).join(file), text).unwrap();
    }
}
