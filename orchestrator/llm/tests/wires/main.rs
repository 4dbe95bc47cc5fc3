//! The wires with scripted servers on loopback: responses, streams, errors and broken connections.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod analyzer;
mod anthropic;
mod certificates;
mod log;
mod openai;
mod responses;
mod scene;
mod server;
mod strict;
