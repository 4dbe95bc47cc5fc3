//! Event logs: the writer appends to the store first, then publishes; readers follow with a cursor.

mod log;
mod store;

pub use log::{Cursor, EventLog};
pub use store::{ConversationList, ConversationSummary, EventStore, StoreError};
