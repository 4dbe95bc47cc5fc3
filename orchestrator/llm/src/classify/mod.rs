//! From what a provider answers to one of the engine's kinds of error. The only place that reads providers' texts.
//!
//! In this order, the first that decides: statuses that mean one thing everywhere; the error's own words (type, code);
//! its text; any other status. Words come before statuses because 429 also says "out of credit" and 400 also says
//! "too long"; texts come at all because a LiteLLM proxy keeps the words of the provider behind it only there.

mod said;
mod texts;
mod wait;

#[cfg(test)]
mod tests;

use std::time::Duration;

use engine::llm::LlmErrorKind;
use jiff::Timestamp;
use reqwest::header::HeaderMap;

pub(crate) use said::Said;

/// An answer that is an error.
#[derive(Debug, PartialEq)]
pub(crate) struct Classified {
    pub(crate) kind: LlmErrorKind,
    /// What the provider said, as it came: neither shortened nor free of keys.
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// The optional parameter that the provider refuses by its name.
    pub(crate) refused_parameter: Option<String>,
}

pub(crate) fn classify(status: u16, headers: &HeaderMap, said: Said, now: Timestamp) -> Classified {
    // An error inside a success (OpenRouter's, and those in the middle of a stream) carries its status as its code.
    let status = if status < 300 { said.status.unwrap_or(status) } else { status };
    Classified {
        kind: kind(status, &said),
        retry_after: wait::retry_after(headers, now),
        refused_parameter: said.refused_parameter(),
        message: said.message,
    }
}

fn kind(status: u16, said: &Said) -> LlmErrorKind {
    definite(status)
        .or_else(|| said.words.iter().find_map(|word| by_word(word)))
        .or_else(|| texts::kind(status, &said.text))
        .unwrap_or_else(|| by_status(status))
}

/// Statuses that no word or text makes mean something else. 413 is a body or a prompt that is too large: Groq says
/// `rate_limit_exceeded` with it, for a request that no waiting makes fit.
fn definite(status: u16) -> Option<LlmErrorKind> {
    match status {
        401 => Some(LlmErrorKind::Authentication),
        402 => Some(LlmErrorKind::OutOfCredit),
        408 => Some(LlmErrorKind::Timeout),
        413 => Some(LlmErrorKind::ContextWindowExceeded),
        529 => Some(LlmErrorKind::Unavailable),
        _ => None,
    }
}

/// By `type`, `code` or `status` of the error, in lower case. Words that say no more than the status, as
/// `invalid_request_error` and `api_error`, are not here.
fn by_word(word: &str) -> Option<LlmErrorKind> {
    Some(match word {
        "context_length_exceeded" | "request_too_large" | "exceed_context_size_error" => {
            LlmErrorKind::ContextWindowExceeded
        }
        "invalid_api_key" | "authentication_error" | "unauthenticated" | "account_deactivated" => {
            LlmErrorKind::Authentication
        }
        "permission_error" | "permission_denied" | "unsupported_country_region_territory" => {
            LlmErrorKind::Permission
        }
        "model_not_found" | "deploymentnotfound" => LlmErrorKind::UnknownModel,
        "insufficient_quota"
        | "billing_error"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "insufficient_balance"
        | "budget_exceeded" => LlmErrorKind::OutOfCredit,
        "content_filter" | "content_policy_violation" | "responsibleaipolicyviolation" => {
            LlmErrorKind::ContentPolicy
        }
        "rate_limit_exceeded" | "rate_limit_error" | "resource_exhausted" | "too_many_requests" => {
            LlmErrorKind::RateLimited
        }
        "overloaded_error" | "overloaded" | "engine_overloaded" | "server_error" | "service_unavailable" => {
            LlmErrorKind::Unavailable
        }
        _ => return None,
    })
}

fn by_status(status: u16) -> LlmErrorKind {
    match status {
        403 => LlmErrorKind::Permission,
        429 => LlmErrorKind::RateLimited,
        // An error in a success that says nothing of itself broke while the answer was made.
        200..=299 | 500..=599 => LlmErrorKind::Unavailable,
        _ => LlmErrorKind::BadRequest,
    }
}
