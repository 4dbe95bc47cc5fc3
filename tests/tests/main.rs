//! All suites, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test says what it expects by panicking

mod command_line;
mod conversation;
mod crash_recovery;
mod sandbox_commands;
mod sandbox_docker;
mod sandbox_local;
