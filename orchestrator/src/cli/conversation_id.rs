//! Arguments that choose a conversation: an id, the start or the end of one, or the latest.

use clap_complete::engine::ArgValueCompleter;
use conversations::ConversationSelector;
use protocol::ConversationId;

use super::candidates;

/// One conversation.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct ConversationChoice {
    /// Id of the conversation, or a unique start or end of it (the end at least 6 characters, which
    /// are random). `glovebox conversations ls` lists all.
    #[arg(add = ArgValueCompleter::new(candidates::conversations))]
    id: Option<ConversationId>,

    /// The conversation with the latest event.
    #[arg(long)]
    last: bool,
}

impl From<ConversationId> for ConversationChoice {
    fn from(id: ConversationId) -> Self {
        Self {
            id: Some(id),
            last: false,
        }
    }
}

impl ConversationChoice {
    /// Returns the id, or a part of it. `None` for the conversation with the latest event.
    pub(super) fn id(&self) -> Option<&ConversationId> {
        self.id.as_ref()
    }

    pub(super) fn selector(&self) -> ConversationSelector {
        self.id
            .clone()
            .map_or(ConversationSelector::Latest, ConversationSelector::IdPart)
    }
}
