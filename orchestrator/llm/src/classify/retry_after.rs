//! The delay that a provider requests before a retry.

use std::time::Duration;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

/// Prefixes of headers: a LiteLLM proxy renames those of the provider behind it.
const PREFIXES: [&str; 2] = ["", "llm_provider-"];

pub(super) fn parse(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let get = |name: &str| {
        PREFIXES
            .into_iter()
            .find_map(|prefix| headers.get(format!("{prefix}{name}"))?.to_str().ok())
    };
    let precise = get("retry-after-ms").and_then(|text| parse_seconds(text, 1e-3));
    precise.or_else(|| {
        let text = get("retry-after")?;
        parse_seconds(text, 1.0).or_else(|| duration_until(text, now))
    })
}

/// Parses the delay in OpenAI's texts, such as `please try again in 1.898s.` Errors within a stream
/// have it only there.
pub(super) fn parse_text(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once("try again in ")?;
    let delay = rest.split_whitespace().next()?.trim_end_matches('.');
    delay.parse::<SignedDuration>().ok()?.try_into().ok()
}

fn parse_seconds(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse::<f64>().ok()? * unit).ok()
}

/// Parses HTTP's other format, a date. Zero if it has passed.
fn duration_until(text: &str, now: Timestamp) -> Option<Duration> {
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}
