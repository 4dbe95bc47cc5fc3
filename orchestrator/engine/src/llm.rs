//! The seam to language models: what is asked, what is answered, and how it can fail.
//!
//! Messages are neutral between the providers' wires. An answer is kept whole, in OpenAI's `chat.completion` shape
//! (V0's `model_response`): blocks that we do not know go back to the provider as they came.

use std::time::Duration;

use async_trait::async_trait;
use protocol::metrics::TokenUsage;
use protocol::tool_call::ModelResponseText;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A language model behind a provider's wire.
#[async_trait]
pub trait Llm: Send + Sync {
    /// The name as it was configured.
    fn model(&self) -> &str;

    /// What a call can cost at most whose request has at most so many tokens, in US dollars. 0 where no price is known: what
    /// it costs is not known then either. Infinite where there is a price and no bound.
    fn max_cost(&self, request_tokens: u64) -> f64;

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
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Vec<Tool>,
}

/// What an image counts at most, in tokens: where it counts most, the tokens are cheap.
const IMAGE_TOKENS: usize = 40_000;

/// What a provider adds to a request at most, in tokens.
const ADDED_TOKENS: usize = 1 << 12;

impl LlmRequest {
    /// How many tokens it has at most: no token is shorter than a byte.
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
            ChatMessage::User(said) => parts(said),
            ChatMessage::Assistant(said) => json_bytes(said),
            ChatMessage::ToolResult { parts: result, .. } => parts(result),
        });
        let tools = self.tools.iter().map(|tool| json_bytes(&tool.to_openai()));
        messages.chain(tools).fold(ADDED_TOKENS, usize::saturating_add) as u64
    }
}

/// How long a value is as JSON. What cannot be written is not sent.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// Who the model is and what it may do.
    System(String),
    /// What the user, or the system in the user's place, says.
    User(Vec<MessagePart>),
    /// What the model said: the `message` of its response, as it came.
    Assistant(Map<String, Value>),
    /// What came of a call that the model made in the turn before.
    ToolResult {
        /// The model's id of the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The result.
        parts: Vec<MessagePart>,
    },
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePart {
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

/// A model's answer in OpenAI's `chat.completion` shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelResponse(pub Value);

/// The `message` of a response's first choice: what the model says and calls. Null when there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantMessage(Value);

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
    pub fn truncate_calls(&mut self, most: usize) {
        if let Some(calls) = self.0.pointer_mut("/choices/0/message/tool_calls").and_then(Value::as_array_mut)
        {
            calls.truncate(most);
        }
    }

    /// The provider's id of the answer; empty when it has none.
    pub fn id(&self) -> &str {
        self.0["id"].as_str().unwrap_or_default()
    }

    /// What the model says beside its calls.
    pub fn text(&self) -> &str {
        text(self.first_message())
    }

    /// The calls that the model makes, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        tool_calls(self.first_message())
    }

    /// The message of the first choice.
    pub fn into_message(mut self) -> AssistantMessage {
        let first = self.0.get_mut("choices").and_then(|choices| choices.get_mut(0));
        let message = first.and_then(|first| first.get_mut("message"));
        AssistantMessage(message.map(Value::take).unwrap_or_default())
    }

    fn first_message(&self) -> &Value {
        &self.0["choices"][0]["message"]
    }
}

impl From<&ModelResponseText> for AssistantMessage {
    /// At every step each response of the view is read again: what is beside the message is passed over.
    fn from(response: &ModelResponseText) -> Self {
        #[derive(Deserialize)]
        struct Response {
            choices: Vec<Choice>,
        }
        #[derive(Deserialize)]
        struct Choice {
            message: Value,
        }
        let read: Option<Response> = serde_json::from_str(response.as_str()).ok();
        match read.and_then(|read| read.choices.into_iter().next()) {
            Some(Choice { message }) => Self(message),
            None => ModelResponse(response.to_value()).into_message(),
        }
    }
}

impl AssistantMessage {
    /// What the model says beside its calls.
    pub fn text(&self) -> &str {
        text(&self.0)
    }

    /// The calls that the model makes, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        tool_calls(&self.0)
    }

    /// Its fields.
    pub fn into_fields(self) -> Map<String, Value> {
        match self.0 {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

fn tool_calls(message: &Value) -> Vec<ToolCall> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    calls
        .map(|call| ToolCall {
            id: text(&call["id"]),
            name: text(&call["function"]["name"]),
            arguments: text(&call["function"]["arguments"]),
        })
        .collect()
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
#[error("{kind}: {detail}{}", wait_of(*.retry_after))]
pub struct LlmError {
    /// What programs branch on.
    pub kind: LlmErrorKind,
    /// What the provider said, shortened; never holds the key.
    pub detail: String,
    /// How long the provider asks us to wait.
    pub retry_after: Option<Duration>,
}

fn wait_of(retry_after: Option<Duration>) -> String {
    retry_after.map(|after| format!("; it asks to wait {} s", after.as_secs_f64())).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use protocol::tool_call::ModelResponseText;
    use serde_json::{Map, Value, json};

    use super::{AssistantMessage, ModelResponse};

    #[test]
    fn a_message_is_read_of_text_as_of_the_response() {
        let message = json!({"content": "a", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]});
        let said =
            json!({"id": "r", "choices": [{"index": 0, "message": message}, {"message": null}], "usage": {}});
        let of_text = |response: Value| AssistantMessage::from(&ModelResponseText::from(&response));
        assert_eq!(of_text(said.clone()).into_fields(), message.as_object().unwrap().clone());
        for response in [
            said,
            json!({"choices": [{"message": message}, 5]}),
            json!({"choices": [{"index": 0}]}),
            json!({"choices": {"0": {"message": message}}}),
            json!({"choices": []}),
            json!({"choices": [{"message": "text"}]}),
            json!("text"),
            json!(null),
        ] {
            let read = of_text(response.clone());
            let whole = ModelResponse(response);
            assert_eq!((read.text(), read.tool_calls()), (whole.text(), whole.tool_calls()), "{whole:?}");
            assert_eq!(read, whole.into_message());
        }
        assert_eq!(of_text(json!([])).into_fields(), Map::new());
    }
}
