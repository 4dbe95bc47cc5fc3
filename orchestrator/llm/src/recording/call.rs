//! The content of a file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use engine::llm::{
    ChatMessage, Completion, LlmError, LlmErrorKind, LlmRequest, MessagePart, ModelResponse, Tool,
};
use protocol::metrics::TokenUsage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{MAX_CALL_BYTES, RecordingError};
use crate::error_name::ErrorName;

/// A call and its result.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedCall {
    pub(super) model: String,
    pub(super) request: Value,
    pub(super) outcome: CallResult,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallResult {
    #[serde(rename = "answer")]
    Response {
        response: Value,
        usage: TokenUsage,
        cost: Option<f64>,
        latency_seconds: f64,
    },
    Error {
        #[serde(with = "ErrorName")]
        kind: LlmErrorKind,
        detail: String,
        retry_after_seconds: Option<f64>,
    },
}

impl CallResult {
    /// Converts the response, if there is one.
    pub(super) fn map_response(mut self, map: impl FnOnce(Value) -> Value) -> Self {
        if let Self::Response { response, .. } = &mut self {
            *response = map(response.take());
        }
        self
    }

    /// Returns the cost of the call. 0 if it is unknown.
    pub(super) fn cost(&self) -> f64 {
        match self {
            Self::Response { cost, .. } => cost.unwrap_or_default(),
            Self::Error { .. } => 0.0,
        }
    }
}

impl From<&Result<Completion, LlmError>> for CallResult {
    fn from(result: &Result<Completion, LlmError>) -> Self {
        match result {
            Ok(Completion {
                response,
                usage,
                cost,
                latency,
            }) => Self::Response {
                response: response.to_stored(),
                usage: usage.clone(),
                cost: *cost,
                latency_seconds: latency.as_secs_f64(),
            },
            Err(LlmError {
                kind,
                detail,
                retry_after,
            }) => Self::Error {
                kind: *kind,
                detail: detail.clone(),
                retry_after_seconds: retry_after.map(|after| after.as_secs_f64()),
            },
        }
    }
}

impl From<CallResult> for Result<Completion, LlmError> {
    fn from(outcome: CallResult) -> Self {
        let duration = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        match outcome {
            CallResult::Response {
                response,
                usage,
                cost,
                latency_seconds,
            } => Ok(Completion {
                response: ModelResponse::from_stored(response),
                usage,
                cost,
                latency: duration(latency_seconds),
            }),
            CallResult::Error {
                kind,
                detail,
                retry_after_seconds,
            } => Err(LlmError {
                kind,
                detail,
                retry_after: retry_after_seconds.map(duration),
            }),
        }
    }
}

impl RecordedCall {
    pub(super) fn read(file: &Path) -> Result<Self, RecordingError> {
        let read = || {
            // Opening a FIFO would wait for its writer.
            if !file.metadata()?.is_file() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "not a regular file",
                ));
            }
            let mut text = String::new();
            File::open(file)?
                .take(MAX_CALL_BYTES)
                .read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|source| RecordingError::Unreadable {
            file: file.to_owned(),
            source,
        })?;
        serde_json::from_str(&text).map_err(|source| RecordingError::NotACall {
            file: file.to_owned(),
            source,
        })
    }
}

/// Encodes a request.
pub(super) fn request_to_json(request: &LlmRequest) -> Value {
    let messages: Value = request.messages.iter().map(message).collect();
    let tools: Value = request.tools.iter().map(Tool::to_stored).collect();
    json!({ "messages": messages, "tools": tools })
}

fn message(message: &ChatMessage) -> Value {
    let parts = |parts: &[MessagePart]| -> Value {
        let part = |part: &MessagePart| match part {
            MessagePart::Text(text) => json!({ "text": text }),
            MessagePart::Image(url) => json!({ "image": url }),
        };
        parts.iter().map(part).collect()
    };
    match message {
        ChatMessage::System(text) => json!({ "system": text }),
        ChatMessage::User(message) => json!({ "user": parts(message) }),
        ChatMessage::Assistant(message) => json!({ "assistant": message.to_stored() }),
        ChatMessage::ToolResult {
            call_id,
            name,
            parts: result,
        } => {
            json!({ "tool_result": { "call_id": call_id, "name": name, "parts": parts(result) } })
        }
    }
}
