//! The list of conversations, and the search in it.
//!
//! Reads the overviews that the store keeps, and no events, so that its cost does not depend on the
//! lengths of the logs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use engine::events::{
    ConversationQuery, ConversationSummary, EventStore, ListPosition, ListedConversation, Overview,
    OverviewChange, StoreError,
};
use protocol::client_api::v2::ConversationStatus;
use protocol::record::ConversationTrigger;
use protocol::{AgentState, ConversationId, EventId, UserId};

use crate::error::ConversationsError;
use crate::host::ConversationLocks;
use crate::log_pages::MAX_PAGE_BYTES;

/// Maximum number of conversations per read of the store. Bounds the memory if a filter selects few
/// of them.
const PAGE_SIZE: usize = 500;

/// Number of events per read of those that an overview lacks.
const EVENT_PAGE_SIZE: usize = 256;

/// Selects conversations of the list. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Text that title, start of the first message, model or folder contain, in any case.
    pub text: Option<String>,
    /// Statuses to select. Empty selects all.
    pub statuses: Vec<ConversationStatus>,
    /// The folder that the conversation works in.
    pub folder: Option<PathBuf>,
    /// The repository in the workspace: a part of its URL.
    pub repository: Option<String>,
    /// What created it. Conversations without a trigger have the default one.
    pub trigger: Option<ConversationTrigger>,
    /// The user who owns it. `None` selects those of all users and of the operator.
    pub owner: Option<UserId>,
    /// Selects the conversations that follow this position.
    pub before: Option<ListPosition>,
    /// Maximum number of conversations, the latest first.
    pub limit: Option<usize>,
}

/// One conversation of the list.
#[derive(Debug)]
pub struct ConversationEntry {
    /// `None` if even the entry in the store cannot be read.
    pub summary: Option<ConversationSummary>,
    /// Overview of its log, or why it cannot be read.
    pub overview: Result<Overview, StoreError>,
    /// Whether a process runs the conversation.
    pub is_locked: bool,
}

impl ConversationEntry {
    /// Returns the id. For a damaged entry, returns the text in place of the id.
    pub fn id(&self) -> &str {
        match (&self.summary, &self.overview) {
            (Some(summary), _) => summary.id.as_str(),
            (None, Err(StoreError::DamagedEntry { conversation, .. })) => conversation,
            (None, _) => "",
        }
    }

    /// Returns its position in the list. `None` if its entry in the store cannot be read.
    pub fn position(&self) -> Option<ListPosition> {
        self.summary.as_ref().map(ListPosition::from)
    }

    /// Returns the status. A conversation whose process has ended is not running.
    pub fn status(&self) -> ConversationStatus {
        match &self.overview {
            Ok(overview) if overview.agent_state().is_working() && !self.is_locked => {
                ConversationStatus::Interrupted
            }
            Ok(overview) => ConversationStatus::Agent(overview.agent_state()),
            Err(_) => ConversationStatus::Damaged,
        }
    }

    /// Returns why the conversation cannot be read, with the cause. `None` if it can.
    pub fn error(&self) -> Option<String> {
        let error = self.overview.as_ref().err()?;
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        Some(format!("{error}{}", cause.unwrap_or_default()))
    }
}

impl ConversationFilter {
    /// Returns the query for conversations that the filter may select. Whether one is interrupted
    /// is not known to the store.
    fn to_query(&self) -> ConversationQuery {
        // A path without redundant separators, as it is stored.
        let folder = self
            .folder
            .as_ref()
            .map(|folder| folder.components().collect::<PathBuf>());
        ConversationQuery {
            text: self.text.as_ref().map(|text| text.to_lowercase()),
            agent_states: self.agent_states(),
            folder: folder.map(|folder| folder.to_string_lossy().into_owned()),
            repository: self.repository.clone(),
            trigger: self.trigger,
            owner: self.owner.clone(),
            before: self.before.clone(),
            limit: PAGE_SIZE,
        }
    }

    /// Returns the states of agents that conversations of the selected statuses can have. Empty for
    /// all.
    fn agent_states(&self) -> Vec<AgentState> {
        if self.statuses.contains(&ConversationStatus::Damaged) {
            return Vec::new();
        }
        let is_selected = |state: &AgentState| {
            self.statuses.contains(&ConversationStatus::Agent(*state))
                || state.is_working() && self.statuses.contains(&ConversationStatus::Interrupted)
        };
        let agent_states = ConversationStatus::ALL
            .into_iter()
            .filter_map(ConversationStatus::agent_state);
        agent_states.filter(is_selected).collect()
    }

    fn selects(&self, entry: &ConversationEntry) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&entry.status())
    }
}

/// Completes the entry of a conversation.
pub(crate) async fn entry(
    store: &dyn EventStore,
    listed: ListedConversation,
    locked: &BTreeSet<ConversationId>,
) -> ConversationEntry {
    let is_locked = locked.contains(&listed.summary.id);
    let summary = listed.summary.clone();
    ConversationEntry {
        summary: Some(summary),
        overview: complete(store, listed).await,
        is_locked,
    }
}

/// Applies the events that an overview lacks.
async fn complete(
    store: &dyn EventStore,
    listed: ListedConversation,
) -> Result<Overview, StoreError> {
    let ListedConversation {
        summary,
        overview,
        overview_events: mut next,
    } = listed;
    let mut change = OverviewChange {
        overview,
        ..OverviewChange::default()
    };
    while next < summary.events {
        let events = store
            .read_page(&summary.id, EventId(next), EVENT_PAGE_SIZE, MAX_PAGE_BYTES)
            .await?;
        let Some(last) = events.last() else { break };
        next = last.id.next().0;
        events.iter().for_each(|event| change.apply(event));
    }
    Ok(change.overview)
}

/// Lists the conversations that the filter selects: the latest first, damaged entries last.
pub(crate) async fn list(
    store: &dyn EventStore,
    locks: &dyn ConversationLocks,
    filter: &ConversationFilter,
) -> Result<Vec<ConversationEntry>, ConversationsError> {
    let limit = filter.limit.unwrap_or(usize::MAX);
    let mut query = filter.to_query();
    let (mut entries, mut damaged) = (Vec::new(), Vec::new());
    while entries.len() < limit {
        // A filter by status may select few conversations of a page.
        query.limit = if filter.statuses.is_empty() {
            PAGE_SIZE.min(limit - entries.len())
        } else {
            PAGE_SIZE
        };
        let page = store.list(&query).await?;
        damaged.extend(page.damaged);
        let is_last = page.conversations.len() < query.limit;
        query.before = page.conversations.last().map(ListedConversation::position);
        let ids: Vec<_> = page
            .conversations
            .iter()
            .map(|listed| listed.summary.id.clone())
            .collect();
        let locked = locks.locked(&ids).await?;
        for listed in page.conversations {
            entries.push(entry(store, listed, &locked).await);
        }
        entries.retain(|entry| filter.selects(entry));
        if is_last {
            break;
        }
    }
    let damaged = damaged.into_iter().map(|error| ConversationEntry {
        summary: None,
        overview: Err(error),
        is_locked: false,
    });
    entries.extend(damaged.filter(|entry| filter.selects(entry)));
    entries.truncate(limit);
    Ok(entries)
}
