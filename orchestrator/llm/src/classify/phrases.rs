//! Phrases in the error texts of providers and of LiteLLM.

use engine::llm::LlmErrorKind::{
    self, Authentication, ContentPolicy, ContextWindowExceeded, OutOfCredit, RateLimited, Timeout,
    Unavailable, UnknownModel,
};

/// Phrases in lower case; the first match decides. The names of LiteLLM's exceptions follow the other phrases of their kind,
/// and generic kinds are last, because the error that a proxy wraps is the more precise one.
const PHRASES: &[(&str, LlmErrorKind)] = &[
    ("maximum context length", ContextWindowExceeded),
    ("context length exceeded", ContextWindowExceeded),
    ("prompt is too long", ContextWindowExceeded),
    ("input is too long", ContextWindowExceeded),
    ("exceed context limit", ContextWindowExceeded),
    ("available context size", ContextWindowExceeded), // llama.cpp
    ("maximum prompt length", ContextWindowExceeded),  // xAI
    ("exceeds the maximum number of tokens", ContextWindowExceeded), // Gemini
    ("please reduce the length of", ContextWindowExceeded), // OpenAI, vLLM: the messages, the prompt, either one
    ("maximum context limit", ContextWindowExceeded),
    ("longer than the model's context length", ContextWindowExceeded),
    ("input tokens exceed the configured limit", ContextWindowExceeded),
    ("too many tokens:", ContextWindowExceeded), // Cohere; with a comma it is a rate limit of Bedrock
    ("contextwindowexceedederror", ContextWindowExceeded),
    // Gemini's rate limit also says "exceeded your current quota", which is OpenAI's phrase for no credit.
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
const MISSING: &[&str] = &["not found", "does not exist", "no endpoints found", "model: ", "notfounderror"];

/// OpenAI's error for a text with too many characters.
const LONG_TEXT: &str = "string too long. expected a string with maximum length";

/// Fields that condensation shortens, unlike an id or a description.
const CONDENSABLE_FIELDS: [&str; 4] = ["content", "text", "input", "prompt"];

pub(super) fn kind(status: u16, text: &str) -> Option<LlmErrorKind> {
    if is_long_text(text) {
        return Some(ContextWindowExceeded);
    }
    let by_phrase = PHRASES.iter().find(|(phrase, _)| text.contains(phrase)).map(|(_, kind)| *kind);
    by_phrase.or_else(|| {
        let missing = matches!(status, 400 | 404) && MISSING.iter().any(|phrase| text.contains(phrase));
        (missing && text.contains("model")).then_some(UnknownModel)
    })
}

/// Whether a text of the request is too long, as in `Invalid 'messages[1].content': string too long. …`. An error without a
/// field is about the request's text.
fn is_long_text(text: &str) -> bool {
    let Some((before, _)) = text.split_once(LONG_TEXT) else { return false };
    let field = before.rsplit_once("invalid '").map(|(_, field)| field.trim_end_matches([' ', ':', '\'']));
    field.is_none_or(|field| {
        let name = field.rsplit('.').next().unwrap_or(field);
        CONDENSABLE_FIELDS.contains(&name.split('[').next().unwrap_or(name))
    })
}
