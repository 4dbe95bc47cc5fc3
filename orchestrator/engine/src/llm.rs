//! The trait of language models, with its requests, completions and errors.
//!
//! None of them depends on the provider. What of a response only its provider understands is
//! carried as [`ProviderFields`], so that it is stored and goes back unchanged.

mod stored_format;

use std::time::Duration;

use async_trait::async_trait;
use protocol::metrics::TokenUsage;
use protocol::update::ModelProgress;
use serde_json::{Map, Value};

/// A language model of a provider.
#[async_trait]
pub trait Llm: Send + Sync {
    /// Returns the configured name of the model.
    fn model(&self) -> &str;

    /// Returns the maximum cost of a call with at most `request_tokens` tokens, in US dollars. 0 if
    /// the price is unknown, as the cost of a call is then. Infinite if the price is known but the
    /// length of the completion is not bounded.
    fn max_cost(&self, request_tokens: u64) -> f64;

    /// Requests a completion, with retries. Dropping the future cancels the call.
    ///
    /// # Errors
    /// See [`LlmErrorKind`]. Transient errors have been retried already.
    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError>;
}

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
}

/// Maximum number of tokens of an image. Models that count the most tokens for an image are cheap.
const IMAGE_TOKENS: usize = 40_000;

/// Maximum number of tokens that a provider adds to a request.
const ADDED_TOKENS: usize = 1 << 12;

impl LlmRequest {
    /// Returns an upper bound of its tokens: no token is shorter than a byte.
    pub fn token_upper_bound(&self) -> u64 {
        let parts = |parts: &[MessagePart]| -> usize {
            let part = |part: &MessagePart| match part {
                MessagePart::Text(text) => text.len(),
                MessagePart::Image(_) => IMAGE_TOKENS,
            };
            parts.iter().map(part).sum()
        };
        let messages = self.messages.iter().map(|message| match message {
            ChatMessage::System(text) => text.len(),
            ChatMessage::User(message) => parts(message),
            ChatMessage::Assistant(message) => json_bytes(&message.to_stored()),
            ChatMessage::ToolResult { parts: result, .. } => parts(result),
        });
        let tools = self.tools.iter().map(|tool| json_bytes(&tool.to_stored()));
        messages
            .chain(tools)
            .fold(ADDED_TOKENS, usize::saturating_add) as u64
    }
}

/// Estimated length of a token of a tool's definition, in bytes.
const TOKEN_BYTES: usize = 4;

impl Tool {
    /// Returns the estimated number of tokens that tools add to each request.
    pub fn estimated_tokens(tools: &[Self]) -> usize {
        tools
            .iter()
            .map(|tool| json_bytes(&tool.to_stored()))
            .sum::<usize>()
            / TOKEN_BYTES
    }
}

/// Returns the length of a value as JSON. A value that does not serialize is not sent, and counts
/// as empty.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// The system prompt.
    System(String),
    /// A message of the user, or of the system in the user's role.
    User(Vec<MessagePart>),
    /// A message of the model.
    Assistant(AssistantMessage),
    /// The result of a tool call of the preceding message.
    ToolResult {
        /// The model's id of the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The result.
        parts: Vec<MessagePart>,
    },
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
    /// Text.
    Text(String),
    /// An image: a URL or a data URL.
    Image(String),
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// When and how to call it.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// A response of a model, with its usage and cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The response.
    pub response: ModelResponse,
    /// Its token usage.
    pub usage: TokenUsage,
    /// Its cost in US dollars. `None` if the price is unknown.
    pub cost: Option<f64>,
    /// From sending the request to receiving the last byte, without retries.
    pub latency: Duration,
}

/// A model's response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelResponse {
    /// The provider's id of the response. Empty if it has none.
    pub id: String,
    /// The message.
    pub message: AssistantMessage,
    /// Why the message ended, in OpenAI's terms. Empty if unknown.
    pub finish_reason: String,
    /// The provider's other fields of the choice, for the event log.
    pub choice_fields: ProviderFields,
    /// The provider's other fields of the response, for the event log.
    pub provider_fields: ProviderFields,
}

/// A message of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssistantMessage {
    /// Empty if there is none.
    pub text: String,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The provider's other fields, such as reasoning and its signatures. They go back with the
    /// message.
    pub provider_fields: ProviderFields,
}

/// A tool call of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    /// The model's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The JSON that the model wrote; may be malformed.
    pub arguments: String,
    /// The provider's other fields. They go back with the call.
    pub provider_fields: ProviderFields,
}

/// Fields of a provider that the engine carries and does not interpret.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderFields(pub Map<String, Value>);

/// The progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmProgress {
    /// A chunk of the response's text, for display. May not cover the whole response. After
    /// [`Self::Retrying`] the text starts again.
    Text(String),
    /// A chunk of the model's reasoning, if it exposes that.
    Reasoning(String),
    /// The call failed and will be retried.
    Retrying {
        /// The number of the next attempt, from 2.
        attempt: u32,
        /// Maximum number of attempts.
        attempts: u32,
        /// The backoff before the next attempt.
        after: Duration,
        /// The error of the failed attempt.
        error: LlmError,
    },
}

impl From<LlmProgress> for ModelProgress {
    fn from(progress: LlmProgress) -> Self {
        match progress {
            LlmProgress::Text(text) => Self::Text { text },
            LlmProgress::Reasoning(text) => Self::Reasoning { text },
            LlmProgress::Retrying {
                attempt,
                attempts,
                after,
                error,
            } => Self::Retrying {
                attempt,
                attempts,
                after_secs: after.as_secs_f64(),
                reason: error.to_string(),
            },
        }
    }
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}: {detail}{}", format_retry_after(*.retry_after))]
pub struct LlmError {
    /// The kind of error, for programs.
    pub kind: LlmErrorKind,
    /// The provider's message, truncated. Never contains the key.
    pub detail: String,
    /// The delay that the provider requests before a retry.
    pub retry_after: Option<Duration>,
}

fn format_retry_after(retry_after: Option<Duration>) -> String {
    retry_after
        .map(|after| format!("; it asks to wait {} s", after.as_secs_f64()))
        .unwrap_or_default()
}

/// The kind of a call's error. The provider's adapter classifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LlmErrorKind {
    /// The key is wrong.
    #[error("the model's provider does not accept the key")]
    Authentication,
    /// The provider requires a key, and none is configured.
    #[error("the model's provider requires a key, and none is set")]
    MissingKey,
    /// The key does not permit this.
    #[error("the model's provider does not permit this")]
    Permission,
    /// No such model.
    #[error("the model's provider does not know the model")]
    UnknownModel,
    /// The server at the address has no such API.
    #[error("there is no model API at the configured address")]
    WrongAddress,
    /// Too many requests or tokens.
    #[error("the model's provider limits the rate of calls")]
    RateLimited,
    /// The request exceeds the model's context window.
    #[error("the request is longer than the model's context window")]
    ContextWindowExceeded,
    /// Rejected by the provider's content policy.
    #[error("the model's provider refuses the content")]
    ContentPolicy,
    /// The account has no credit left.
    #[error("the account at the model's provider is out of credit")]
    OutOfCredit,
    /// The provider is overloaded or has an internal error.
    #[error("the model's provider is unavailable")]
    Unavailable,
    /// The request is invalid for another reason.
    #[error("the model's provider refuses the request")]
    BadRequest,
    /// The response is malformed.
    #[error("the model's provider sent a malformed response")]
    Malformed,
    /// The response stream ended early.
    #[error("the response of the model's provider ended early")]
    StreamCut,
    /// The response timed out.
    #[error("the model's provider did not answer in time")]
    Timeout,
    /// The provider is unreachable, or the connection was lost.
    #[error("the model's provider could not be reached")]
    Connection,
    /// The operator does not allow the provider's address.
    #[error("the operator does not allow the address of the model's provider")]
    AddressRefused,
    /// The scripted model has no further responses.
    #[error("the scripted model has no more responses")]
    ScriptEnded,
    /// The replayed recording does not contain this request.
    #[error("the recording has no response to this request")]
    NotRecorded,
}

impl LlmErrorKind {
    /// Whether the same call may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Unavailable
            | Self::Malformed
            | Self::StreamCut
            | Self::Timeout
            | Self::Connection => true,
            Self::Authentication
            | Self::MissingKey
            | Self::Permission
            | Self::UnknownModel
            | Self::WrongAddress
            | Self::ContextWindowExceeded
            | Self::ContentPolicy
            | Self::OutOfCredit
            | Self::BadRequest
            | Self::AddressRefused
            | Self::ScriptEnded
            | Self::NotRecorded => false,
        }
    }
}
