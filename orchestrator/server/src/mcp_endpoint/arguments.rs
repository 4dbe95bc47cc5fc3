//! Arguments of the tools.

use protocol::{ConversationId, EventId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::extract::parse_value;

/// The argument that names a conversation.
pub(super) const CONVERSATION: &str = "conversation_id";

/// Maximum number of conversations or events of a page.
pub(super) const MAX_PAGE_SIZE: usize = 100;

/// Maximum length of a message, and of instructions, in bytes: more than the context of a model
/// takes.
pub(super) const MAX_TEXT_BYTES: usize = 256 << 10;

/// Maximum time of a call of `wait`, in seconds. Shorter than the timeouts of clients, of proxies,
/// and of a host that forwards it.
pub(super) const MAX_WAIT_SECS: u64 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartConversation {
    pub(super) message: String,
    pub(super) instructions: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) branch: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    pub(super) conversation_id: ConversationId,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListConversations {
    #[serde(default = "default_limit")]
    pub(super) limit: usize,
    pub(super) page_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadEvents {
    pub(super) conversation_id: ConversationId,
    #[serde(default = "before_first")]
    pub(super) after_id: i64,
    #[serde(default = "default_limit")]
    pub(super) limit: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    pub(super) conversation_id: ConversationId,
    #[serde(default = "default_wait_secs")]
    pub(super) timeout_secs: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopConversation {
    pub(super) conversation_id: ConversationId,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    pub(super) conversation_id: ConversationId,
    pub(super) action_id: EventId,
    pub(super) decision: Decision,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    Confirm,
    Reject,
}

fn default_limit() -> usize {
    20
}

fn before_first() -> i64 {
    -1
}

fn default_wait_secs() -> u64 {
    60
}

/// Parses the arguments of a call.
///
/// # Errors
/// [`ApiError::Invalid`] with the name of the argument.
pub(super) fn parse<T: serde::de::DeserializeOwned>(
    arguments: Map<String, Value>,
) -> Result<T, ApiError> {
    parse_value(Value::Object(arguments), "arguments")
}

/// Checks the length of a text.
pub(super) fn check_text(name: &'static str, text: &str) -> Result<(), ApiError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ApiError::invalid(
            name,
            format_args!("must have at most {MAX_TEXT_BYTES} bytes"),
        ));
    }
    Ok(())
}

/// Checks the size of a page.
pub(super) fn check_limit(limit: usize) -> Result<usize, ApiError> {
    if (1..=MAX_PAGE_SIZE).contains(&limit) {
        Ok(limit)
    } else {
        Err(ApiError::invalid(
            "limit",
            format_args!("must be 1 to {MAX_PAGE_SIZE}"),
        ))
    }
}

/// Returns the JSON schema of a tool's arguments: properties, and the names of those that are
/// required.
pub(super) fn schema(properties: Value, required: &[&str]) -> Map<String, Value> {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}
