//! How a model is reached and asked: plain data, with V0's names and defaults.
//!
//! Reads neither files nor the environment; that is the composition root's. It is checked when a wire is built from
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::retry::RetryPolicy;

/// One `[llm]` section.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// The model. The prefixes `openai/` and `litellm_proxy/`, which V0's users write to choose the wire, are not
    /// sent; every other name is sent as written.
    pub model: String,
    /// Where the wire begins, as in `https://api.openai.com/v1` (the default) or `http://localhost:4000`:
    /// `/chat/completions` is added to it, nothing else.
    pub base_url: Option<String>,
    /// Sent as bearer token; none for servers that want none.
    pub api_key: Option<SecretString>,
    /// Azure's: sent as query `api-version`, and makes the key go as header `api-key` too.
    pub api_version: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling. 1 means none and is not sent: some models refuse it beside a temperature.
    pub top_p: Option<f64>,
    /// The longest answer, in tokens.
    pub max_output_tokens: Option<u64>,
    /// For providers that can repeat themselves.
    pub seed: Option<i64>,
    /// How long a reasoning model may think, as its provider names it.
    pub reasoning_effort: Option<String>,
    /// When the provider refuses an optional parameter by its name, ask again without it.
    pub drop_params: bool,
    /// Send a note in the place of images.
    pub disable_vision: bool,
    /// Mark what the provider should cache, where marks are understood.
    pub caching_prompt: bool,
    /// How long a try may take.
    pub timeouts: Timeouts,
    /// How often and when to try again.
    pub retry: RetryPolicy,
    /// Overrides the price table, in US dollars; counts only together with the output's.
    pub input_cost_per_token: Option<f64>,
    /// Overrides the price table, in US dollars; counts only together with the input's.
    pub output_cost_per_token: Option<f64>,
    /// Headers to send with every request. May hold keys, so they are as secret.
    pub headers: BTreeMap<String, SecretString>,
    /// V0's `completion_kwargs`: fields of the request, which win over ours; `extra_body` (more fields) and
    /// `extra_headers` are taken apart.
    pub completion_kwargs: Map<String, Value>,
}

/// How long one try may take. All are counted anew for the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// From sending until the headers of the answer. Servers that load or read first answer late.
    pub headers: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// V0's `timeout`: the whole try.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(300),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(1800),
        }
    }
}

/// What of a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No model is named.
    #[error("`model` is empty")]
    NoModel,
    /// The base URL is not one.
    #[error("`base_url` is not a URL")]
    BaseUrl {
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The base URL cannot be used.
    #[error("`base_url` {0}")]
    BaseUrlUnusable(&'static str),
    /// A header that HTTP does not allow, or the key as one. The value is not told: it may be secret.
    #[error("{0} cannot be sent as an HTTP header")]
    Header(String),
    /// A number out of its range.
    #[error("`{key}` is {value}, not {expected}")]
    OutOfRange {
        /// The field.
        key: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A part of `completion_kwargs` that cannot be used.
    #[error("`completion_kwargs`: `{key}` {problem}")]
    CompletionKwargs {
        /// The field in it.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The HTTP client cannot be set up.
    #[error("setting up the HTTP client")]
    Client {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl LlmConfig {
    /// V0's defaults for a model.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            api_version: None,
            temperature: Some(0.0),
            top_p: Some(1.0),
            max_output_tokens: None,
            seed: None,
            reasoning_effort: None,
            drop_params: true,
            disable_vision: false,
            caching_prompt: true,
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
            input_cost_per_token: None,
            output_cost_per_token: None,
            headers: BTreeMap::new(),
            completion_kwargs: Map::new(),
        }
    }

    /// The name that goes over the wire.
    pub(crate) fn wire_model(&self) -> &str {
        ["openai/", "litellm_proxy/"]
            .into_iter()
            .find_map(|prefix| self.model.strip_prefix(prefix))
            .unwrap_or(&self.model)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.wire_model().is_empty() {
            return Err(ConfigError::NoModel);
        }
        in_range("temperature", self.temperature, 0.0, 2.0, "between 0 and 2")?;
        in_range("top_p", self.top_p, 0.0, 1.0, "between 0 and 1")?;
        in_range("input_cost_per_token", self.input_cost_per_token, 0.0, 1.0, "between 0 and 1 dollar")?;
        in_range("output_cost_per_token", self.output_cost_per_token, 0.0, 1.0, "between 0 and 1 dollar")?;
        in_range("retry_multiplier", Some(self.retry.multiplier), 0.0, 1e6, "between 0 and a million")
    }
}

fn in_range(
    key: &'static str,
    value: Option<f64>,
    least: f64,
    most: f64,
    expected: &'static str,
) -> Result<(), ConfigError> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(ConfigError::OutOfRange { key, value, expected })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefixes_that_choose_this_wire_are_taken_off() {
        for (written, sent) in [
            ("openai/gpt-4o", "gpt-4o"),
            ("litellm_proxy/anthropic/claude", "anthropic/claude"),
            ("o3-mini-high", "o3-mini-high"),
            ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
            ("openai/openai/gpt-oss", "openai/gpt-oss"),
        ] {
            assert_eq!(LlmConfig::new(written).wire_model(), sent);
        }
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let config = LlmConfig { temperature: Some(f64::NAN), ..LlmConfig::new("m") };
        assert_eq!(config.check().unwrap_err().to_string(), "`temperature` is NaN, not between 0 and 2");
        assert_eq!(LlmConfig::new("openai/").check().unwrap_err().to_string(), "`model` is empty");
    }

    #[test]
    fn the_key_does_not_print() {
        let config = LlmConfig { api_key: Some("sk-secret".into()), ..LlmConfig::new("m") };
        assert!(!format!("{config:?}").contains("sk-secret"));
    }
}
