//! Shapes of Glovebox's own API. Commands, queries and updates are in modules of their own, because
//! they go through all layers.

pub mod files;
pub mod git;
pub mod profile;
pub mod sandbox;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::git::GitProvider;
use crate::action::MessageAction;
use crate::agent_state::AgentState;
use crate::event::Timestamp;
use crate::event_query::names;
use crate::ids::{ConversationId, EventId, UserId};
use crate::record::ConversationTrigger;

/// A request for a new conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CreateConversation {
    /// Its id: a UUID that the client generates, so that the request can be sent again if the reply
    /// was lost. A conversation that the client has created under this id before is returned.
    /// `None` if the server generates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ConversationId>,
    /// The agent. `None` for that of the user's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model. `None` if the user's settings name it, or else the server's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The first message. `None` if the agent waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageAction>,
    /// Instructions for the agent that precede the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Repository to clone into the workspace: its full name at the provider, or a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Where the repository is hosted. `None` for the only provider that the user has a token for,
    /// else GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<GitProvider>,
    /// Branch of the repository. `None` for its default branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The title. `None` to generate one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The reply to a request that creates a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedConversation {
    /// The conversation.
    pub id: ConversationId,
}

/// A request to fork a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ForkConversation {
    /// Its id: a UUID that the client generates, as for a new conversation. `None` if the server
    /// generates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ConversationId>,
    /// The last event that both have. `None` for the end of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event: Option<EventId>,
}

/// What a trajectory contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ExportConversation {
    /// Whether it has the screenshots of pages.
    pub with_screenshots: bool,
}

/// Selects conversations of the list. The default selects all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ListConversations {
    /// Text that title, start of the first message, model or folder contain, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Names of statuses to select, separated by commas. Empty selects all.
    #[serde(with = "names", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub status: Vec<String>,
    /// The repository in the workspace: a part of its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The user who owns it. Only the operator sees the conversations of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub owner: Option<UserId>,
    /// The `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Maximum number of conversations.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 100, default = 20))]
    pub limit: usize,
}

impl Default for ListConversations {
    fn default() -> Self {
        Self {
            text: None,
            status: Vec::new(),
            repository: None,
            owner: None,
            before: None,
            limit: 20,
        }
    }
}

/// Some conversations, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversationItemPage {
    /// The conversations.
    pub conversations: Vec<ConversationItem>,
    /// Where the next page starts. `None` if this is the last one.
    pub next: Option<String>,
}

/// A conversation of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversationItem {
    /// Its id.
    pub id: ConversationId,
    /// The title, else the first line of the first message.
    pub title: String,
    /// Its status: the state of its agent, `interrupted` or `damaged`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub status: ConversationStatus,
    /// The last state of its agent. `None` if the log is damaged.
    pub agent_state: Option<AgentState>,
    /// Whether a process runs it.
    pub is_running: bool,
    /// The latest model that was chosen for it.
    pub model: Option<String>,
    /// Cost of the model calls, in US dollars.
    pub cost: f64,
    /// The user who owns it. `None` for the operator.
    pub owner: Option<UserId>,
    /// URL of the repository in its workspace.
    pub repository: Option<String>,
    /// Where that repository is hosted.
    pub git_provider: Option<GitProvider>,
    /// Branch of the repository that was requested.
    pub branch: Option<String>,
    /// The folder of the host that it works in. `None` for clients other than the operator's.
    pub folder: Option<String>,
    /// What created it. `None` for the command line.
    pub trigger: Option<ConversationTrigger>,
    /// Number of events in its log.
    pub event_count: u64,
    /// When it was created, in UTC, with the zone `Z`.
    pub created_at: Timestamp,
    /// When its last event was appended, in UTC, with the zone `Z`.
    pub last_updated_at: Timestamp,
}

/// The state of a conversation as a list shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ConversationStatus {
    /// State of its agent.
    Agent(AgentState),
    /// The process that ran it ended while the agent worked.
    Interrupted,
    /// Its entry in the store cannot be read, or the events that its overview lacks.
    Damaged,
}

/// The error of an unknown name of a [`ConversationStatus`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown conversation status `{0}`")]
pub struct UnknownStatus(String);

impl ConversationStatus {
    /// All statuses but [`AgentState::Unknown`].
    pub const ALL: [Self; 15] = [
        Self::Agent(AgentState::Loading),
        Self::Agent(AgentState::Init),
        Self::Agent(AgentState::Running),
        Self::Agent(AgentState::RateLimited),
        Self::Agent(AgentState::AwaitingUserInput),
        Self::Agent(AgentState::AwaitingUserConfirmation),
        Self::Agent(AgentState::UserConfirmed),
        Self::Agent(AgentState::UserRejected),
        Self::Agent(AgentState::Paused),
        Self::Agent(AgentState::Stopped),
        Self::Agent(AgentState::Finished),
        Self::Agent(AgentState::Rejected),
        Self::Agent(AgentState::Error),
        Self::Interrupted,
        Self::Damaged,
    ];

    /// Returns the name of the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent(state) => state.as_str(),
            Self::Interrupted => "interrupted",
            Self::Damaged => "damaged",
        }
    }

    /// Returns the state of the agent. `None` for a status that is none.
    pub fn agent_state(self) -> Option<AgentState> {
        match self {
            Self::Agent(state) => Some(state),
            Self::Interrupted | Self::Damaged => None,
        }
    }
}

impl fmt::Display for ConversationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ConversationStatus {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, UnknownStatus> {
        let mut statuses = Self::ALL.into_iter();
        statuses
            .find(|status| status.as_str() == name)
            .ok_or_else(|| UnknownStatus(name.to_owned()))
    }
}

impl From<String> for ConversationStatus {
    /// A status of a newer version is read as an unknown state.
    fn from(name: String) -> Self {
        name.parse().unwrap_or(Self::Agent(AgentState::Unknown))
    }
}

impl From<ConversationStatus> for String {
    fn from(status: ConversationStatus) -> Self {
        status.as_str().to_owned()
    }
}
