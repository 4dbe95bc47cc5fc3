//! Phrases in the error texts of providers and of LiteLLM.

use engine::llm::LlmErrorKind::{
    self, Authentication, ContentPolicy, ContextWindowExceeded, OutOfCredit, RateLimited, Timeout,
    Unavailable, UnknownModel,
};

use crate::history::HistoryRefusal;

/// Phrases in lower case; the first match decides. The names of LiteLLM's exceptions follow the
/// other phrases of their kind, and generic kinds are last, because the error that a proxy wraps is
/// the more precise one.
const PHRASES: &[(&str, LlmErrorKind)] = &[
    ("maximum context length", ContextWindowExceeded),
    ("context length exceeded", ContextWindowExceeded),
    ("prompt is too long", ContextWindowExceeded),
    ("input is too long", ContextWindowExceeded),
    ("exceed context limit", ContextWindowExceeded),
    ("available context size", ContextWindowExceeded), // llama.cpp
    ("maximum prompt length", ContextWindowExceeded),  // xAI
    (
        "exceeds the maximum number of tokens",
        ContextWindowExceeded,
    ), // Gemini
    ("please reduce the length of", ContextWindowExceeded), // OpenAI, vLLM: the messages, the prompt, either one
    ("maximum context limit", ContextWindowExceeded),
    (
        "longer than the model's context length",
        ContextWindowExceeded,
    ),
    (
        "input tokens exceed the configured limit",
        ContextWindowExceeded,
    ),
    ("too many tokens:", ContextWindowExceeded), // Cohere; with a comma it is a rate limit of Bedrock
    ("exceeded model token limit", ContextWindowExceeded), // Moonshot
    ("prompt exceeds max length", ContextWindowExceeded), // Z.ai
    ("prompt too long", ContextWindowExceeded),  // Z.ai, Ollama
    ("context window exceeds limit", ContextWindowExceeded), // MiniMax
    ("range of input length should be", ContextWindowExceeded), // DashScope
    ("when context the overflows", ContextWindowExceeded), // LM Studio
    ("greater than the context length", ContextWindowExceeded), // LM Studio
    ("context size has been exceeded", ContextWindowExceeded), // LM Studio
    (
        "`inputs` tokens + `max_new_tokens` must be",
        ContextWindowExceeded,
    ), // TGI
    ("`inputs` must have less than", ContextWindowExceeded), // TGI
    ("maximum supported sequence length", ContextWindowExceeded), // SambaNova
    ("the input token count is", ContextWindowExceeded), // Vertex
    ("exceeds the context length", ContextWindowExceeded), // Ollama
    ("exceeds maximum context length", ContextWindowExceeded), // Ollama
    ("exceeds the maximum allowed length", ContextWindowExceeded), // SGLang
    ("exceeds the context window", ContextWindowExceeded), // OpenAI's responses
    ("length of all messages is too long", ContextWindowExceeded), // Perplexity
    ("contextwindowexceedederror", ContextWindowExceeded),
    // Gemini's rate limit also says "exceeded your current quota", which is OpenAI's phrase for no
    // credit.
    ("resource_exhausted", RateLimited),
    ("insufficient_quota", OutOfCredit),
    ("exceeded your current quota", OutOfCredit),
    ("credit balance is too low", OutOfCredit),
    ("insufficient balance", OutOfCredit),
    ("insufficient credits", OutOfCredit),
    ("budget has been exceeded", OutOfCredit),
    ("exceededbudget", OutOfCredit),
    ("content management policy", ContentPolicy), // Azure
    ("content filtering policy", ContentPolicy),  // Anthropic
    ("contentpolicyviolationerror", ContentPolicy),
    ("incorrect api key", Authentication),
    ("invalid api key", Authentication),
    ("invalid x-api-key", Authentication),
    ("api key not valid", Authentication), // Gemini, with 400
    ("litellm.authenticationerror", Authentication),
    ("invalid model name", UnknownModel), // LiteLLM, with 400
    ("not a valid model", UnknownModel),  // OpenRouter, with 400
    ("model_not_found", UnknownModel),
    ("overloaded_error", Unavailable),
    ("litellm.ratelimiterror", RateLimited),
    ("litellm.timeout", Timeout),
    ("litellm.serviceunavailableerror", Unavailable),
];

/// Phrases for a missing model. The status does not suffice: 404 can also mean a wrong path.
const MISSING: &[&str] = &[
    "not found",
    "does not exist",
    "no endpoints found",
    "model: ",
    "notfounderror",
];

/// OpenAI's error for a text with too many characters.
const LONG_TEXT: &str = "string too long. expected a string with maximum length";

/// Fields that condensation shortens, unlike an id or a description.
const CONDENSABLE_FIELDS: [&str; 4] = ["content", "text", "input", "prompt"];

pub(super) fn kind(status: u16, text: &str) -> Option<LlmErrorKind> {
    if is_long_text(text) {
        return Some(ContextWindowExceeded);
    }
    let by_phrase = PHRASES
        .iter()
        .find(|(phrase, _)| text.contains(phrase))
        .map(|(_, kind)| *kind);
    by_phrase.or_else(|| {
        let missing =
            matches!(status, 400 | 404) && MISSING.iter().any(|phrase| text.contains(phrase));
        (missing && text.contains("model")).then_some(UnknownModel)
    })
}

/// Texts of a refused history, in lower case.
const HISTORY: &[(&str, HistoryRefusal)] = &[
    ("must be passed back", HistoryRefusal::NoReasoning), // DeepSeek
    ("reasoning_content is missing", HistoryRefusal::NoReasoning), // Moonshot
    ("signature` in `thinking`", HistoryRefusal::Reasoning), // Anthropic
    ("signature in thinking block", HistoryRefusal::Reasoning),
    (
        "thinking.signature: field required",
        HistoryRefusal::Reasoning,
    ),
    (
        "bound to a different conversation",
        HistoryRefusal::Reasoning,
    ),
    (
        "blocks in the latest assistant message cannot be modified",
        HistoryRefusal::Reasoning,
    ),
    ("invalid_encrypted_content", HistoryRefusal::Reasoning), // OpenAI
    (
        "without its required following item",
        HistoryRefusal::Reasoning,
    ),
    (
        "without its required 'reasoning' item",
        HistoryRefusal::Reasoning,
    ),
    ("item with id 'rs_", HistoryRefusal::Reasoning),
    ("thought signature", HistoryRefusal::Reasoning), // Gemini
];

/// Returns why a provider refuses a history. `None` if it does not.
pub(super) fn refused_history(text: &str, codes: &[String]) -> Option<HistoryRefusal> {
    let is_named = |phrase: &str| text.contains(phrase) || codes.iter().any(|code| code == phrase);
    HISTORY
        .iter()
        .find(|(phrase, _)| is_named(phrase))
        .map(|(_, refusal)| *refusal)
}

/// Whether a text of the request is too long, as in `Invalid 'messages[1].content': string too
/// long. …`. An error without a field is about the request's text.
fn is_long_text(text: &str) -> bool {
    let Some((before, _)) = text.split_once(LONG_TEXT) else {
        return false;
    };
    let field = before
        .rsplit_once("invalid '")
        .map(|(_, field)| field.trim_end_matches([' ', ':', '\'']));
    field.is_none_or(|field| {
        let name = field.rsplit('.').next().unwrap_or(field);
        CONDENSABLE_FIELDS.contains(&name.split('[').next().unwrap_or(name))
    })
}
