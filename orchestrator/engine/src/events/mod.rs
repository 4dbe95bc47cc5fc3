//! Event logs: append first, then publish; readers follow by cursor.

mod log;
mod store;

pub use log::{Cursor, EventLog};
pub use store::{ConversationList, ConversationSummary, EventStore, StoreError};
