//! Errors of an open conversation.

use protocol::ConversationId;

use crate::events::StoreError;

/// Why a conversation cannot continue, or did not accept a command.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// Its log cannot be read or appended to.
    #[error("cannot read or write the log of conversation {0}")]
    Log(ConversationId, #[source] StoreError),
    /// No conversation has this id.
    #[error("there is no conversation {0}")]
    Unknown(ConversationId),
    /// A task of it panicked, which is a defect of this program.
    #[error("a task of conversation {0} panicked")]
    Panicked(ConversationId),
    /// Its task has ended.
    #[error("conversation {0} is closed")]
    Closed(ConversationId),
    /// Its mailbox is full. Worth a retry.
    #[error("cannot send to conversation {0}: its mailbox is full")]
    Busy(ConversationId),
}
