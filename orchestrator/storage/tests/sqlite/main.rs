//! Tests of the SQLite store through its public interface: logs, damaged rows, shared files, crashes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod crash;
mod damage;
mod fixture;
mod logs;
mod rate;
mod sharing;
