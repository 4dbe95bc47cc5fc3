//! Tests of the built program through its process, socket and HTTP. One module per topic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by panicking; .clippy.toml allows it in unit tests, and here only within #[test]"
)]

mod actions;
mod connection;
mod dial;
mod environment;
mod files;
mod flood;
mod harness;
mod jupyter;
mod key;
mod lifecycle;
mod log;
mod ports;
mod processes;
#[path = "../../../tests/pypi.rs"]
mod pypi;
mod sessions;
#[path = "../../../tests/skip.rs"]
mod skip;
mod terminal;
mod v0;
mod wrong_input;
