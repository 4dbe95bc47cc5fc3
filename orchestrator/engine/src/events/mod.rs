//! Event logs: append first, then publish; readers follow by cursor.

mod store;

pub use store::{ConversationSummary, EventStore, StoreError};
