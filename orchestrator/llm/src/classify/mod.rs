//! Classifies error responses of providers as one of the engine's kinds. Only this module reads
//! providers' texts.
//!
//! The first match decides: an unambiguous status, a code of the error (`type`, `code`, `status`),
//! a phrase of its text, any other status. Codes precede other statuses, because 429 can also mean
//! "out of credit" and 400 "too long". Texts are needed because a LiteLLM proxy has the codes of
//! the provider behind it only there.

mod error_body;
mod phrases;
mod retry_after;

#[cfg(test)]
mod tests;

use std::time::Duration;

use engine::llm::LlmErrorKind;
use jiff::Timestamp;
use reqwest::header::HeaderMap;

use crate::history::HistoryRefusal;
pub(crate) use error_body::{ErrorBody, is_html};

/// The classification of an error response.
#[derive(Debug, PartialEq)]
pub(crate) struct ClassifiedError {
    pub(crate) kind: LlmErrorKind,
    /// The provider's message, neither truncated nor redacted.
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
    /// The name of the optional parameter that the provider refuses.
    pub(crate) refused_parameter: Option<String>,
    /// Why the provider refuses the history.
    pub(crate) refused_history: Option<HistoryRefusal>,
    /// Whether the provider refuses chat completions for the model and names the Responses API
    /// instead.
    pub(crate) requires_responses: bool,
}

pub(crate) fn classify(
    status: u16,
    headers: &HeaderMap,
    body: ErrorBody,
    now: Timestamp,
) -> ClassifiedError {
    // An error in a successful response (OpenRouter, and errors within a stream) has its status as
    // a code.
    let status = if status < 300 {
        body.status.unwrap_or(status)
    } else {
        status
    };
    let kind = kind(status, &body);
    ClassifiedError {
        kind,
        retry_after: retry_after::parse(headers, now)
            .or_else(|| retry_after::parse_text(&body.text)),
        refused_parameter: body.refused_parameter(),
        refused_history: phrases::refused_history(&body.text, &body.codes).or_else(|| {
            (kind == LlmErrorKind::BadRequest && body.names_image())
                .then_some(HistoryRefusal::Image)
        }),
        requires_responses: matches!(status, 400 | 404) && body.requires_responses(),
        message: body.message,
    }
}

fn kind(status: u16, body: &ErrorBody) -> LlmErrorKind {
    by_definite_status(status)
        .or_else(|| body.codes.iter().find_map(|code| by_code(code)))
        .or_else(|| phrases::kind(status, &body.text))
        .unwrap_or_else(|| by_status(status))
}

/// Classifies unambiguous statuses. 413 is a body or prompt that is too large: Groq combines it
/// with `rate_limit_exceeded`, although the request never succeeds.
fn by_definite_status(status: u16) -> Option<LlmErrorKind> {
    match status {
        401 => Some(LlmErrorKind::Authentication),
        402 => Some(LlmErrorKind::OutOfCredit),
        408 => Some(LlmErrorKind::Timeout),
        413 => Some(LlmErrorKind::ContextWindowExceeded),
        529 => Some(LlmErrorKind::Unavailable),
        _ => None,
    }
}

/// Classifies a `type`, `code` or `status` in lower case. Omits those that add nothing to the HTTP
/// status, such as `invalid_request_error` and `api_error`.
fn by_code(code: &str) -> Option<LlmErrorKind> {
    Some(match code {
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
        "content_filter"
        | "content_policy_violation"
        | "image_content_policy_violation"
        | "responsibleaipolicyviolation"
        | "invalid_prompt" => LlmErrorKind::ContentPolicy,
        "rate_limit_exceeded" | "rate_limit_error" | "resource_exhausted" | "too_many_requests" => {
            LlmErrorKind::RateLimited
        }
        "overloaded_error"
        | "overloaded"
        | "engine_overloaded"
        | "server_is_overloaded"
        | "slow_down"
        | "server_error"
        | "service_unavailable" => LlmErrorKind::Unavailable,
        // The request's images, such as `image_too_large` and `invalid_image_url`, also in a stream
        // with status 200.
        code if code.contains("image") => LlmErrorKind::BadRequest,
        _ => return None,
    })
}

fn by_status(status: u16) -> LlmErrorKind {
    match status {
        // Redirects are not followed. A missing model has a code or a phrase.
        300..=399 | 404 | 405 => LlmErrorKind::WrongAddress,
        403 => LlmErrorKind::Permission,
        429 => LlmErrorKind::RateLimited,
        // An error without a code in a successful response: the provider failed during generation.
        200..=299 | 500..=599 => LlmErrorKind::Unavailable,
        _ => LlmErrorKind::BadRequest,
    }
}
