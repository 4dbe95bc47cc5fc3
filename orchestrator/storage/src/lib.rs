//! Event store in SQLite.
//!
//! Implements the engine's [`EventStore`](engine::events::EventStore). Events are redacted before they arrive here, and are not
//! cached or folded.

mod event_batch;
mod failure;
pub mod sqlite;
mod stored_event;

pub use sqlite::{Durability, OpenError, SqliteStore};
