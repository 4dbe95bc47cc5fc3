//! Completes a decoded response: its ids, its usage, and the fields that each stored response has.

use engine::llm::ModelResponse;
use protocol::metrics::TokenUsage;
use serde_json::Value;
use uuid::Uuid;

use crate::arguments::MAX_ARGUMENT_VALUES;

/// A decoded response.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) response: ModelResponse,
    /// `None` if the provider did not count the tokens.
    pub(crate) usage: Option<TokenUsage>,
    /// The cost in the usage, as OpenRouter reports it, in US dollars.
    pub(crate) reported_cost: Option<f64>,
}

/// An error of a body that is not a usable response.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the response is not a JSON object")]
    NotAnObject,
    #[error("the response has no choices")]
    NoChoices,
    #[error("the first choice of the response has no message")]
    NoMessage,
    /// A response of Anthropic without content.
    #[error("the response has no content")]
    NoContent,
    /// A response of OpenAI's Responses API without output.
    #[error("the response has no output")]
    NoOutput,
    /// A response of OpenAI's Responses API that failed or was cancelled, without an error.
    #[error("the response failed without an error")]
    Failed,
    /// The arguments of the calls have too many values.
    #[error("the calls of the response have more than {MAX_ARGUMENT_VALUES} values")]
    LargeCalls,
    /// The provider has removed the content.
    #[error("the response was filtered")]
    Filtered,
    /// A response of Anthropic that its provider has stopped, for a reason of this category.
    #[error(
        "the provider stopped the response ({0}); a request with the same messages is refused again"
    )]
    Refused(String),
}

/// Completes a response. Fails if the provider has removed its content.
pub(crate) fn complete_response(mut response: ModelResponse) -> Result<Decoded, DecodeError> {
    let ModelResponse {
        id,
        message,
        finish_reason,
        provider_fields,
        ..
    } = &mut response;
    if finish_reason == "content_filter" && message.text.is_empty() && message.tool_calls.is_empty()
    {
        return Err(DecodeError::Filtered);
    }
    if id.is_empty() {
        *id = format!("chatcmpl-{}", Uuid::now_v7());
    }
    // Results refer to calls by their ids.
    for (number, call) in (1..).zip(&mut message.tool_calls) {
        if call.id.is_empty() {
            call.id = format!("{id}-call-{number}");
        }
    }
    let fields = &mut provider_fields.0;
    fields
        .entry("created")
        .or_insert_with(|| jiff::Timestamp::now().as_second().into());
    fields.entry("model").or_insert_with(|| "".into());
    let usage = &*fields.entry("usage").or_insert(Value::Null);
    let reported_cost = usage["cost"].as_f64();
    let usage = usage.is_object().then(|| parse_usage(usage, id.clone()));
    Ok(Decoded {
        response,
        usage,
        reported_cost,
    })
}

/// Parses a usage with the names of OpenAI, Anthropic (through LiteLLM), DeepSeek or OpenRouter.
fn parse_usage(usage: &Value, response_id: String) -> TokenUsage {
    let first = |found: [&Value; 3]| {
        found
            .into_iter()
            .find_map(Value::as_u64)
            .unwrap_or_default()
    };
    let prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or_default();
    let completion_tokens = usage["completion_tokens"].as_u64().unwrap_or_default();
    let details = &usage["prompt_tokens_details"];
    TokenUsage {
        prompt_tokens,
        completion_tokens,
        cache_read_tokens: first([
            &details["cached_tokens"],
            &usage["cache_read_input_tokens"],
            &usage["prompt_cache_hit_tokens"],
        ]),
        cache_write_tokens: first([
            &usage["cache_creation_input_tokens"],
            &details["cache_creation_tokens"],
            &details["cache_write_tokens"],
        ]),
        per_turn_token: prompt_tokens.saturating_add(completion_tokens),
        response_id,
        ..TokenUsage::default()
    }
}
