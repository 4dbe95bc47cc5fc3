//! Closes conversations that are idle.

use std::sync::Arc;
use std::time::Duration;

use protocol::{ConversationId, ConversationUpdate, EventId};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::HostedConversations;
use super::slots::Slot;
use crate::error::ConversationsError;
use crate::follow::Follower;
use crate::running::CloseReason;

/// Delay before a log is read again that could not be read.
const FOLLOW_RETRY_DELAY: Duration = Duration::from_secs(5);

impl HostedConversations {
    /// Closes a running conversation once it is idle for the configured time, or has failed.
    /// Returns its slot when it no longer runs.
    pub(super) async fn close_when_idle(
        self: &Arc<Self>,
        id: &ConversationId,
        slot: Slot,
    ) -> Result<(), ConversationsError> {
        let lost = self.conversations.claim_lost(id);
        let from = self
            .conversations
            .state(id)
            .map_or(EventId::FIRST, |state| state.next_id);
        let follower = match self.conversations.follow(id, from).await {
            Ok(follower) => follower,
            Err(error) => {
                // Otherwise nothing would ever close it.
                drop(self.close(id, CloseReason::Shutdown).await);
                return Err(error);
            }
        };
        let (this, id) = (Arc::clone(self), id.clone());
        self.tasks.spawn(async move {
            let _slot = slot;
            this.close_followed(&id, follower, lost).await;
        });
        Ok(())
    }

    async fn close_followed(
        &self,
        id: &ConversationId,
        mut follower: Follower,
        lost: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = lost.cancelled() => {}
                () = self.wait_until_idle(&mut follower) => {}
            }
            let lock = self.change_lock(id);
            let _changing = lock.lock().await;
            // It may have been closed, and opened again with another follower.
            let is_replaced = follower.is_closed() && !self.conversations.has_failed(id);
            if is_replaced {
                return;
            }
            if lost.is_cancelled() {
                return self.close_lost(id).await;
            }
            // Not closed if a message has arrived meanwhile.
            if self.close_idle(id).await {
                return;
            }
        }
    }

    /// Closes a conversation that another host may run by now. Its sandbox is kept for that host.
    async fn close_lost(&self, id: &ConversationId) {
        tracing::warn!(conversation = %id, "closing a conversation that another host may take over");
        if let Err(error) = self.close(id, CloseReason::Shutdown).await {
            tracing::debug!(conversation = %id, error = &error as &dyn std::error::Error, "its task had failed");
        }
    }

    /// Returns once nothing happens for the configured time while the conversation is idle, or
    /// once it is closed.
    async fn wait_until_idle(&self, follower: &mut Follower) {
        let mut is_idle = follower.is_idle();
        loop {
            let update = if is_idle {
                match timeout(self.options.close_delay, follower.next()).await {
                    Ok(update) => update,
                    Err(_) => return,
                }
            } else {
                follower.next().await
            };
            match update {
                Ok(ConversationUpdate::Waiting(waiting)) => is_idle = waiting.is_idle,
                Ok(ConversationUpdate::Event(_)) => is_idle = false,
                Ok(ConversationUpdate::Closed {}) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot follow a conversation"
                    );
                    sleep(FOLLOW_RETRY_DELAY).await;
                }
            }
        }
    }
}
