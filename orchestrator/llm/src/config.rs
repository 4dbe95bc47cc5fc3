//! How a model is reached and asked: plain data, with V0's names and defaults.
//!
//! Reads neither files nor the environment; that is the composition root's. It is checked when a wire is built from
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::models::{Lack, lacks};
use crate::retry::RetryPolicy;

/// V0's default of `max_message_chars`.
const DEFAULT_MAX_MESSAGE_CHARS: usize = 30_000;

/// One `[llm]` section.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// The model. The prefixes `openai/`, `litellm_proxy/`, `ollama/`, `ollama_chat/` and `anthropic/`, which V0's users
    /// write to choose the wire, are not sent; every other name is sent as written.
    pub model: String,
    /// `anthropic` chooses Anthropic's wire whatever the model is called, any other name OpenAI's.
    pub custom_llm_provider: Option<String>,
    /// Where the wire begins, as in `https://api.openai.com/v1`, `http://localhost:4000` or
    /// `https://api.anthropic.com`: `/chat/completions` is added to it, or `/v1/messages`, nothing else. When it is
    /// absent it is the provider's own.
    pub base_url: Option<String>,
    /// Sent in the header that the wire wants; none for servers that want none.
    pub api_key: Option<SecretString>,
    /// Azure's: sent as query `api-version`, and makes the key go as header `api-key` too.
    pub api_version: Option<String>,
    /// Sampling temperature. Models that are known to refuse it are sent none, nor the two below.
    pub temperature: Option<f64>,
    /// Nucleus sampling. 1 means none and is not sent: some models refuse it beside a temperature.
    pub top_p: Option<f64>,
    /// Only the likeliest tokens are chosen from, for providers that know it.
    pub top_k: Option<u64>,
    /// The model's window, in tokens, where the table of prices does not know it or is wrong.
    pub max_input_tokens: Option<u64>,
    /// The longest answer, in tokens.
    pub max_output_tokens: Option<u64>,
    /// How much of a tool's result the model is sent, in characters. `None`: all of it.
    pub max_message_chars: Option<usize>,
    /// Texts that end the answer before they are written.
    pub stop: Vec<String>,
    /// For providers that can repeat themselves.
    pub seed: Option<i64>,
    /// How long a reasoning model may think, as its provider names it.
    pub reasoning_effort: Option<String>,
    /// When the provider refuses an optional parameter by its name, ask again without it.
    pub drop_params: bool,
    /// Whether the model makes tool calls by itself; else they are written in its text. `None`: the table of models that
    /// lack them decides.
    pub native_tool_calling: Option<bool>,
    /// Send no stop sequence with calls in the text, for servers that know none.
    pub disable_stop_word: bool,
    /// Send a note in the place of images. `None`: the table of models without vision decides.
    pub disable_vision: Option<bool>,
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

/// Whose format is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    OpenAi,
    Anthropic,
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
            custom_llm_provider: None,
            base_url: None,
            api_key: None,
            api_version: None,
            temperature: Some(0.0),
            top_p: Some(1.0),
            top_k: None,
            max_input_tokens: None,
            max_output_tokens: None,
            max_message_chars: Some(DEFAULT_MAX_MESSAGE_CHARS),
            stop: Vec::new(),
            seed: None,
            reasoning_effort: None,
            drop_params: true,
            native_tool_calling: None,
            disable_stop_word: false,
            disable_vision: None,
            caching_prompt: true,
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
            input_cost_per_token: None,
            output_cost_per_token: None,
            headers: BTreeMap::new(),
            completion_kwargs: Map::new(),
        }
    }

    /// A bare `claude-…` without a base URL is Anthropic's own API too: nobody else knows the name.
    pub(crate) fn provider(&self) -> Provider {
        let own_name = self.model.starts_with("claude-") && self.own_base_url().is_none();
        match self.custom_llm_provider.as_deref().filter(|name| !name.is_empty()) {
            Some("anthropic") => Provider::Anthropic,
            None if own_name || self.model.starts_with("anthropic/") => Provider::Anthropic,
            _ => Provider::OpenAi,
        }
    }

    /// The name that goes over the wire.
    pub(crate) fn wire_model(&self) -> &str {
        let prefixes: &[&str] = match self.provider() {
            Provider::OpenAi => &["openai/", "litellm_proxy/", "ollama/", "ollama_chat/"],
            Provider::Anthropic => &["anthropic/"],
        };
        prefixes.iter().find_map(|prefix| self.model.strip_prefix(prefix)).unwrap_or(&self.model)
    }

    /// Whether images are sent.
    pub(crate) fn sends_images(&self) -> bool {
        self.disable_vision.map_or_else(|| !lacks(&self.model, Lack::Vision), |is_disabled| !is_disabled)
    }

    /// How the next token is chosen, by the names that both wires have, as far as the model is known to take it.
    pub(crate) fn sampling(&self) -> [(&'static str, Value); 3] {
        let is_taken = !lacks(&self.model, Lack::Sampling);
        // Of two that exclude each other the temperature is kept, as V0 does.
        let is_one_enough = self.temperature.is_some() && lacks(&self.model, Lack::TwoSamplers);
        let top_p = self.top_p.filter(|top_p| *top_p < 1.0 && !is_one_enough);
        [
            ("temperature", json!(self.temperature.filter(|_| is_taken))),
            ("top_p", json!(top_p.filter(|_| is_taken))),
            ("top_k", json!(self.top_k.filter(|_| is_taken))),
        ]
    }

    /// The base URL, if one is given.
    pub(crate) fn own_base_url(&self) -> Option<&str> {
        self.base_url.as_deref().map(str::trim).filter(|base| !base.is_empty())
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
            ("ollama/llama3", "llama3"),
            ("ollama_chat/llama3", "llama3"),
        ] {
            assert_eq!(LlmConfig::new(written).wire_model(), sent);
        }
    }

    #[test]
    fn prefix_provider_and_bare_name_choose_the_wire() {
        use Provider::{Anthropic, OpenAi};
        for (model, custom, base, provider, sent) in [
            ("anthropic/claude-x", None, None, Anthropic, "claude-x"),
            ("anthropic/claude-x", None, Some("http://h"), Anthropic, "claude-x"),
            ("claude-x", None, None, Anthropic, "claude-x"),
            ("claude-x", None, Some(" "), Anthropic, "claude-x"),
            ("claude-x", None, Some("http://h"), OpenAi, "claude-x"),
            ("my-model", Some("anthropic"), Some("http://h"), Anthropic, "my-model"),
            ("anthropic/claude-x", Some("openai"), Some("http://h"), OpenAi, "anthropic/claude-x"),
            ("gpt-4o", Some(""), None, OpenAi, "gpt-4o"),
        ] {
            let config = LlmConfig {
                custom_llm_provider: custom.map(str::to_owned),
                base_url: base.map(str::to_owned),
                ..LlmConfig::new(model)
            };
            assert_eq!(
                (config.provider(), config.wire_model()),
                (provider, sent),
                "{model} {custom:?} {base:?}"
            );
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
