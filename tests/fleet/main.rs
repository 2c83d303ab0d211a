//! A fleet, simulated: hundreds of agents with the real heart, and the real decisions of the slot
//! server, over a network, hosts and people that fail; in virtual time, from one seed.
//!
//! `cargo test --test fleet` plays fixed seeds. `FLEET_MINUTES=10 cargo test --release --test fleet
//! random_seeds` plays others for so long, and `FLEET_SEED=7 FLEET_PROFILE=crashes cargo test --test fleet
//! one_seed` plays that one again, as a failure's message says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a broken part is broken in one arm")]
#![allow(clippy::disallowed_methods, reason = "a long run is as long as it was asked to be")]

mod broken;
mod effects;
mod happenings;
mod node;
mod profile;
mod random;
mod server;
mod world;

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broken::Broken;
use profile::{ALL, Profile};
use world::{Counts, HOUR, World};

/// Seeds that every run of the tests plays with each profile.
const SEEDS: [u64; 3] = [1, 2, 3];

/// What one run saw.
struct Run {
    counts: Counts,
    hash: u64,
    updated: usize,
    hours: u64,
}

/// Plays one fleet to its end.
fn play(profile: Profile, seed: u64, broken: Broken) -> Result<Run, String> {
    let mut world = World::new(profile, seed, broken);
    world.play(profile.hours * HOUR);
    if world.wrong.is_none() && profile.bad_boot == 1000 {
        for (group, slots) in profile.slots.iter().enumerate() {
            let of = server::group(group);
            let bad =
                world.nodes.iter().filter(|n| n.group == of && !n.fell_back.is_empty()).count();
            if bad > usize::try_from(*slots).unwrap() {
                world.breaks(
                    group,
                    &format!("a bad update reached {bad} nodes of {slots} slots (promise 6)"),
                );
            }
        }
    }
    // One node after another, a quarter of an hour each, and the longest back-off.
    let most = profile.nodes.div_ceil(profile.slots.len());
    let least = u64::from(*profile.slots.iter().min().unwrap());
    let end = profile.hours + 12 + u64::try_from(most).unwrap() / least / 3;
    world.play(end * HOUR);
    if world.wrong.is_none() {
        world.check_end();
    }
    match world.wrong.take() {
        Some((at, promise)) => Err(format!(
            "{promise}\n  profile {}, seed {seed}, event {}, node {}:\n{}\n  again: FLEET_SEED={seed} \
             FLEET_PROFILE={} cargo test --test fleet one_seed",
            profile.name,
            world.counts.events,
            world.nodes[at].name,
            world.nodes[at].story.iter().map(|line| format!("    {line}\n")).collect::<String>(),
            profile.name,
        )),
        None => Ok(Run {
            counts: world.counts,
            hash: world.hash(),
            updated: world.nodes.iter().filter(|node| node.booted == world.latest).count(),
            hours: end,
        }),
    }
}

#[test]
fn no_promise_is_broken_in_any_fleet() {
    let mut text =
        "## A fleet, simulated\n\nThe real heart and the real slots, in virtual time.\n\n\
        | profile | seeds | agents | virtual hours | events | reboots | faults | updated |\n\
        |---|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for profile in ALL {
        let (mut events, mut reboots, mut faults, mut updated, mut hours) = (0, 0, 0, 0, 0);
        for seed in SEEDS {
            let run =
                play(*profile, seed, Broken::Nothing).unwrap_or_else(|wrong| panic!("{wrong}"));
            events += run.counts.events;
            reboots += run.counts.reboots;
            faults += run.counts.faults;
            updated += run.updated;
            hours += run.hours;
        }
        let _ = writeln!(
            text,
            "| {} | {} | {} | {hours} | {events} | {reboots} | {faults} | {updated} of {} |",
            profile.name,
            SEEDS.len(),
            profile.nodes,
            profile.nodes * SEEDS.len(),
        );
    }
    println!("{text}");
    report("20-fleet.md", &text);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let crashes = ALL.iter().find(|profile| profile.name == "crashes").unwrap();
    let runs =
        [7, 7, 8].map(|seed| play(*crashes, seed, Broken::Nothing).map(|run| run.hash).unwrap());
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

/// A promise that was never seen broken proves nothing.
#[test]
fn broken_parts_are_found_out() {
    let table = [
        (Broken::ServerForgets, "promise 1"),
        (Broken::ServerGrantsOneMore, "promise 2"),
        (Broken::AgentLiftsAll, "promise 3"),
        (Broken::AgentNeverGivesBack, "promise 4"),
        (Broken::AgentDoesNotSettle, "promise 6"),
        (Broken::AgentForgives, "promise 7"),
        (Broken::AgentTakesNoForYes, "promise 1"),
    ];
    let mut text =
        "\n| broken on purpose | found out by | profile, seed |\n|---|---|---|\n".to_owned();
    for (broken, promise) in table {
        let found = ALL
            .iter()
            .flat_map(|profile| (1..=5).map(move |seed| (profile, seed)))
            .find_map(|(profile, seed)| {
                let wrong = play(*profile, seed, broken).err()?;
                wrong.lines().next()?.contains(promise).then_some((profile.name, seed))
            });
        let (profile, seed) = found.unwrap_or_else(|| panic!("{broken:?} was not found out"));
        let _ = writeln!(text, "| {broken:?} | {promise} | {profile}, {seed} |");
    }
    println!("{text}");
    report("21-fleet-broken.md", &text);
}

/// Plays what the environment names; without it, the first seed of the first profile.
#[test]
fn one_seed() {
    let seed = std::env::var("FLEET_SEED").map_or(SEEDS[0], |text| text.parse().expect("a number"));
    let name = std::env::var("FLEET_PROFILE").unwrap_or_else(|_| ALL[0].name.to_owned());
    let profile = ALL.iter().find(|profile| profile.name == name).expect("such a profile");
    play(*profile, seed, Broken::Nothing).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// As many random seeds as fit into `FLEET_MINUTES`; without it one fixed seed of the small profiles.
#[test]
fn random_seeds() {
    let minutes = std::env::var("FLEET_MINUTES").map_or(0, |text| text.parse().expect("a number"));
    let (began, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // What nobody asked for must not fail by chance.
    let first = if minutes > 0 { now << 16 } else { 1000 };
    let (mut runs, mut agents) = (0_u64, 0);
    loop {
        for profile in ALL.iter().filter(|profile| minutes > 0 || profile.nodes < 100) {
            let seed = first + runs;
            play(*profile, seed, Broken::Nothing).unwrap_or_else(|wrong| panic!("{wrong}"));
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
