//! Closes conversations that are at rest.

use std::sync::Arc;

use protocol::{ConversationId, EventId};
use tokio::time::timeout;

use super::HostedConversations;
use crate::{CloseReason, ConversationUpdate, ConversationsError, FollowOptions, Follower};

impl HostedConversations {
    /// Closes a running conversation once it is at rest for the configured time, or has failed.
    pub(super) async fn close_when_idle(
        self: &Arc<Self>,
        id: &ConversationId,
    ) -> Result<(), ConversationsError> {
        let from = self.conversations.state(id).map_or(EventId::FIRST, |state| state.next_id);
        let options = FollowOptions { from, auto_continue: false };
        // The first follower also sends the messages of a replayed user.
        let follower = self.conversations.follow(id, options).await?;
        let (this, id) = (Arc::clone(self), id.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = this.shutdown.cancelled() => return,
                () = this.wait_until_idle(follower) => {}
            }
            let lock = this.change_lock(&id);
            let _changing = lock.lock().await;
            // A message may have arrived meanwhile.
            if this.conversations.is_at_rest(&id)
                && let Err(error) = this.conversations.close(&id, CloseReason::AtRest).await
            {
                tracing::warn!(conversation = %id, %error, "closed a conversation that had failed");
            }
        });
        Ok(())
    }

    /// Returns once nothing happens for the configured time while the conversation is at rest, or once it is closed.
    async fn wait_until_idle(&self, mut follower: Follower) {
        let mut is_at_rest = false;
        loop {
            let update = if is_at_rest {
                match timeout(self.options.close_delay, follower.next()).await {
                    Ok(update) => update,
                    Err(_) => return,
                }
            } else {
                follower.next().await
            };
            match update {
                Ok(ConversationUpdate::Waiting(waiting)) => is_at_rest = waiting.is_at_rest,
                Ok(ConversationUpdate::Event(_)) => is_at_rest = false,
                Ok(ConversationUpdate::Closed) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot follow a conversation");
                    return;
                }
            }
        }
    }
}
