//! The list of conversations, and the search in it.

mod overview;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use engine::events::{ConversationSummary, EventStore, StoreError};
use futures_util::stream::{self, StreamExt as _};
use protocol::{AgentState, ConversationId, Timestamp};

use crate::host::ConversationLocks;

pub use overview::Overview;

/// Number of concurrent reads: the store has as many connections.
const CONCURRENT_READS: usize = 4;

/// Selects conversations of the list. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Text that title, first message, model or folder contain, in any case.
    pub text: Option<String>,
    /// Statuses to select. Empty selects all.
    pub statuses: Vec<ConversationStatus>,
    /// The folder that the conversation works in.
    pub folder: Option<PathBuf>,
    /// The repository in the workspace: a part of its URL.
    pub repository: Option<String>,
    /// Selects the conversations that follow this position.
    pub before: Option<ListPosition>,
    /// Maximum number of conversations, the latest first.
    pub limit: Option<usize>,
}

/// Position of a conversation in the list. A conversation with a new event moves to the front.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    last_updated_at: Timestamp,
    id: ConversationId,
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
            Some(Self { last_updated_at, id: id.parse().ok()? })
        };
        parse().ok_or(InvalidPosition)
    }
}

/// The text is no [`ListPosition`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("is not a position that a list has returned")]
pub struct InvalidPosition;

/// The state of a conversation as a list shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationStatus {
    /// State of its agent.
    Agent(AgentState),
    /// The process that ran it ended while the agent worked.
    Interrupted,
    /// Its log or its entry in the store cannot be read.
    Damaged,
}

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

    /// Returns the status of this name. `None` if no status has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// One conversation of the list.
#[derive(Debug)]
pub struct ConversationEntry {
    /// `None` if even the entry in the store cannot be read.
    pub summary: Option<ConversationSummary>,
    /// Overview from the start and the end of the log, or why they cannot be read.
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
        let ConversationSummary { id, last_updated_at, .. } = self.summary.as_ref()?;
        Some(ListPosition { last_updated_at: last_updated_at.clone(), id: id.clone() })
    }

    /// Returns the status. A conversation whose process has ended is not running.
    pub fn status(&self) -> ConversationStatus {
        match &self.overview {
            Ok(overview) if overview.is_working() && !self.is_locked => ConversationStatus::Interrupted,
            Ok(overview) => ConversationStatus::Agent(overview.agent_state),
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
    /// Whether the filter selects an entry. `text` is the filter's text in lower case.
    fn selects(&self, entry: &ConversationEntry, text: Option<&str>) -> bool {
        let overview = entry.overview.as_ref().ok();
        let is_in_folder = |folder| overview.and_then(Overview::folder).map(Path::new) == Some(folder);
        let has_repository =
            |name: &str| overview.and_then(Overview::repository).is_some_and(|url| url.contains(name));
        (self.statuses.is_empty() || self.statuses.contains(&entry.status()))
            && self.folder.as_deref().is_none_or(is_in_folder)
            && self.repository.as_deref().is_none_or(has_repository)
            && text.is_none_or(|text| overview.is_some_and(|overview| overview.contains(text)))
    }
}

/// Reads the entry of a conversation.
pub(crate) async fn entry(
    store: &dyn EventStore,
    locks: &dyn ConversationLocks,
    summary: ConversationSummary,
) -> ConversationEntry {
    let overview = Overview::read(store, &summary).await;
    let is_locked = locks.is_locked(&summary.id);
    ConversationEntry { summary: Some(summary), overview, is_locked }
}

/// Lists the conversations that the filter selects: the latest first, damaged entries last.
pub(crate) async fn list(
    store: &dyn EventStore,
    locks: &dyn ConversationLocks,
    filter: &ConversationFilter,
) -> Result<Vec<ConversationEntry>, StoreError> {
    let list = store.conversations().await?;
    let is_before = |summary: &ConversationSummary| {
        filter.before.as_ref().is_none_or(|ListPosition { last_updated_at, id }| {
            (&summary.last_updated_at, &summary.id) < (last_updated_at, id)
        })
    };
    let readable = stream::iter(list.conversations.into_iter().filter(is_before))
        .map(|summary| entry(store, locks, summary))
        .buffered(CONCURRENT_READS);
    let damaged = list.damaged.into_iter();
    let damaged =
        damaged.map(|error| ConversationEntry { summary: None, overview: Err(error), is_locked: false });
    let text = filter.text.as_ref().map(|text| text.to_lowercase());
    let selected = readable
        .chain(stream::iter(damaged))
        .filter(|entry| std::future::ready(filter.selects(entry, text.as_deref())))
        .take(filter.limit.unwrap_or(usize::MAX))
        .collect();
    Ok(selected.await)
}
