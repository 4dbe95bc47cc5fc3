//! Event logs: the writer appends to the store first, then publishes; readers follow with a cursor.

mod log;
mod overview;
mod query;
mod store;

pub use log::{Cursor, EventLog};
pub use overview::{MAX_EXCERPT_CHARS, Overview, OverviewChange, SearchText};
pub use query::{
    ConversationPage, ConversationQuery, InvalidPosition, ListPosition, ListedConversation,
};
pub use store::{ConversationList, ConversationSummary, EventStore, StoreError};
