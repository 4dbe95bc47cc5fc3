//! The OpenAI wire against scripted servers on loopback: answers, streams, refusals, and what breaks on the way.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod analyzer;
mod answers;
mod breaks;
mod certificates;
mod refusals;
mod scene;
mod server;
