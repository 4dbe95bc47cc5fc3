//! Which call of which model response an action or observation belongs to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// V0's `tool_call_metadata`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallMetadata {
    /// The tool that was called.
    pub function_name: String,
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The whole response in OpenAI's `chat.completion` shape, kept as it came: what is unknown to us in it must go
    /// back to the provider unchanged. Shared, because every event of the call has it.
    pub model_response: Arc<Value>,
    /// How many calls that response makes.
    pub total_calls_in_response: u64,
}
