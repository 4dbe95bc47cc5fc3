//! Entry point of the application layer: the conversations of one store.

use std::sync::Arc;

use engine::events::EventStore;
use protocol::ConversationId;

use crate::host::{ConversationLocks, Workspaces};
use crate::running::RunningConversations;

/// The conversations of one store, including those that run in this process.
pub struct Conversations {
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) locks: Arc<dyn ConversationLocks>,
    pub(crate) workspaces: Arc<dyn Workspaces>,
    pub(crate) running: RunningConversations,
}

impl Conversations {
    /// Creates the conversations of a store. None runs yet.
    pub fn new(
        store: Arc<dyn EventStore>,
        locks: Arc<dyn ConversationLocks>,
        workspaces: Arc<dyn Workspaces>,
    ) -> Self {
        Self {
            store,
            locks,
            workspaces,
            running: RunningConversations::default(),
        }
    }

    /// Generates an id for a new conversation. Later ids sort after earlier ones.
    pub fn new_id() -> ConversationId {
        #[expect(clippy::expect_used, reason = "32 hexadecimal digits are an id")]
        let id = uuid::Uuid::now_v7()
            .simple()
            .to_string()
            .try_into()
            .expect("an id");
        id
    }
}
