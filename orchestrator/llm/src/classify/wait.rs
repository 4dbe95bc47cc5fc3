//! How long a provider asks us to wait.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::HeaderMap;

/// A LiteLLM proxy renames the headers of the provider behind it.
const PREFIXES: [&str; 2] = ["", "llm_provider-"];

pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let get = |name: &str| {
        PREFIXES.into_iter().find_map(|prefix| headers.get(format!("{prefix}{name}"))?.to_str().ok())
    };
    let precise = get("retry-after-ms").and_then(|text| seconds(text, 1e-3));
    precise.or_else(|| {
        let text = get("retry-after")?;
        seconds(text, 1.0).or_else(|| until(text, now))
    })
}

fn seconds(text: &str, unit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse::<f64>().ok()? * unit).ok()
}

/// HTTP's other form is a date; one that has passed asks for no wait.
fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}
