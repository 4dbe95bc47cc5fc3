//! The service that front ends use: everything that a user can do with conversations.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use protocol::client_api::v2::{
    ConversationItem, ConversationItemPage, CreateConversation, ExportConversation,
    ForkConversation, ListConversations,
};
use protocol::event_query::SelectedEventPage;
use protocol::update::StreamMessage;
use protocol::{CommandRequest, ConversationId, Event, EventId, EventQuery};

/// The conversations of one user, or all of them for the operator. Implemented in process by
/// [`UserConversations`](crate::UserConversations), and over HTTP by the crate `client`.
#[async_trait]
pub trait ConversationService: Send + Sync {
    /// Creates a conversation. Returns once its first message is stored; its sandbox is created in
    /// the background. A request with an id that is sent again returns the same conversation.
    async fn create(&self, request: CreateConversation) -> Result<ConversationId, ServiceError>;

    /// Lists conversations, the latest first.
    async fn list(&self, request: ListConversations) -> Result<ConversationItemPage, ServiceError>;

    /// Returns a conversation.
    async fn get(&self, id: &ConversationId) -> Result<ConversationItem, ServiceError>;

    /// Stops a conversation, and deletes it with its sandbox and its own workspace.
    async fn delete(&self, id: &ConversationId) -> Result<(), ServiceError>;

    /// Creates a paused conversation that shares events with another one. A request with an id that
    /// is sent again returns the same conversation.
    async fn fork(
        &self,
        id: &ConversationId,
        request: ForkConversation,
    ) -> Result<ConversationId, ServiceError>;

    /// Applies a command, and runs the conversation if the command needs that. Returns the event
    /// that the command caused, once that is stored. `None` if there was nothing to do. A command
    /// with an id that is sent again is applied once.
    async fn apply(
        &self,
        id: &ConversationId,
        request: CommandRequest,
    ) -> Result<Option<EventId>, ServiceError>;

    /// Returns the events that a query selects.
    async fn events(
        &self,
        id: &ConversationId,
        query: EventQuery,
    ) -> Result<SelectedEventPage, ServiceError>;

    /// Returns the trajectory of a conversation: V0's events.
    async fn export(
        &self,
        id: &ConversationId,
        request: ExportConversation,
    ) -> Result<Vec<Event>, ServiceError>;

    /// Follows a conversation from the event after `after`, or from the first one. The stream ends
    /// with an error, or when it is dropped.
    async fn follow(
        &self,
        id: &ConversationId,
        after: Option<EventId>,
    ) -> Result<Updates, ServiceError>;
}

/// Updates of a conversation. A reader may be slow, and misses no event.
pub type Updates = BoxStream<'static, Result<StreamMessage<Arc<Event>>, ServiceError>>;

/// Why a request to a [`ConversationService`] failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    /// The kind of error, for programs.
    pub kind: ServiceErrorKind,
    /// What is wrong, for people.
    pub message: String,
    /// The cause. `None` if only the server knows it.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of an error of a [`ConversationService`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceErrorKind {
    /// There is no such conversation or event, or the user may not see it.
    NotFound,
    /// The request is invalid.
    Invalid,
    /// The key is not valid, or does not permit the request.
    Denied,
    /// The state of the conversation does not allow the request, such as a second decision.
    Conflict,
    /// The request, or the conversation with it, is too long.
    TooLarge,
    /// Too much runs or is requested. Worth a retry.
    Busy,
    /// The server, its store or another host cannot be reached. Worth a retry.
    Unavailable,
    /// The server failed.
    Failed,
}

impl ServiceErrorKind {
    /// Whether the user can correct the request.
    pub fn is_bad_request(self) -> bool {
        match self {
            Self::NotFound | Self::Invalid | Self::Denied | Self::Conflict | Self::TooLarge => true,
            Self::Busy | Self::Unavailable | Self::Failed => false,
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Busy | Self::Unavailable => true,
            Self::NotFound
            | Self::Invalid
            | Self::Denied
            | Self::Conflict
            | Self::TooLarge
            | Self::Failed => false,
        }
    }
}
