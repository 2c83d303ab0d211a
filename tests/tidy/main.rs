//! The rules of the house, held by reading it.
//!
//! Each rule is a function from a text to its complaints; one test runs it over every file, another
//! shows it a small text that breaks it. An exception stands in a table with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cases;
mod code;
mod names;
mod report;
mod rooms;
mod size;
mod tree;
mod words;
