//! What the search remembers of a world: 64 bits. Among ten million worlds two share theirs with a chance
//! of one to 370 000.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use crate::world::World;

/// Sets of keys, so that threads seldom wait for one another.
const SHARDS: usize = 64;

/// Keys that were met.
#[derive(Debug)]
pub(crate) struct Keys(Vec<Mutex<HashSet<u64, BuildHasherDefault<Same>>>>);

/// The key of a world in its normal form.
pub(crate) fn key(world: &World) -> u64 {
    let mut mill = Mill(0x9e37_79b9_7f4a_7c15);
    world.hash(&mut mill);
    mill.finish()
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashSet<u64, BuildHasherDefault<Same>>> {
        self.0[(key % SHARDS as u64) as usize].lock().expect("no panic")
    }

    /// `true` if it is new.
    pub(crate) fn insert(&self, key: u64) -> bool {
        self.shard(key).insert(key)
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.shard(key).contains(&key)
    }

    pub(crate) fn extend(&self, keys: &[u64]) {
        for key in keys {
            self.insert(*key);
        }
    }
}

/// Odd, with as many ones as zeros and no pattern.
const ODD: u64 = 0xe703_7ed1_a0b4_28db;

/// Eight bytes at a time, each multiplied into what came before, both halves of the product kept: half of
/// a search's time went into the standard hasher, which is made against people who choose what collides.
struct Mill(u64);

impl Mill {
    fn take(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(ODD);
        self.0 = (product as u64) ^ ((product >> 64) as u64).wrapping_add(self.0.rotate_left(29));
    }
}

impl Hasher for Mill {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.take(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.take(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, byte: u8) {
        self.take(u64::from(byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.take(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.take(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.take(word as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = Self(self.0);
        last.take(ODD);
        last.0
    }
}

/// A key is as good as its own hash.
#[derive(Debug, Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        // The shard took the lowest bits.
        self.0 = key.rotate_right(6);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
