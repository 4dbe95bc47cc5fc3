//! The seam to language models: what is asked, what is answered, and how it can fail.
//!
//! Messages are neutral between the providers' wires. An answer is kept whole, in OpenAI's `chat.completion` shape
//! (V0's `model_response`): blocks that we do not know go back to the provider as they came.

use std::borrow::Borrow;
use std::time::Duration;

use async_trait::async_trait;
use protocol::metrics::TokenUsage;
use serde_json::{Map, Value, json};

/// A language model behind a provider's wire.
#[async_trait]
pub trait Llm: Send + Sync {
    /// The name as it was configured.
    fn model(&self) -> &str;

    /// Asks for one answer, trying again where that may help. Dropping the future cancels the call.
    ///
    /// # Errors
    /// See [`LlmErrorKind`]; what is worth another try has been tried.
    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError>;
}

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Who the model is and what it may do.
    System(String),
    /// What the user, or the system in the user's place, says.
    User(Vec<Part>),
    /// What the model said: the `message` of its response, as it came.
    Assistant(Map<String, Value>),
    /// What came of a call that the model made in the turn before.
    ToolResult {
        /// The model's id of the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The result.
        parts: Vec<Part>,
    },
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image: a URL or a data URL.
    Image(String),
}

/// Something the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// When and how to call it.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

impl Tool {
    /// What [`Tool::to_openai`] wrote; nothing when it is not that.
    pub fn from_openai(value: &Value) -> Option<Self> {
        let function = value.get("function")?;
        let text = |name| Some(function.get(name)?.as_str()?.to_owned());
        Some(Self {
            name: text("name")?,
            description: text("description")?,
            parameters: function.get("parameters")?.clone(),
        })
    }

    /// OpenAI's shape, which V0's `system` event holds too.
    pub fn to_openai(&self) -> Value {
        json!({
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        })
    }
}

/// An answer and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The whole answer.
    pub response: ModelResponse,
    /// Its tokens.
    pub usage: TokenUsage,
    /// Its price in US dollars; nothing when the price is unknown.
    pub cost: Option<f64>,
    /// From sending to the last byte, retries not counted.
    pub latency: Duration,
}

/// A model's answer in OpenAI's `chat.completion` shape: held, or looked at where an event holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelResponse<V = Value>(pub V);

/// A call that a model makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The model's id of it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// JSON as the model wrote it; perhaps malformed.
    pub arguments: String,
}

impl ModelResponse {
    /// Drops all calls after the first `most`.
    pub fn keep_calls(&mut self, most: usize) {
        if let Some(calls) = self.0.pointer_mut("/choices/0/message/tool_calls").and_then(Value::as_array_mut)
        {
            calls.truncate(most);
        }
    }
}

impl<V: Borrow<Value>> ModelResponse<V> {
    /// The provider's id of the answer; empty when it has none.
    pub fn id(&self) -> &str {
        self.0.borrow()["id"].as_str().unwrap_or_default()
    }

    /// The `message` of the first choice; empty when there is none.
    pub fn message(&self) -> Map<String, Value> {
        self.first_message().as_object().cloned().unwrap_or_default()
    }

    /// What the model says beside its calls.
    pub fn text(&self) -> &str {
        self.first_message()["content"].as_str().unwrap_or_default()
    }

    /// The calls that the model makes, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = self.first_message()["tool_calls"].as_array();
        calls
            .into_iter()
            .flatten()
            .map(|call| ToolCall {
                id: text(&call["id"]),
                name: text(&call["function"]["name"]),
                arguments: text(&call["function"]["arguments"]),
            })
            .collect()
    }

    fn first_message(&self) -> &Value {
        &self.0.borrow()["choices"][0]["message"]
    }
}

/// What happens during a call.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmProgress {
    /// More of the answer's text, as it is written: for people to look at. Pieces are short, and may end before the
    /// answer does. After [`Self::Retrying`] the answer begins anew.
    Text(String),
    /// More of what the model thinks before it answers, where it shows that; as with text.
    Reasoning(String),
    /// The call failed and is made again.
    Retrying {
        /// Which try comes next, from 2.
        attempt: u32,
        /// How many there are.
        attempts: u32,
        /// How long it waits before.
        after: Duration,
        /// What went wrong.
        error: LlmErrorKind,
    },
}

/// How a call failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct LlmError {
    /// What programs branch on.
    pub kind: LlmErrorKind,
    /// What the provider said, shortened; never holds the key.
    pub detail: String,
    /// How long the provider asks us to wait.
    pub retry_after: Option<Duration>,
}

/// Why a call failed, classified once, at the provider's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LlmErrorKind {
    /// The key is missing or wrong.
    #[error("the model's provider does not accept the key")]
    Authentication,
    /// The key may not do this.
    #[error("the model's provider does not permit this")]
    Permission,
    /// No such model.
    #[error("the model's provider does not know the model")]
    UnknownModel,
    /// Too many calls or tokens.
    #[error("the model's provider limits the rate of calls")]
    RateLimited,
    /// The request is longer than the model's window.
    #[error("the request is longer than the model's context window")]
    ContextWindowExceeded,
    /// Refused for its content.
    #[error("the model's provider refuses the content")]
    ContentPolicy,
    /// The account is empty.
    #[error("the account at the model's provider is out of credit")]
    OutOfCredit,
    /// Overloaded, or failing by itself.
    #[error("the model's provider is unavailable")]
    Unavailable,
    /// The request is wrong in another way.
    #[error("the model's provider refuses the request")]
    BadRequest,
    /// The answer is not one.
    #[error("the model's provider answered with something that is not an answer")]
    Malformed,
    /// The answer ended before its end.
    #[error("the answer of the model's provider was cut")]
    StreamCut,
    /// Nothing came in time.
    #[error("the model's provider did not answer in time")]
    Timeout,
    /// It could not be reached, or the connection broke.
    #[error("the model's provider could not be reached")]
    Connection,
    /// A script of answers is at its end.
    #[error("the scripted model has no more answers")]
    ScriptEnded,
    /// Recorded calls are replayed, and this is none of them.
    #[error("the recording holds no answer to this request")]
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
            | Self::Permission
            | Self::UnknownModel
            | Self::ContextWindowExceeded
            | Self::ContentPolicy
            | Self::OutOfCredit
            | Self::BadRequest
            | Self::ScriptEnded
            | Self::NotRecorded => false,
        }
    }
}
