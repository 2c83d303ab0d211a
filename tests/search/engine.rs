//! The search: breadth first, each level shared among threads, every world once by its normal form.
//!
//! From every world that is found the heart is also played to its end without further faults. Where it ends
//! is remembered, so that each way is walked once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use lockkeeper::fleetlock::SlotAnswer;
use lockkeeper::lifecycle::{Outcome, Stage};

use crate::keys::{Keys, key};
use crate::moves::Told;
use crate::world::{Broken, Host, Play, World};

/// Steps from any world to its end without faults, at most; a cycle takes about 60.
const STEPS_TO_REST: usize = 2000;

/// Worlds that a thread takes at a time.
const PIECE: usize = 32;

/// What a search found.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    /// Worlds.
    pub(crate) states: usize,
    /// Steps to the one that is farthest away.
    pub(crate) deepest: usize,
    /// Every world was found; else all of those within `deepest` steps.
    pub(crate) all: bool,
    /// Steps that ended an attempt, by how, and by the faults used on the way.
    pub(crate) ended: BTreeMap<(Outcome, u8), usize>,
    /// What happened anywhere, in words.
    pub(crate) told: BTreeSet<&'static str>,
    /// Worlds in which every node has gone round and all is at rest.
    pub(crate) all_round: usize,
    /// Worlds after which nothing comes, by their keys.
    pub(crate) ends: BTreeSet<u64>,
}

/// A broken promise, and how the world came to it.
#[derive(Debug)]
pub(crate) struct Story {
    /// The promise.
    pub(crate) broken: Broken,
    /// The steps.
    pub(crate) steps: Vec<String>,
}

/// Whether all nodes have gone round once everything that can happen has happened, without faults.
pub(crate) fn goes_round(play: &Play) -> bool {
    let mut world = play.first();
    for host in &mut world.hosts {
        host.faults = 0;
    }
    for _ in 0..STEPS_TO_REST {
        match world.first_successor(play) {
            Some((_, next)) => world = next,
            None => return world.broken.is_none() && world.all_round(play),
        }
    }
    false
}

struct Search<'a> {
    play: &'a Play,
    seen: Keys,
    rests: Keys,
    /// Of every world: the one before it, and what happened.
    parents: Vec<(u32, Told)>,
}

/// What one thread made of its part of a level.
#[derive(Default)]
struct Part {
    next: Vec<(u32, Told, World)>,
    broken: Option<(u32, Told, Broken, Vec<String>)>,
    ended: BTreeMap<(Outcome, u8), usize>,
    all_round: usize,
    ends: Vec<u64>,
    told: BTreeSet<&'static str>,
}

/// Visits every world that can be reached within this many steps; the first broken promise ends it.
pub(crate) fn search(
    play: &Play,
    steps_max: usize,
    states_max: usize,
) -> Result<Found, Box<Story>> {
    let mut search = Search { play, seen: Keys::new(), rests: Keys::new(), parents: Vec::new() };
    let mut found = Found::default();
    let mut first = play.first();
    first.normalise(play);
    search.seen.insert(key(&first));
    search.parents.push((0, (0, "the world begins")));
    let mut level = vec![(0_u32, first)];
    while found.deepest < steps_max && search.parents.len() < states_max {
        let parts = search.expand(level);
        let mut next = Vec::new();
        let broken = parts.iter().filter_map(|part| part.broken.as_ref());
        if let Some((parent, told, broken, then)) = broken.min_by_key(|broken| broken.0) {
            let steps = search.tell(*parent, *told, then);
            return Err(Box::new(Story { broken: broken.clone(), steps }));
        }
        for part in parts {
            for (ended, count) in part.ended {
                *found.ended.entry(ended).or_insert(0) += count;
            }
            found.all_round += part.all_round;
            found.ends.extend(part.ends);
            found.told.extend(part.told);
            for (parent, told, world) in part.next {
                let at = u32::try_from(search.parents.len()).expect("fewer than 2^32 worlds");
                search.parents.push((parent, told));
                next.push((at, world));
            }
        }
        found.states = search.parents.len();
        level = next;
        if level.is_empty() {
            found.all = true;
            break;
        }
        found.deepest += 1;
    }
    Ok(found)
}

impl Search<'_> {
    /// The threads take pieces of the level until none is left, and drop what they took.
    fn expand(&self, mut level: Vec<(u32, World)>) -> Vec<Part> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if level.len() < 2 * PIECE {
            return vec![self.expand_part(&level)];
        }
        let mut pieces = Vec::new();
        while !level.is_empty() {
            pieces.push(level.split_off(level.len().saturating_sub(PIECE)));
        }
        let parts = Mutex::new(Vec::with_capacity(pieces.len()));
        let pieces = Mutex::new(pieces.into_iter().enumerate());
        let next = || pieces.lock().expect("no panic").next();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((at, piece)) = next() {
                        let part = self.expand_part(&piece);
                        parts.lock().expect("no panic").push((at, part));
                    }
                });
            }
        });
        let mut parts = parts.into_inner().expect("no panic");
        parts.sort_by_key(|(at, _)| *at);
        parts.into_iter().map(|(_, part)| part).collect()
    }

    fn expand_part(&self, level: &[(u32, World)]) -> Part {
        let mut part = Part::default();
        for (at, world) in level {
            let successors = self.successors(world);
            if successors.is_empty() {
                part.ends.push(key(world));
            }
            for (told, next) in successors {
                part.told.insert(told.1);
                if let Some(broken) = next.broken.clone() {
                    part.broken.get_or_insert((*at, told, broken, Vec::new()));
                    return part;
                }
                if let Some(outcome) = next.ended {
                    let used = self.play.rules.faults.iter().sum::<u8>() - next.faults();
                    *part.ended.entry((outcome, used)).or_insert(0) += 1;
                }
                if !self.seen.insert(key(&next)) {
                    continue;
                }
                if let Err((broken, then)) = self.rest(&next) {
                    part.broken.get_or_insert((*at, told, broken, then));
                    return part;
                }
                part.all_round += usize::from(next.all_round(self.play));
                part.next.push((*at, told, next));
            }
        }
        part
    }

    /// What can follow. Of several hosts one goes first where the others cannot see it, unless that leads
    /// only to where the search has been: then the others might wait for ever.
    fn successors(&self, world: &World) -> Vec<(Told, World)> {
        if world.faults() == 0 && world.halted_for_good() {
            return Vec::new();
        }
        if world.hosts.len() > 1 {
            for at in 0..world.hosts.len() {
                let next = world.private_successors(self.play, at);
                if next.iter().any(|(_, next)| !self.seen.contains(key(next))) {
                    return next;
                }
            }
        }
        world.successors(self.play)
    }

    /// Plays a world to its end without faults: the first that can happen happens. It must come to where
    /// nothing happens any more, or again and again to where everything is in order.
    fn rest(&self, world: &World) -> Result<(), (Broken, Vec<String>)> {
        let mut world = world.clone();
        for host in &mut world.hosts {
            host.faults = 0;
        }
        let mut path: Vec<u64> = Vec::new();
        let mut orderly: Vec<bool> = Vec::new();
        let mut then: Vec<String> = Vec::new();
        for _ in 0..STEPS_TO_REST {
            world.normalise(self.play);
            let here = key(&world);
            if let Some(before) = path.iter().position(|key| *key == here) {
                if orderly[before..].contains(&true) {
                    self.rests.extend(&path);
                    return Ok(());
                }
                let (promise, what) = world
                    .at_rest(self.play)
                    .map_or((8, "nothing".to_owned()), |broken| (broken.promise, broken.what));
                self.rests.extend(&path);
                return self.no_rest(promise, format!("goes round and round: {what}"), then);
            }
            if self.rests.contains(here) {
                self.rests.extend(&path);
                return Ok(());
            }
            if world.halted_for_good() {
                self.rests.extend(&path);
                return match world.at_rest(self.play) {
                    Some(broken) if self.counts(broken.promise) => Err((broken, then)),
                    Some(_) | None => Ok(()),
                };
            }
            let in_order = world.at_rest(self.play);
            path.push(here);
            orderly.push(in_order.is_none());
            let Some(((at, words), next)) = world.first_successor(self.play) else {
                if let Some(broken) = in_order.filter(|broken| self.counts(broken.promise)) {
                    return Err((broken, then));
                }
                self.rests.extend(&path);
                return Ok(());
            };
            then.push(format!("n{at}: {words}"));
            if let Some(broken) = next.broken {
                return Err((broken, then));
            }
            world = next;
        }
        self.rests.extend(&path);
        self.no_rest(8, format!("no rest within {STEPS_TO_REST} steps"), then)
    }

    fn no_rest(
        &self,
        promise: u8,
        what: String,
        then: Vec<String>,
    ) -> Result<(), (Broken, Vec<String>)> {
        if self.counts(promise) { Err((Broken { promise, what }, then)) } else { Ok(()) }
    }

    fn counts(&self, promise: u8) -> bool {
        self.play.only.is_none_or(|only| only == promise)
    }

    fn tell(&self, mut at: u32, last: Told, then: &[String]) -> Vec<String> {
        let say = |told: Told| format!("n{}: {}", told.0, told.1);
        let mut steps = vec![say(last)];
        while at != 0 {
            let (before, told) = self.parents[at as usize];
            steps.push(say(told));
            at = before;
        }
        steps.reverse();
        steps.extend(then.iter().map(|step| format!("then {step}")));
        steps
    }
}

impl World {
    /// Faults that are left.
    pub(crate) fn faults(&self) -> u8 {
        self.hosts.iter().map(|host| host.faults).sum()
    }

    /// One node has halted with the slot, and every other has nothing to do or is told no: only a person
    /// ends this.
    fn halted_for_good(&self) -> bool {
        let halted = |host: &Host| host.stage() == Some(Stage::Halted);
        let settled = |host: &Host| match &host.agent {
            None => false,
            Some(agent) => match agent.record.core.stage {
                Stage::Halted | Stage::Idle => true,
                Stage::Requesting => {
                    matches!(agent.view.slot_answer, Some(SlotAnswer::Denied { .. }))
                }
                Stage::Waiting
                | Stage::Draining
                | Stage::Rebooting
                | Stage::Settling
                | Stage::Stuck
                | Stage::Uncordoning
                | Stage::Yielding
                | Stage::Releasing => false,
            },
        };
        self.hosts.len() > 1 && self.hosts.iter().any(halted) && self.hosts.iter().all(settled)
    }

    fn all_round(&self, play: &Play) -> bool {
        self.hosts.iter().all(|host| host.rounds > 0) && self.at_rest(play).is_none()
    }
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "promise {}: {}\n  {}",
            self.broken.promise,
            self.broken.what,
            self.steps.join("\n  ")
        )
    }
}
