//! Where event logs live: SQLite, in one file.
//!
//! Implements the engine's [`EventStore`](engine::events::EventStore) and nothing else: no folding, no redaction (that
//! is done before an event comes here), no caches of events.

pub mod sqlite;

pub use sqlite::{Durability, OpenError, SqliteStore};
