//! The wires against scripted servers on loopback: answers, streams, refusals, and what breaks on the way.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod analyzer;
mod anthropic;
mod certificates;
mod log;
mod openai;
mod scene;
mod server;
