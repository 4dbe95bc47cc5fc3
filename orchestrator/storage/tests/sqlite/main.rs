//! The SQLite store as its users see it: the seam's promises, damage, sharing a file, dying.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod crash;
mod damage;
mod logs;
mod rate;
mod scene;
mod sharing;
