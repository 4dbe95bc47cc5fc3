//! Classification of error responses. The only reader of providers' error bodies.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::credentials::Credentials;
use crate::error::RequestError;

/// Classifies a response that is not a success.
pub(super) fn classify(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    credentials: &Credentials,
) -> RequestError {
    let detail = credentials.detail(&message(body));
    match status {
        429 => RequestError::RateLimited {
            retry_at: retry_at(headers, Timestamp::now()),
        },
        403 if is_rate_limit(headers) => RequestError::RateLimited {
            retry_at: retry_at(headers, Timestamp::now()),
        },
        401 | 403 => RequestError::TokenRejected { status, detail },
        // Azure DevOps sends its sign-in page instead.
        203 => RequestError::TokenRejected {
            status,
            detail: String::new(),
        },
        300..=399 => RequestError::OtherOrigin,
        404 | 410 => RequestError::NotFound,
        _ => RequestError::Status { status, detail },
    }
}

/// Whether a status of 403 means a rate limit. GitHub reports primary and secondary limits in these
/// ways.
fn is_rate_limit(headers: &HeaderMap) -> bool {
    headers.contains_key("retry-after") || text(headers, "x-ratelimit-remaining") == Some("0")
}

/// Returns when a retry can succeed: a delay or date in `Retry-After`, else the end of the period
/// that the limit is for.
pub(super) fn retry_at(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let after = text(headers, "retry-after").and_then(|value| match value.parse() {
        Ok(seconds) => now.checked_add(Duration::from_secs(seconds)).ok(),
        Err(_) => Some(rfc2822::parse(value).ok()?.timestamp()),
    });
    let reset = || {
        let value = ["x-ratelimit-reset", "ratelimit-reset"]
            .into_iter()
            .find_map(|name| text(headers, name))?;
        Timestamp::from_second(value.parse().ok()?).ok()
    };
    after.or_else(reset)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Finds the message in an error body. Empty if there is none.
fn message(body: &[u8]) -> String {
    let body: Value = protocol::untrusted_json::from_slice(body).unwrap_or_default();
    ["/message", "/error/message", "/error_description", "/error"]
        .into_iter()
        .find_map(|path| match body.pointer(path)? {
            Value::String(text) => Some(text.clone()),
            // GitLab's errors of validation.
            other if path == "/message" => Some(other.to_string()),
            _ => None,
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn retry_at_seconds(pairs: &[(&'static str, &'static str)]) -> Option<i64> {
        let now = Timestamp::from_second(1_000).unwrap();
        retry_at(&headers(pairs), now).map(Timestamp::as_second)
    }

    #[test]
    fn time_of_retry_is_read_in_every_format() {
        assert_eq!(retry_at_seconds(&[("retry-after", "30")]), Some(1_030));
        let date = "Thu, 01 Jan 1970 01:00:00 GMT";
        assert_eq!(retry_at_seconds(&[("retry-after", date)]), Some(3_600));
        assert_eq!(
            retry_at_seconds(&[("x-ratelimit-reset", "5000")]),
            Some(5_000)
        );
        assert_eq!(
            retry_at_seconds(&[("ratelimit-reset", "6000")]),
            Some(6_000)
        );
        assert_eq!(
            retry_at_seconds(&[("retry-after", "1"), ("x-ratelimit-reset", "5000")]),
            Some(1_001)
        );
    }

    #[test]
    fn time_of_retry_is_unknown_when_it_is_no_time() {
        assert_eq!(retry_at_seconds(&[]), None);
        for value in [
            "",
            "soon",
            "-5",
            "99999999999999999999",
            "18446744073709551615",
        ] {
            assert_eq!(
                retry_at_seconds(&[("retry-after", value), ("ratelimit-reset", "x")]),
                None,
                "{value}"
            );
        }
    }

    #[test]
    fn message_is_found_in_the_bodies_of_all_providers() {
        let cases = [
            (
                r#"{"message":"Bad credentials","documentation_url":"x"}"#,
                "Bad credentials",
            ),
            (
                r#"{"message":{"base":["is bad"]}}"#,
                r#"{"base":["is bad"]}"#,
            ),
            (
                r#"{"error":"invalid_token","error_description":"Token was revoked."}"#,
                "Token was revoked.",
            ),
            (r#"{"error":"404 Not Found"}"#, "404 Not Found"),
            (
                r#"{"type":"error","error":{"message":"No access"}}"#,
                "No access",
            ),
            (
                r#"{"$id":"1","message":"TF400813: not authorized","typeKey":"x"}"#,
                "TF400813: not authorized",
            ),
            ("<html>", ""),
            ("[]", ""),
        ];
        for (body, expected) in cases {
            assert_eq!(message(body.as_bytes()), expected, "{body}");
        }
    }
}
