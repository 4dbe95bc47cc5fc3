//! The SQLite store as its users see it: its file, damage, dying. The contract of all stores is
//! tested in `tests`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod crash;
mod damage;
mod fixture;
mod logs;
mod migration;
mod rate;
