//! The built parts under bad luck and ill will: full disks, odd files, wrong users, floods.
//!
//! What a room can show by itself stands beside its code, in `src/**/noise.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod front_desk;
mod full_disk;
