//! Stops the agent of a conversation whose caller is gone.

use std::sync::Arc;

use protocol::ConversationId;

use super::HostedConversations;

/// Stops a conversation when it is dropped.
pub(super) struct StopOnDrop {
    hosted: Arc<HostedConversations>,
    id: ConversationId,
    is_armed: bool,
}

impl StopOnDrop {
    pub(super) fn new(hosted: Arc<HostedConversations>, id: ConversationId) -> Self {
        Self {
            hosted,
            id,
            is_armed: true,
        }
    }

    /// Returns the conversation.
    pub(super) fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Lets the conversation continue.
    pub(super) fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // One that is interrupted by a shutdown continues with the next start of the server.
        if !self.is_armed || self.hosted.shutdown.is_cancelled() {
            return;
        }
        let (hosted, id) = (Arc::clone(&self.hosted), self.id.clone());
        self.hosted.tasks.spawn(async move {
            if let Err(error) = hosted.stop(&id).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(conversation = %id, error, "cannot stop the agent of a caller that is gone");
            }
        });
    }
}
