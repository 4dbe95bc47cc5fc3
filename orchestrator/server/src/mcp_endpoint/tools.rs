//! The tools, as clients see them.

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::arguments::{CONVERSATION, MAX_PAGE_SIZE, MAX_TEXT_BYTES, MAX_WAIT_SECS, schema};

/// A tool of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum McpTool {
    StartConversation,
    SendMessage,
    ListConversations,
    ReadEvents,
    Wait,
    StopConversation,
    Decide,
}

impl McpTool {
    pub(super) const ALL: [Self; 7] = [
        Self::StartConversation,
        Self::SendMessage,
        Self::ListConversations,
        Self::ReadEvents,
        Self::Wait,
        Self::StopConversation,
        Self::Decide,
    ];

    /// Returns the tool with a name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StartConversation => "start_conversation",
            Self::SendMessage => "send_message",
            Self::ListConversations => "list_conversations",
            Self::ReadEvents => "read_events",
            Self::Wait => "wait",
            Self::StopConversation => "stop_conversation",
            Self::Decide => "decide",
        }
    }

    /// The action of a call in the audit log.
    pub(super) fn audit_action(self) -> String {
        format!("mcp {}", self.name())
    }

    /// Whether a call changes something.
    pub(super) fn is_change(self) -> bool {
        match self {
            Self::StartConversation | Self::SendMessage | Self::StopConversation | Self::Decide => {
                true
            }
            Self::ListConversations | Self::ReadEvents | Self::Wait => false,
        }
    }

    /// Returns the definition for clients.
    pub(super) fn definition(self) -> Tool {
        let (properties, required) = self.arguments();
        let tool = Tool::new(
            self.name(),
            self.description(),
            schema(properties, required),
        );
        let annotations = ToolAnnotations::new()
            .read_only(!self.is_change())
            .open_world(self.is_change());
        tool.with_annotations(annotations)
    }

    fn description(self) -> &'static str {
        match self {
            Self::StartConversation => {
                "Starts a conversation: an agent works on the message in a new sandbox. Returns its id. The agent works in the \
                 background: call wait next."
            }
            Self::SendMessage => {
                "Sends a message to the agent of a conversation: an answer, a correction or the next task. Starts the \
                 conversation again if it is stopped. Call wait next."
            }
            Self::ListConversations => "Lists conversations, the latest first.",
            Self::ReadEvents => {
                "Reads what happened in a conversation: messages, actions and observations, in order. Long texts are cut off."
            }
            Self::Wait => {
                "Waits until the agent finishes, needs an answer or a decision, or fails. Returns the outcome and what the agent \
                 has said since the last message. The outcome `working` means that the time is over: call wait again."
            }
            Self::StopConversation => {
                "Stops the agent and closes the conversation. A message starts it again."
            }
            Self::Decide => "Confirms or rejects the action that awaits confirmation.",
        }
    }

    /// Returns the properties of the arguments, and the required ones.
    fn arguments(self) -> (Value, &'static [&'static str]) {
        let id = json!({"type": "string", "description": "The conversation"});
        let limit = json!({
            "type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": 20, "description": "Maximum number",
        });
        match self {
            Self::StartConversation => (
                json!({
                    "message": {"type": "string", "maxLength": MAX_TEXT_BYTES, "description": "The task"},
                    "instructions": {
                        "type": "string", "maxLength": MAX_TEXT_BYTES,
                        "description": "Rules for the agent that precede the task",
                    },
                    "agent": {"type": "string", "description": "The agent; that of the settings by default"},
                    "repository": {"type": "string", "description": "Repository to clone: OWNER/NAME or a URL"},
                    "branch": {"type": "string", "description": "Branch of the repository"},
                }),
                &["message"],
            ),
            Self::SendMessage => (
                json!({
                    CONVERSATION: id,
                    "message": {"type": "string", "maxLength": MAX_TEXT_BYTES, "description": "The text"},
                }),
                &[CONVERSATION, "message"],
            ),
            Self::ListConversations => (
                json!({
                    "limit": limit,
                    "page_id": {"type": "string", "description": "The next_page_id of the page before"},
                }),
                &[],
            ),
            Self::ReadEvents => (
                json!({
                    CONVERSATION: id,
                    "after_id": {
                        "type": "integer", "default": -1, "description": "The last event that is known; -1 for none",
                    },
                    "limit": limit,
                }),
                &[CONVERSATION],
            ),
            Self::Wait => (
                json!({
                    CONVERSATION: id,
                    "timeout_secs": {
                        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECS, "default": 60,
                        "description": "Maximum time in seconds",
                    },
                }),
                &[CONVERSATION],
            ),
            Self::StopConversation => (json!({CONVERSATION: id}), &[CONVERSATION]),
            Self::Decide => (
                json!({
                    CONVERSATION: id,
                    "action_id": {
                        "type": "integer", "minimum": 0,
                        "description": "The action: `detail` of the outcome `awaiting_confirmation`",
                    },
                    "decision": {"type": "string", "enum": ["confirm", "reject"]},
                }),
                &[CONVERSATION, "action_id", "decision"],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_argument_is_described() {
        for tool in McpTool::ALL {
            assert_eq!(McpTool::find(tool.name()), Some(tool));
            let definition = tool.definition();
            let schema = &definition.input_schema;
            for name in schema["required"].as_array().unwrap() {
                assert!(
                    schema["properties"].get(name.as_str().unwrap()).is_some(),
                    "{tool:?}: {name}"
                );
            }
        }
    }
}
