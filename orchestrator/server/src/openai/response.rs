//! Responses in OpenAI's format.

use protocol::ConversationId;
use protocol::metrics::TokenUsage;
use serde::Serialize;
use utoipa::ToSchema;

/// What a response and its chunks have in common.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct CompletionHead {
    /// The id of the response.
    id: String,
    /// Seconds since the Unix epoch.
    created: u64,
    /// The model of the request.
    model: String,
    /// The conversation.
    conversation_id: ConversationId,
}

/// The answer of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: CompletionHead,
    /// Always `chat.completion`.
    object: &'static str,
    /// One.
    choices: [Choice; 1],
    usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
struct Choice {
    index: u32,
    message: AnswerMessage,
    finish_reason: FinishReason,
    logprobs: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AnswerMessage {
    /// Always `assistant`.
    role: &'static str,
    /// What the agent says in this turn.
    content: String,
    refusal: Option<String>,
}

/// A part of an answer.
#[derive(Debug, Serialize)]
pub(super) struct ChatCompletionChunk<'a> {
    #[serde(flatten)]
    head: &'a CompletionHead,
    object: &'static str,
    choices: Vec<ChunkChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    finish_reason: Option<FinishReason>,
    logprobs: Option<bool>,
}

#[derive(Debug, Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FinishReason {
    /// The agent is idle.
    Stop,
    /// The text was cut off at its maximum length.
    Length,
}

/// Tokens that the models of the conversation used in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokenDetails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
struct PromptTokenDetails {
    cached_tokens: u64,
}

/// The models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// Always `list`.
    object: &'static str,
    data: Vec<ModelInfo>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ModelInfo {
    id: String,
    /// Always `model`.
    object: &'static str,
    /// Always 0: it is not known.
    created: u64,
    /// Always `glovebox`.
    owned_by: &'static str,
}

impl CompletionHead {
    pub(super) fn new(id: String, model: String, conversation_id: ConversationId) -> Self {
        let created = accounts::unix_now_ms() / 1000;
        Self {
            id,
            created,
            model,
            conversation_id,
        }
    }
}

impl ChatCompletion {
    pub(super) fn new(
        head: CompletionHead,
        content: String,
        finish_reason: FinishReason,
        usage: Usage,
    ) -> Self {
        let message = AnswerMessage {
            role: "assistant",
            content,
            refusal: None,
        };
        let choice = Choice {
            index: 0,
            message,
            finish_reason,
            logprobs: None,
        };
        Self {
            head,
            object: "chat.completion",
            choices: [choice],
            usage,
        }
    }
}

impl<'a> ChatCompletionChunk<'a> {
    /// The first chunk.
    pub(super) fn role(head: &'a CompletionHead) -> Self {
        Self::with_delta(
            head,
            Delta {
                role: Some("assistant"),
                content: Some(""),
            },
            None,
        )
    }

    /// A message of the agent.
    pub(super) fn content(head: &'a CompletionHead, content: &'a str) -> Self {
        Self::with_delta(
            head,
            Delta {
                role: None,
                content: Some(content),
            },
            None,
        )
    }

    /// The end of the answer.
    pub(super) fn end(head: &'a CompletionHead, reason: FinishReason) -> Self {
        Self::with_delta(head, Delta::default(), Some(reason))
    }

    /// The usage, after the end.
    pub(super) fn usage(head: &'a CompletionHead, usage: Usage) -> Self {
        Self {
            choices: Vec::new(),
            usage: Some(usage),
            ..Self::end(head, FinishReason::Stop)
        }
    }

    fn with_delta(
        head: &'a CompletionHead,
        delta: Delta<'a>,
        finish_reason: Option<FinishReason>,
    ) -> Self {
        let choice = ChunkChoice {
            index: 0,
            delta,
            finish_reason,
            logprobs: None,
        };
        Self {
            head,
            object: "chat.completion.chunk",
            choices: vec![choice],
            usage: None,
        }
    }
}

impl From<TokenUsage> for Usage {
    fn from(usage: TokenUsage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            prompt_tokens_details: PromptTokenDetails {
                cached_tokens: usage.cache_read_tokens,
            },
        }
    }
}

impl ModelList {
    pub(super) fn new(ids: impl Iterator<Item = String>) -> Self {
        let to_info = |id| ModelInfo {
            id,
            object: "model",
            created: 0,
            owned_by: "glovebox",
        };
        Self {
            object: "list",
            data: ids.map(to_info).collect(),
        }
    }
}
