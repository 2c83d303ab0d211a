#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod concurrent;
mod desk;
mod http;
mod noise;
mod rig;
