#![allow(clippy::unwrap_used, clippy::expect_used)]

mod concurrent;
mod desk;
mod http;
mod rig;
