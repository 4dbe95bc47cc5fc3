//! The built program as its host meets it: a process, a socket, HTTP. One module a promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by panicking; clippy.toml allows it in unit tests, and here only within #[test]"
)]

mod actions;
mod connection;
mod dial;
mod harness;
mod key;
mod lifecycle;
mod processes;
mod wrong_input;
