//! The wires with scripted servers on loopback: responses, streams, errors and broken connections.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../../tests/skip.rs"]
mod skip;
#[allow(dead_code, reason = "no packages of npm are needed")]
#[path = "../../../../tests/test_packages.rs"]
mod test_packages;

mod analyzer;
mod anthropic;
mod certificates;
mod log;
mod openai;
mod responses;
mod scene;
mod sdk_types;
mod server;
