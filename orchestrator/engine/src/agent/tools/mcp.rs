//! Call a tool of a server, which supplies its definition.

use protocol::Action;
use protocol::action::CallToolMcpAction;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolError, arguments};
use crate::llm::{Tool, ToolCall};

/// Returns the action of a call. The servers convert the arguments, because only they know the
/// schema of each tool.
pub(super) fn to_action(call: &ToolCall, thought: &str) -> Result<Action, ToolError> {
    let arguments = arguments::parse(call, &json!({"type": "object"}))?;
    let (name, thought) = (call.name.clone(), thought.to_owned());
    Ok(CallToolMcpAction {
        name,
        arguments,
        thought,
        ..Default::default()
    }
    .into())
}

/// Maximum length of a tool's name.
const MAX_NAME_LENGTH: usize = 64;

/// Whether a search may have found a tool of this name.
pub(super) fn may_be_found(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[derive(Deserialize)]
struct FoundTool {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Returns the call of the tool that was found by a search.
pub(super) fn found_call(call: &ToolCall, definition: &Tool) -> Result<ToolCall, ToolError> {
    let FoundTool { name, arguments } = arguments::deserialize(call, &definition.parameters)?;
    Ok(ToolCall {
        name,
        arguments: arguments.to_string(),
        ..call.clone()
    })
}
