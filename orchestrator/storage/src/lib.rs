//! Event store in SQLite.
//!
//! Implements the engine's [`EventStore`](engine::events::EventStore). Events are redacted before they arrive here, and are not
//! cached or folded.

pub mod sqlite;

pub use sqlite::{Durability, OpenError, SqliteStore};
