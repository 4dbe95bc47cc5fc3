//! Phrases that providers, and LiteLLM in front of them, put into the texts of their errors.

use engine::llm::LlmErrorKind::{
    self, Authentication, ContentPolicy, ContextWindowExceeded, OutOfCredit, RateLimited, Timeout,
    Unavailable, UnknownModel,
};

/// In lower case; the first that is found decides. Names of LiteLLM's exceptions come last in their kind, and the
/// generic kinds last of all: a proxy wraps one error into another, and the inner one is the precise one.
const PHRASES: &[(&str, LlmErrorKind)] = &[
    ("maximum context length", ContextWindowExceeded),
    ("context length exceeded", ContextWindowExceeded),
    ("prompt is too long", ContextWindowExceeded),
    ("input is too long", ContextWindowExceeded),
    ("exceed context limit", ContextWindowExceeded),
    ("available context size", ContextWindowExceeded), // llama.cpp
    ("maximum prompt length", ContextWindowExceeded),  // xAI
    ("exceeds the maximum number of tokens", ContextWindowExceeded), // Gemini
    ("reduce the length of the messages", ContextWindowExceeded),
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

/// Providers word a missing model in many ways, and use 404 for a wrong path too.
const MISSING: &[&str] = &["not found", "does not exist", "no endpoints found", "model: ", "notfounderror"];

pub(super) fn kind(status: u16, text: &str) -> Option<LlmErrorKind> {
    let by_phrase = PHRASES.iter().find(|(phrase, _)| text.contains(phrase)).map(|(_, kind)| *kind);
    by_phrase.or_else(|| {
        let missing = matches!(status, 400 | 404) && MISSING.iter().any(|phrase| text.contains(phrase));
        (missing && text.contains("model")).then_some(UnknownModel)
    })
}
