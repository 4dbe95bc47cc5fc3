//! What one user can do with the conversations of a server.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use protocol::client_api::v2::{
    ConversationItem, ConversationItemPage, CreateConversation, ExportConversation,
    ForkConversation, ListConversations,
};
use protocol::event_query::SelectedEventPage;
use protocol::{
    CommandRequest, ConversationId, ConversationUpdate, Event, EventId, EventQuery, UserCommand,
    UserId,
};

use super::factory::check_new_id;
use super::{EventStream, HostedConversations};
use crate::client_limits::check_limit;
use crate::client_view::{event_json, to_client};
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::error::InvalidRequest;
use crate::event_query::SelectedEvents;
use crate::hosted::ConversationRequest;
use crate::list::{ConversationEntry, ConversationFilter};
use crate::service::{ConversationService, ServiceError, Updates};

/// Maximum number of conversations of a page.
const MAX_LIST_SIZE: usize = 100;

/// Maximum number of events of a page.
const MAX_EVENTS: usize = 1000;

/// Length of the events of a page, in bytes of JSON. The page ends with the event that exceeds it.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// The conversations of one user of a server, or all of them for the operator.
pub struct UserConversations {
    pub(super) hosted: Arc<HostedConversations>,
    /// `None` for the operator.
    user: Option<UserId>,
}

impl UserConversations {
    /// Returns the conversations of a user. `None` for the operator.
    pub fn new(hosted: Arc<HostedConversations>, user: Option<UserId>) -> Self {
        Self { hosted, user }
    }

    /// Rejects conversations of others, exactly as if there were none.
    pub(super) async fn authorize(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        let conversations = self.hosted.conversations();
        match &self.user {
            Some(user) if !conversations.is_owned_by(id, user).await? => {
                Err(ConversationsError::Unknown(id.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ConversationService for UserConversations {
    async fn create(&self, request: CreateConversation) -> Result<ConversationId, ServiceError> {
        let request = ConversationRequest::new(self.user.clone(), request);
        Ok(self.hosted.create(request).await?)
    }

    async fn list(&self, request: ListConversations) -> Result<ConversationItemPage, ServiceError> {
        Ok(self.hosted.list(self.user.as_ref(), request).await?)
    }

    async fn get(&self, id: &ConversationId) -> Result<ConversationItem, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.item(self.user.as_ref(), id).await?)
    }

    async fn delete(&self, id: &ConversationId) -> Result<(), ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.delete(id).await?)
    }

    async fn fork(
        &self,
        id: &ConversationId,
        request: ForkConversation,
    ) -> Result<ConversationId, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.fork(id, request).await?)
    }

    async fn apply(
        &self,
        id: &ConversationId,
        request: CommandRequest,
    ) -> Result<Option<EventId>, ServiceError> {
        self.authorize(id).await?;
        check_right(self.user.as_ref(), &request.command)?;
        Ok(self.hosted.apply(id, request).await?)
    }

    async fn events(
        &self,
        id: &ConversationId,
        query: EventQuery,
    ) -> Result<SelectedEventPage, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.events(id, query).await?)
    }

    async fn export(
        &self,
        id: &ConversationId,
        request: ExportConversation,
    ) -> Result<Vec<Event>, ServiceError> {
        self.authorize(id).await?;
        let conversations = self.hosted.conversations();
        Ok(conversations.export(id, request.with_screenshots).await?)
    }

    async fn follow(
        &self,
        id: &ConversationId,
        after: Option<EventId>,
    ) -> Result<Updates, ServiceError> {
        self.authorize(id).await?;
        let from = after.map_or(EventId::FIRST, EventId::next);
        let events = self.hosted.stream(id, from).await?;
        Ok(updates(events))
    }
}

/// Returns the updates that clients see.
fn updates(events: EventStream) -> Updates {
    let updates = stream::unfold(Some(events), async |open| {
        let mut events = open?;
        match events.next().await {
            Ok(update) => Some((Ok(update), Some(events))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let visible = updates.filter_map(
        async |update: Result<ConversationUpdate<Arc<Event>>, ConversationsError>| match update {
            Ok(update) => to_client(update).map(Ok),
            Err(error) => Some(Err(error.into())),
        },
    );
    visible.boxed()
}

/// Checks that a user may send a command. Only the operator grants other limits than the initial
/// ones, and changes which actions require confirmation.
///
/// # Errors
/// [`ConversationsError::NotOperator`].
pub fn check_right(user: Option<&UserId>, command: &UserCommand) -> Result<(), ConversationsError> {
    let is_for_operator = match command {
        UserCommand::SetConfirmation { .. } => true,
        UserCommand::Resume {
            more_iterations,
            more_budget,
        } => more_iterations.is_some() || more_budget.is_some(),
        UserCommand::SendMessage(_)
        | UserCommand::Stop
        | UserCommand::Pause
        | UserCommand::AwaitMessage
        | UserCommand::RecoverFromLoop { .. }
        | UserCommand::Confirm { .. }
        | UserCommand::Reject { .. }
        | UserCommand::SetModel { .. }
        | UserCommand::SetTitle { .. }
        | UserCommand::GiveFeedback(_) => false,
    };
    if is_for_operator && user.is_some() {
        return Err(ConversationsError::NotOperator);
    }
    Ok(())
}

impl HostedConversations {
    /// Lists the conversations of a user, the latest first; all of them for the operator.
    ///
    /// # Errors
    /// [`ConversationsError::Invalid`] or [`ConversationsError::Store`].
    pub async fn list(
        &self,
        user: Option<&UserId>,
        request: ListConversations,
    ) -> Result<ConversationItemPage, ConversationsError> {
        check_limit(request.limit, MAX_LIST_SIZE)?;
        let statuses = request.status.iter().map(|name| name.parse());
        let statuses = statuses.collect::<Result<Vec<_>, _>>();
        let before = request.before.map(|before| before.parse()).transpose();
        let filter = ConversationFilter {
            text: request.text,
            statuses: statuses.map_err(|error| InvalidRequest::new("status", error))?,
            repository: request.repository,
            owner: user.cloned().or(request.owner),
            before: before.map_err(|error| InvalidRequest::new("before", error))?,
            limit: Some(request.limit + 1),
            ..ConversationFilter::default()
        };
        let mut entries = self.conversations.list(&filter).await?;
        let has_more = entries.len() > request.limit;
        entries.truncate(request.limit);
        let last = entries.last().and_then(ConversationEntry::position);
        let next = last.filter(|_| has_more);
        Ok(ConversationItemPage {
            conversations: entries
                .iter()
                .filter_map(|entry| self.to_item(user, entry))
                .collect(),
            next: next.map(|position| position.to_string()),
        })
    }

    /// Returns a conversation as a user sees it. `None` for the operator.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn item(
        &self,
        user: Option<&UserId>,
        id: &ConversationId,
    ) -> Result<ConversationItem, ConversationsError> {
        let entry = self.conversations.entry(id).await?;
        let item = entry.and_then(|entry| self.to_item(user, &entry));
        item.ok_or_else(|| ConversationsError::Unknown(id.clone()))
    }

    /// Returns a page of the events that clients see.
    ///
    /// # Errors
    /// [`ConversationsError::Invalid`], [`ConversationsError::Unknown`] or
    /// [`ConversationsError::Store`].
    pub async fn events(
        &self,
        id: &ConversationId,
        query: EventQuery,
    ) -> Result<SelectedEventPage, ConversationsError> {
        check_limit(query.limit, MAX_EVENTS)?;
        let SelectedEvents {
            events,
            has_more,
            next,
        } = self
            .conversations
            .query(id, query, MAX_PAGE_BYTES, event_json)
            .await?;
        Ok(SelectedEventPage {
            events,
            next_id: has_more.then_some(next),
        })
    }

    /// Creates a paused conversation that shares the events of another one. Returns the
    /// conversation that its user has created under the same id before.
    ///
    /// # Errors
    /// [`ConversationsError::Invalid`], [`ConversationsError::Exists`], or those of
    /// [`Conversations::fork`](crate::Conversations::fork).
    pub async fn fork(
        self: &Arc<Self>,
        from: &ConversationId,
        request: ForkConversation,
    ) -> Result<ConversationId, ConversationsError> {
        let ForkConversation { id, last_event } = request;
        check_new_id(id.as_ref())?;
        let is_repeatable = id.is_some();
        let (from, id) = (from.clone(), id.unwrap_or_else(Conversations::new_id));
        self.change(&id, move |this, id| async move {
            let owner = this.conversations.owner(&from).await?;
            if !is_repeatable || !this.is_created(&id, &owner).await? {
                this.conversations.fork(&from, last_event, &id).await?;
            }
            Ok(id)
        })
        .await
    }

    /// `None` if its entry in the store cannot be read.
    fn to_item(
        &self,
        user: Option<&UserId>,
        entry: &ConversationEntry,
    ) -> Option<ConversationItem> {
        let summary = entry.summary.as_ref()?;
        let overview = entry.overview.as_ref().ok();
        let is_running = entry.is_locked || self.conversations.is_running(&summary.id);
        Some(ConversationItem {
            id: summary.id.clone(),
            title: overview.map_or("", |overview| overview.title()).to_owned(),
            status: entry.status(),
            agent_state: overview.map(|overview| overview.agent_state()),
            is_running,
            model: overview.and_then(|overview| overview.model.clone()),
            cost: overview.map_or(0.0, |overview| overview.cost()),
            owner: overview.and_then(|overview| overview.owner.clone()),
            repository: overview.and_then(|overview| overview.repository.clone()),
            git_provider: overview.and_then(|overview| overview.git_provider),
            branch: overview.and_then(|overview| overview.branch.clone()),
            folder: overview
                .filter(|_| user.is_none())
                .and_then(|overview| overview.folder.clone()),
            trigger: overview.and_then(|overview| overview.trigger),
            event_count: summary.events,
            created_at: summary.created_at.with_utc_zone(),
            last_updated_at: summary.last_updated_at.with_utc_zone(),
        })
    }
}
