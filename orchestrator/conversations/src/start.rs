//! New conversations and their initial tasks.

use std::sync::Arc;

use engine::agent::Agent;
use engine::replay::{Replay, Trajectory};
use engine::replayed_user::ReplayedUser;
use protocol::action::MessageAction;
use protocol::record::ConversationStarted;

use crate::parts::ConversationParts;

/// A conversation to start.
pub struct NewConversation {
    /// Settings to record in the log.
    pub started: ConversationStarted,
    /// Its parts. The agent is the one that [`InitialTask::agent`] returns.
    pub parts: ConversationParts,
    /// The user's title. If it is `None`, a title is generated.
    pub title: Option<String>,
    /// The task of the agent.
    pub task: InitialTask,
}

/// Task of the agent in a new conversation.
#[derive(Debug, Clone)]
pub enum InitialTask {
    /// None yet: the agent waits for the user's first message.
    None,
    /// The user's message.
    Message(MessageAction),
    /// Replay of a saved conversation: its user messages and actions, in order.
    Replay {
        /// The saved conversation.
        trajectory: Trajectory,
        /// Whether the agent continues with its model after the replay. Otherwise it finishes.
        continues: bool,
    },
}

impl InitialTask {
    /// Returns the agent that performs the task, and then continues as `live`.
    pub fn agent(&self, live: Arc<dyn Agent>) -> Arc<dyn Agent> {
        match self.clone() {
            Self::None | Self::Message(_) => live,
            Self::Replay {
                trajectory,
                continues: true,
            } => Arc::new(Replay::new(trajectory, live)),
            Self::Replay {
                trajectory,
                continues: false,
            } => Arc::new(Replay::without_continuation(trajectory, live)),
        }
    }

    /// Whether the agent's last message is an answer to the user.
    pub fn has_answer(&self) -> bool {
        !matches!(
            self,
            Self::Replay {
                continues: false,
                ..
            }
        )
    }

    pub(crate) fn replayed_user(&self) -> Option<ReplayedUser> {
        match self {
            Self::None | Self::Message(_) => None,
            Self::Replay { trajectory, .. } => Some(trajectory.user()),
        }
    }

    pub(crate) fn into_message(self) -> Option<MessageAction> {
        match self {
            Self::Message(message) => Some(message),
            Self::None | Self::Replay { .. } => None,
        }
    }
}
