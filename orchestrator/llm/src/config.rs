//! Configuration of a model: plain data, with V0's names and defaults.
//!
//! It is validated when a wire is built from it. Files and the environment are read by the
//! composition root.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::connection_guard::ConnectionGuard;
use crate::hosts;
use crate::models::{MissingFeature, lacks, requires_responses};
use crate::retry::RetryPolicy;

/// V0's default of `max_message_chars`.
const DEFAULT_MAX_MESSAGE_CHARS: usize = 30_000;

/// The `custom_llm_provider` that chooses the Responses API.
const RESPONSES_PROVIDER: &str = "openai_responses";

/// An `[llm]` section.
#[derive(Debug, Clone)]
pub struct LlmConfig {
    /// The model. The prefixes with which V0's users choose the wire are not sent:
    /// `openai/responses/`, `openai/`, `litellm_proxy/`, `ollama/`, `ollama_chat/` and
    /// `anthropic/`.
    pub model: String,
    /// Chooses the wire regardless of the model's name: `anthropic` Anthropic's messages,
    /// `openai_responses` OpenAI's Responses API, any other value chat completions. `None` if the
    /// model's name and the host choose it.
    pub custom_llm_provider: Option<String>,
    /// The URL to which `/chat/completions`, `/responses` or `/v1/messages` is appended, such as
    /// `https://api.openai.com/v1`, `http://localhost:4000` or `https://api.anthropic.com`. `None`
    /// for the provider's own.
    pub base_url: Option<String>,
    /// The key, sent in the wire's header. `None` for servers that require none.
    pub api_key: Option<SecretString>,
    /// The API version of Azure: the query parameter `api-version`. The key is also sent in the
    /// header `api-key` then.
    pub api_version: Option<String>,
    /// Sampling temperature. Not sent to models that are known to refuse it; the same holds for
    /// `top_p` and `top_k`.
    pub temperature: Option<f64>,
    /// Nucleus sampling. 1 disables it and is not sent, because some models refuse it together with
    /// a temperature.
    pub top_p: Option<f64>,
    /// Number of the most likely tokens to sample from, for providers that support it.
    pub top_k: Option<u64>,
    /// Context window in tokens. Overrides the price table.
    pub max_input_tokens: Option<u64>,
    /// Maximum length of a response, in tokens.
    pub max_output_tokens: Option<u64>,
    /// Maximum length of a tool's result, in characters; the middle of a longer one is left out.
    /// `None` for no limit.
    pub max_message_chars: Option<usize>,
    /// Stop sequences.
    pub stop: Vec<String>,
    /// Seed of the sampling, for providers that support it.
    pub seed: Option<i64>,
    /// Effort of a reasoning model, in the provider's terms.
    pub reasoning_effort: Option<String>,
    /// Whether to repeat a request without an optional parameter that the provider refuses.
    pub drop_params: bool,
    /// Whether to use the provider's tool calls; otherwise they are emulated in the text. `None` if
    /// the table of models decides.
    pub native_tool_calling: Option<bool>,
    /// Whether to send no stop sequence with emulated tool calls, for servers without stop
    /// sequences.
    pub disable_stop_word: bool,
    /// Whether to send a note instead of images. `None` if the table of models decides.
    pub disable_vision: Option<bool>,
    /// Whether to mark the parts of a prompt that the provider should cache, if it supports marks.
    pub caching_prompt: bool,
    /// Timeouts of one attempt.
    pub timeouts: Timeouts,
    /// Retries of a failed attempt.
    pub retry: RetryPolicy,
    /// Overrides the price table, in US dollars. Requires `output_cost_per_token`.
    pub input_cost_per_token: Option<f64>,
    /// Overrides the price table, in US dollars. Requires `input_cost_per_token`.
    pub output_cost_per_token: Option<f64>,
    /// Headers of each request. Secret, because they may hold keys.
    pub headers: BTreeMap<String, SecretString>,
    /// V0's `completion_kwargs`: fields of the request, which override all others. `extra_body`
    /// holds further fields, and `extra_headers` holds headers.
    pub completion_kwargs: Map<String, Value>,
    /// Restricts the connections, for an address that a user has chosen. `None` for an address of
    /// the operator.
    pub connection_guard: Option<ConnectionGuard>,
    /// Answers in place of the provider.
    #[cfg(feature = "testing")]
    pub in_process: Option<crate::testing::InProcessProvider>,
}

/// The provider's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    OpenAi,
    OpenAiResponses,
    Anthropic,
}

/// Timeouts of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time to establish a connection.
    pub connect: Duration,
    /// Maximum time from sending the request to the headers of the response. Long, because servers
    /// may load the model or process the prompt first.
    pub headers: Duration,
    /// Maximum time between two chunks of the response.
    pub idle: Duration,
    /// V0's `timeout`: maximum time of the attempt.
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

/// An error of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The model is missing.
    #[error("`model` is empty")]
    NoModel,
    /// The base URL is not a URL.
    #[error("`base_url` is not a URL")]
    BaseUrl {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The base URL starts with its host.
    #[error("`base_url` {0} lacks `http://` or `https://`")]
    BaseUrlWithoutScheme(String),
    /// The base URL is not supported.
    #[error("`base_url` {0}")]
    BaseUrlUnusable(&'static str),
    /// HTTP does not allow this header, or the key as a header. Omits the value, which may be
    /// secret.
    #[error("{0} cannot be sent as an HTTP header")]
    Header(String),
    /// A number is out of range.
    #[error("`{key}` is {value}, not {expected}")]
    OutOfRange {
        /// The field.
        key: &'static str,
        /// The configured value.
        value: f64,
        /// The allowed range.
        expected: &'static str,
    },
    /// A field of `completion_kwargs` is not supported.
    #[error("`completion_kwargs`: `{key}` {problem}")]
    CompletionKwargs {
        /// The field.
        key: String,
        /// What is wrong with the field.
        problem: &'static str,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client")]
    Client {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl LlmConfig {
    /// Returns the configuration of a model with V0's defaults.
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
            connection_guard: None,
            #[cfg(feature = "testing")]
            in_process: None,
        }
    }

    /// Returns the provider. A `claude-…` without a prefix and a base URL is Anthropic's own API
    /// too. The models that need the Responses API need it on OpenAI's hosts only: compatible
    /// servers with the same names may not have it.
    pub(crate) fn provider(&self) -> Provider {
        self.provider_with_reason().0
    }

    /// Returns why the provider is chosen, too.
    pub(crate) fn provider_with_reason(&self) -> (Provider, &'static str) {
        let own_name = self.model.starts_with("claude-") && self.configured_base_url().is_none();
        match self
            .custom_llm_provider
            .as_deref()
            .filter(|name| !name.is_empty())
        {
            Some("anthropic") => (Provider::Anthropic, "by custom_llm_provider"),
            Some(RESPONSES_PROVIDER) => (Provider::OpenAiResponses, "by custom_llm_provider"),
            _ if self.model.starts_with("openai/responses/") => {
                (Provider::OpenAiResponses, "by the prefix of the name")
            }
            None if own_name || self.model.starts_with("anthropic/") => {
                (Provider::Anthropic, "by the name")
            }
            None if requires_responses(&self.model) && self.is_served_by_openai() => (
                Provider::OpenAiResponses,
                "by the name, on the hosts of OpenAI and Azure",
            ),
            Some(_) => (Provider::OpenAi, "by custom_llm_provider"),
            None => (Provider::OpenAi, "as most servers"),
        }
    }

    /// Returns the same configuration with the wire of the Responses API.
    pub(crate) fn with_responses(&self) -> Self {
        Self {
            custom_llm_provider: Some(RESPONSES_PROVIDER.to_owned()),
            ..self.clone()
        }
    }

    /// Whether the host is OpenAI's or Azure's.
    pub(crate) fn is_served_by_openai(&self) -> bool {
        let Some(base) = self.configured_base_url() else {
            return true;
        };
        let Ok(url) = base.parse::<Url>() else {
            return false;
        };
        url.host_str()
            .is_some_and(|host| hosts::is_openai(host) || hosts::is_azure(host))
    }

    /// Returns the model's name as it is sent.
    pub(crate) fn wire_model(&self) -> &str {
        let prefixes: &[&str] = match self.provider() {
            Provider::OpenAi | Provider::OpenAiResponses => &[
                "openai/responses/",
                "openai/",
                "litellm_proxy/",
                "ollama/",
                "ollama_chat/",
            ],
            Provider::Anthropic => &["anthropic/"],
        };
        prefixes
            .iter()
            .find_map(|prefix| self.model.strip_prefix(prefix))
            .unwrap_or(&self.model)
    }

    /// Whether to send images.
    pub(crate) fn sends_images(&self) -> bool {
        self.disable_vision.map_or_else(
            || !lacks(&self.model, MissingFeature::Vision),
            |is_disabled| !is_disabled,
        )
    }

    /// Returns the sampling parameters, null for those that the model is known to refuse.
    pub(crate) fn sampling(&self) -> [(&'static str, Value); 3] {
        let is_supported = !lacks(&self.model, MissingFeature::Sampling);
        // If temperature and top_p exclude each other, the temperature is kept, as in V0.
        let is_excluded =
            self.temperature.is_some() && lacks(&self.model, MissingFeature::TwoSamplers);
        let top_p = self.top_p.filter(|top_p| *top_p < 1.0 && !is_excluded);
        [
            (
                "temperature",
                json!(self.temperature.filter(|_| is_supported)),
            ),
            ("top_p", json!(top_p.filter(|_| is_supported))),
            ("top_k", json!(self.top_k.filter(|_| is_supported))),
        ]
    }

    /// Returns the configured base URL.
    pub(crate) fn configured_base_url(&self) -> Option<&str> {
        self.base_url
            .as_deref()
            .map(str::trim)
            .filter(|base| !base.is_empty())
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.wire_model().is_empty() {
            return Err(ConfigError::NoModel);
        }
        check_range("temperature", self.temperature, 0.0, 2.0, "between 0 and 2")?;
        check_range("top_p", self.top_p, 0.0, 1.0, "between 0 and 1")?;
        check_range(
            "input_cost_per_token",
            self.input_cost_per_token,
            0.0,
            1.0,
            "between 0 and 1 dollar",
        )?;
        check_range(
            "output_cost_per_token",
            self.output_cost_per_token,
            0.0,
            1.0,
            "between 0 and 1 dollar",
        )?;
        check_range(
            "retry_multiplier",
            Some(self.retry.multiplier),
            0.0,
            1e6,
            "between 0 and a million",
        )
    }
}

fn check_range(
    key: &'static str,
    value: Option<f64>,
    min: f64,
    max: f64,
    expected: &'static str,
) -> Result<(), ConfigError> {
    match value {
        Some(value) if !(min..=max).contains(&value) => Err(ConfigError::OutOfRange {
            key,
            value,
            expected,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_removed_when_it_chooses_the_wire() {
        for (written, sent) in [
            ("openai/gpt-4o", "gpt-4o"),
            ("openai/responses/gpt-4o", "gpt-4o"),
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
        use Provider::{Anthropic, OpenAi, OpenAiResponses};
        for (model, custom, base, provider, sent) in [
            ("anthropic/claude-x", None, None, Anthropic, "claude-x"),
            (
                "anthropic/claude-x",
                None,
                Some("http://h"),
                Anthropic,
                "claude-x",
            ),
            ("claude-x", None, None, Anthropic, "claude-x"),
            ("claude-x", None, Some(" "), Anthropic, "claude-x"),
            ("claude-x", None, Some("http://h"), OpenAi, "claude-x"),
            (
                "my-model",
                Some("anthropic"),
                Some("http://h"),
                Anthropic,
                "my-model",
            ),
            (
                "anthropic/claude-x",
                Some("openai"),
                Some("http://h"),
                OpenAi,
                "anthropic/claude-x",
            ),
            ("gpt-4o", Some(""), None, OpenAi, "gpt-4o"),
            ("gpt-5.4", None, None, OpenAiResponses, "gpt-5.4"),
            (
                "openai/gpt-5.4",
                None,
                Some("https://eu.api.openai.com/v1"),
                OpenAiResponses,
                "gpt-5.4",
            ),
            (
                "gpt-5.4",
                None,
                Some("https://x.openai.azure.com"),
                OpenAiResponses,
                "gpt-5.4",
            ),
            ("gpt-5.4", None, Some("http://h"), OpenAi, "gpt-5.4"),
            ("gpt-5.4", None, Some("not a url"), OpenAi, "gpt-5.4"),
            ("gpt-5.4", Some("openai"), None, OpenAi, "gpt-5.4"),
            ("gpt-5.2", None, None, OpenAi, "gpt-5.2"),
            (
                "openai/responses/m",
                None,
                Some("http://h"),
                OpenAiResponses,
                "m",
            ),
            (
                "litellm_proxy/m",
                Some("openai_responses"),
                Some("http://h"),
                OpenAiResponses,
                "m",
            ),
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
    fn number_out_of_range_is_named_in_the_error() {
        let config = LlmConfig {
            temperature: Some(f64::NAN),
            ..LlmConfig::new("m")
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "`temperature` is NaN, not between 0 and 2"
        );
        assert_eq!(
            LlmConfig::new("openai/")
                .validate()
                .unwrap_err()
                .to_string(),
            "`model` is empty"
        );
    }

    #[test]
    fn key_is_not_printed() {
        let config = LlmConfig {
            api_key: Some("sk-secret".into()),
            ..LlmConfig::new("m")
        };
        assert!(!format!("{config:?}").contains("sk-secret"));
    }
}
