//! Queries of the list of conversations, and their pages.

use std::fmt;
use std::str::FromStr;

use protocol::record::ConversationTrigger;
use protocol::{AgentState, ConversationId, Timestamp, UserId};

use super::{ConversationSummary, Overview, StoreError};

/// Selects conversations of a store by their overviews. The default selects all, with a limit of
/// none.
#[derive(Debug, Clone, Default)]
pub struct ConversationQuery {
    /// Text that title, excerpt of the first message, model or folder contain, in lower case.
    pub text: Option<String>,
    /// States of the agent to select. Empty selects all.
    pub agent_states: Vec<AgentState>,
    /// The folder that the conversation works in.
    pub folder: Option<String>,
    /// A part of the URL of the repository in the workspace.
    pub repository: Option<String>,
    /// What created it. Conversations without a trigger have the default one.
    pub trigger: Option<ConversationTrigger>,
    /// The user who owns it. `None` selects those of all users and of the operator.
    pub owner: Option<UserId>,
    /// Selects the conversations that follow this position.
    pub before: Option<ListPosition>,
    /// Maximum number of conversations.
    pub limit: usize,
}

/// The latest conversations that a query selects.
#[derive(Debug, Default)]
pub struct ConversationPage {
    /// The readable ones, sorted by their [`ListPosition`], the latest first. Fewer than the limit
    /// if no further ones follow.
    pub conversations: Vec<ListedConversation>,
    /// The unreadable entries up to the last conversation of the page, each a
    /// [`StoreError::DamagedEntry`].
    pub damaged: Vec<StoreError>,
}

/// A conversation with its overview.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedConversation {
    /// Its entry.
    pub summary: ConversationSummary,
    /// Overview of its first events.
    pub overview: Overview,
    /// The number of events that the overview covers: all, unless an event is damaged or an older
    /// version of Glovebox appended it.
    pub overview_events: u64,
}

impl ListedConversation {
    /// Returns its position in the list.
    pub fn position(&self) -> ListPosition {
        ListPosition::from(&self.summary)
    }
}

/// Position of a conversation in the list. A conversation with a new event moves to the front.
/// Times are compared as text, and conversations of the same time by their ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    /// When its last event was appended.
    pub last_updated_at: Timestamp,
    /// Its id.
    pub id: ConversationId,
}

impl From<&ConversationSummary> for ListPosition {
    fn from(
        ConversationSummary {
            id,
            last_updated_at,
            ..
        }: &ConversationSummary,
    ) -> Self {
        Self {
            last_updated_at: last_updated_at.clone(),
            id: id.clone(),
        }
    }
}

impl fmt::Display for ListPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.last_updated_at.as_str(), self.id)
    }
}

impl FromStr for ListPosition {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let parse = || {
            let (time, id) = text.split_once('_')?;
            let last_updated_at = Timestamp::try_from(time.to_owned()).ok()?;
            Some(Self {
                last_updated_at,
                id: id.parse().ok()?,
            })
        };
        parse().ok_or(InvalidPosition)
    }
}

/// The text is no [`ListPosition`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("is not a position that a list has returned")]
pub struct InvalidPosition;
