//! What a new conversation is started with.

use std::sync::Arc;

use engine::agent::Agent;
use engine::replay::{Replay, Trajectory};
use protocol::action::MessageAction;
use protocol::record::ConversationStarted;

use crate::parts::ConversationParts;

/// A conversation to start.
pub struct NewConversation {
    /// What the log says that it was started as.
    pub started: ConversationStarted,
    /// What it works with. The agent is [`Task::agent`]'s.
    pub parts: ConversationParts,
    /// The user's title. `None` has one found.
    pub title: Option<String>,
    /// What the agent does.
    pub task: Task,
}

/// What an agent does in a new conversation.
#[derive(Debug, Clone)]
pub enum Task {
    /// What the user asks for.
    Message(MessageAction),
    /// The actions of a saved conversation, each after the user's messages that came before it.
    Replay {
        /// The saved conversation.
        trajectory: Trajectory,
        /// Whether the agent continues with its model afterwards, instead of finishing.
        continues: bool,
    },
}

impl Task {
    /// The agent that performs the task, and then is `live`.
    pub fn agent(&self, live: Arc<dyn Agent>) -> Arc<dyn Agent> {
        match self.clone() {
            Self::Message(_) => live,
            Self::Replay { trajectory, continues: true } => Arc::new(Replay::new(trajectory, live)),
            Self::Replay { trajectory, continues: false } => {
                Arc::new(Replay::without_continuation(trajectory, live))
            }
        }
    }

    /// Whether what the agent says last is an answer to the user.
    pub fn has_answer(&self) -> bool {
        !matches!(self, Self::Replay { continues: false, .. })
    }

    pub(crate) fn into_trajectory(self) -> Option<Trajectory> {
        match self {
            Self::Message(_) => None,
            Self::Replay { trajectory, .. } => Some(trajectory),
        }
    }
}
