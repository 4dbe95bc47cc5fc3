//! Errors of the application layer.

use engine::conversation::ConversationError;
use engine::events::StoreError;
use engine::sandbox::SandboxError;
use protocol::{ConversationId, EventId};

use crate::host::HostError;
use crate::selector::AmbiguousId;
use crate::service::{ServiceError, ServiceErrorKind};

/// A request of a client that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidRequest {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidRequest {
    pub(crate) fn new(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self {
            field: field.into(),
            problem: problem.to_string(),
        }
    }
}

/// Why an operation of [`Conversations`](crate::Conversations) failed.
#[derive(Debug, thiserror::Error)]
pub enum ConversationsError {
    /// No conversation has this id or prefix.
    #[error("there is no conversation {0}")]
    Unknown(ConversationId),
    /// The store is empty.
    #[error("there is no conversation yet")]
    NoConversations,
    /// Several conversations have ids with this prefix.
    #[error(transparent)]
    Ambiguous(#[from] AmbiguousId),
    /// A new conversation was given the id of a stored one.
    #[error("conversation {0} exists already")]
    Exists(ConversationId),
    /// The conversation's log has no such event.
    #[error("conversation {conversation} has no event {event}; its last one is {last}")]
    UnknownEvent {
        /// The conversation.
        conversation: ConversationId,
        /// The requested event.
        event: EventId,
        /// The last event of the log.
        last: EventId,
    },
    /// A field of the request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Only the operator may send this command.
    #[error("only the operator may do this")]
    NotOperator,
    /// Another process runs the conversation. Worth a retry when that process has ended.
    #[error("conversation {0} is being run by another process")]
    Locked(ConversationId),
    /// This process does not run the conversation.
    #[error("conversation {0} is not running")]
    NotRunning(ConversationId),
    /// The conversation runs, and its sandbox is not connected. Worth a retry while it starts.
    #[error("conversation {0} has no sandbox at the moment: send a message to start one")]
    NoSandbox(ConversationId),
    /// The agent is working. Worth a retry when it is idle.
    #[error("the agent of conversation {0} is working: stop it first")]
    Working(ConversationId),
    /// The sandbox would be removed when the conversation is closed.
    #[error(
        "the sandbox of conversation {0} would be removed: the server keeps no sandboxes of closed conversations"
    )]
    SandboxNotKept(ConversationId),
    /// The user decided on an action, and none awaits confirmation.
    #[error("no action of conversation {0} awaits your approval")]
    NothingToDecide(ConversationId),
    /// The user decided on an action, and another one awaits confirmation.
    #[error(
        "action {action} of conversation {conversation} awaits your approval, and your decision is not about it"
    )]
    OtherActionAwaits {
        /// The conversation.
        conversation: ConversationId,
        /// The action that awaits confirmation.
        action: EventId,
    },
    /// The user recovers from a loop, and the agent is in none.
    #[error("the agent of conversation {0} was not stopped in a loop")]
    NotInLoop(ConversationId),
    /// The messages of the user are as long as they may be.
    #[error(
        "the messages of conversation {0} have reached their maximum length: start another one"
    )]
    TooLong(ConversationId),
    /// The server runs as many conversations as it may, and all of them are working. Worth a retry.
    #[error("{0} conversations are working, which is the maximum")]
    TooManyRunning(usize),
    /// The caller has stopped waiting. Only logs show this error.
    #[error("the request was abandoned")]
    Abandoned,
    /// The server shuts down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The event store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The conversation's task failed.
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    /// The conversation's sandbox cannot be removed.
    #[error("cannot remove the sandbox of the conversation")]
    RemoveSandbox(#[source] SandboxError),
    /// A lock, a folder or a backend of this machine failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl ConversationsError {
    /// Whether a retry of the same request fails again.
    pub fn is_bad_request(&self) -> bool {
        match self {
            Self::Unknown(_)
            | Self::Exists(_)
            | Self::NoConversations
            | Self::Ambiguous(_)
            | Self::UnknownEvent { .. }
            | Self::NotRunning(_)
            | Self::SandboxNotKept(_)
            | Self::NothingToDecide(_)
            | Self::OtherActionAwaits { .. }
            | Self::NotInLoop(_)
            | Self::TooLong(_)
            | Self::Invalid(_)
            | Self::NotOperator
            | Self::Host(HostError::Refused(_) | HostError::NoModel | HostError::NoModelKey(_)) => {
                true
            }
            Self::Locked(_)
            | Self::NoSandbox(_)
            | Self::Working(_)
            | Self::TooManyRunning(_)
            | Self::Abandoned
            | Self::ShuttingDown
            | Self::Store(_)
            | Self::Conversation(_)
            | Self::RemoveSandbox(_)
            | Self::Host(HostError::Failed(_)) => false,
        }
    }

    /// Returns the kind of error for users of the service.
    fn kind(&self) -> ServiceErrorKind {
        match self {
            Self::Unknown(_) | Self::NoConversations | Self::UnknownEvent { .. } => {
                ServiceErrorKind::NotFound
            }
            Self::Ambiguous(_)
            | Self::Invalid(_)
            | Self::Host(HostError::Refused(_) | HostError::NoModel | HostError::NoModelKey(_)) => {
                ServiceErrorKind::Invalid
            }
            Self::NotOperator => ServiceErrorKind::Denied,
            Self::Exists(_)
            | Self::Locked(_)
            | Self::NotRunning(_)
            | Self::NoSandbox(_)
            | Self::Working(_)
            | Self::SandboxNotKept(_)
            | Self::NothingToDecide(_)
            | Self::OtherActionAwaits { .. }
            | Self::NotInLoop(_)
            | Self::Conversation(ConversationError::Closed(_)) => ServiceErrorKind::Conflict,
            Self::TooLong(_) => ServiceErrorKind::TooLarge,
            Self::TooManyRunning(_)
            | Self::Abandoned
            | Self::Conversation(ConversationError::Busy(_)) => ServiceErrorKind::Busy,
            Self::ShuttingDown
            | Self::Store(StoreError::LeaseLost { .. } | StoreError::Storage { .. })
            | Self::Conversation(ConversationError::Log(
                _,
                StoreError::LeaseLost { .. } | StoreError::Storage { .. },
            )) => ServiceErrorKind::Unavailable,
            Self::Conversation(ConversationError::Unknown(_)) => ServiceErrorKind::NotFound,
            Self::Store(_)
            | Self::Conversation(_)
            | Self::RemoveSandbox(_)
            | Self::Host(HostError::Failed(_)) => ServiceErrorKind::Failed,
        }
    }
}

impl From<ConversationsError> for ServiceError {
    fn from(error: ConversationsError) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
            source: Some(Box::new(error)),
        }
    }
}
