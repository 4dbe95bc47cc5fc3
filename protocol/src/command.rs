//! Commands: what a user can do to a conversation. The same on the wire, in a conversation's
//! mailbox and in its transition.

use serde::{Deserialize, Serialize};

use crate::action::MessageAction;
use crate::ids::{CommandId, EventId};
use crate::record::FeedbackGiven;
use crate::risk::ConfirmationPolicy;

/// A command with the id that its client chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommandRequest {
    /// Stored on the event that the command causes. A conversation ignores a command whose id it
    /// has stored, so that a client can send it again if the reply was lost. `None` if it is never
    /// sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CommandId>,
    /// The command.
    pub command: UserCommand,
}

/// What a user can do to a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum UserCommand {
    /// Send a message. The agent works on it, and actions that await confirmation are rejected. If
    /// the limit of steps was reached, the initial limit is granted again.
    SendMessage(MessageAction),
    /// Stop all work. Actions in flight are cancelled.
    Stop,
    /// Pause the agent. Actions in flight complete, and no further work starts.
    Pause,
    /// Let an agent continue that was paused or stopped, has failed, or has reached a limit.
    Resume {
        /// Number of additional steps. If it is `None` and the limit was reached, the initial
        /// limit is granted again.
        #[serde(default)]
        more_iterations: Option<u32>,
        /// Additional budget, in US dollars. If it is `None`, a budget that is spent stays so.
        #[serde(default)]
        more_budget: Option<f64>,
    },
    /// Let an agent that was stopped wait for a message. The sandbox of an idle agent is started
    /// meanwhile.
    AwaitMessage,
    /// Let an agent leave the loop in which it was stopped.
    RecoverFromLoop {
        /// How it leaves the loop.
        recovery: LoopRecovery,
    },
    /// Confirm an action.
    Confirm {
        /// The action. `None` for the first one that awaits confirmation.
        #[serde(default)]
        action: Option<EventId>,
        /// Whether similar actions are approved for the rest of the conversation.
        #[serde(default)]
        and_similar: bool,
    },
    /// Reject an action.
    Reject {
        /// The action. `None` for the first one that awaits confirmation.
        #[serde(default)]
        action: Option<EventId>,
        /// Reason for the agent, which then continues. If it is empty, the agent waits for the
        /// user.
        #[serde(default)]
        reason: String,
    },
    /// Change which actions require confirmation.
    SetConfirmation {
        /// The new policy.
        policy: ConfirmationPolicy,
    },
    /// Let another model answer from the next step on. A call in flight ends with the model so far.
    SetModel {
        /// The model's name, as in the settings.
        model: String,
    },
    /// Set the title.
    SetTitle {
        /// The title, of which the first line is used.
        title: String,
    },
    /// Rate the conversation.
    GiveFeedback(FeedbackGiven),
}

/// How an agent leaves a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoopRecovery {
    /// The agent forgets the loop and continues.
    BeforeLoop,
    /// The agent forgets the loop and receives the user's last message again.
    LastUserMessage,
    /// The agent is stopped.
    Stop,
}

impl UserCommand {
    /// Creates a message without images and files.
    pub fn message(content: impl Into<String>) -> Self {
        Self::SendMessage(MessageAction {
            content: content.into(),
            ..MessageAction::default()
        })
    }

    /// Creates the command to resume the agent under its limits.
    pub fn resume() -> Self {
        Self::Resume {
            more_iterations: None,
            more_budget: None,
        }
    }

    /// Creates the confirmation of one action. `None` for the first one that awaits it.
    pub fn confirm(action: Option<EventId>) -> Self {
        Self::Confirm {
            action,
            and_similar: false,
        }
    }
}

impl From<UserCommand> for CommandRequest {
    fn from(command: UserCommand) -> Self {
        Self { id: None, command }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn command_is_read_with_its_defaults() {
        let read = |json| serde_json::from_value::<CommandRequest>(json);
        let command = |kind: &str| read(json!({"command": {"kind": kind}}));
        assert_eq!(command("stop").unwrap(), UserCommand::Stop.into());
        assert_eq!(command("resume").unwrap(), UserCommand::resume().into());
        assert_eq!(
            command("confirm").unwrap(),
            UserCommand::confirm(None).into()
        );
        assert!(command("explode").is_err() && command("send_message").is_err());
        let misspelled = json!({"command": {"kind": "confirm", "action_id": 5}});
        assert!(read(misspelled).is_err());
        let message = json!({"id": "7", "command": {"kind": "send_message", "content": "hi"}});
        let expected = CommandRequest {
            id: Some("7".parse().unwrap()),
            command: UserCommand::message("hi"),
        };
        assert_eq!(read(message).unwrap(), expected);
        let written = serde_json::to_value(&expected).unwrap();
        assert_eq!(read(written).unwrap(), expected);
    }
}
