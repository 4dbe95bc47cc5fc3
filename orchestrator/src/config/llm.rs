//! `[llm]` and its groups: the agent's model, and those with a task of their own.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use llm::{LlmConfig, RetryPolicy};
use protocol::client_api::UserSettings;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::file::ConfigFile;
use super::settings::{ConfigError, Settings};
use super::{AgentSettings, Overrides};

/// Maximum number of tokens of a response with a title, reasoning included. Its cost is reserved
/// from the budget.
const MAX_TITLE_TOKENS: u32 = 4000;

/// V0's group of the model that applies the edits that the agent drafts.
const DRAFT_EDITOR: &str = "draft_editor";

/// Prefixes of Ollama's models in V0.
const OLLAMA_PREFIXES: [&str; 2] = ["ollama/", "ollama_chat/"];

/// A model and the settings of its requests.
#[derive(Debug, Clone)]
pub(crate) struct LlmSettings {
    /// `None` if the configuration names no model.
    pub model: Option<String>,
    /// Settings that do not depend on the model. [`Self::provider_config`] adds the others.
    pub provider: LlmConfig,
    /// Address of Ollama, for its models.
    ollama_base_url: Option<String>,
    /// V0's `safety_settings`, for the models of Gemini and Mistral.
    safety_settings: Option<Value>,
    /// Whether calls are recorded.
    pub logs_completions: bool,
    /// Folder of recorded calls. `None` for one in the state folder.
    pub log_folder: Option<PathBuf>,
    /// Hash of the section, which holds secrets and therefore cannot be compared itself.
    section_hash: u64,
}

/// The price of a model, in US dollars per token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ModelPrice {
    pub input: f64,
    pub output: f64,
}

impl LlmSettings {
    fn from_section(settings: &Settings) -> Self {
        let mut hasher = DefaultHasher::new();
        Value::Object(settings.section("llm"))
            .to_string()
            .hash(&mut hasher);
        Self {
            model: settings.text("llm", "model"),
            provider: read_provider(settings),
            ollama_base_url: settings.text("llm", "ollama_base_url"),
            safety_settings: settings.tables("llm", "safety_settings"),
            logs_completions: settings.flag("llm", "log_completions").unwrap_or(false),
            log_folder: settings.path("llm", "log_completions_folder"),
            section_hash: hasher.finish(),
        }
    }

    /// The settings for requests to this model.
    pub(crate) fn provider_config(&self, model: &str) -> LlmConfig {
        let mut config = LlmConfig {
            model: model.to_owned(),
            ..self.provider.clone()
        };
        if OLLAMA_PREFIXES
            .iter()
            .any(|prefix| model.starts_with(prefix))
        {
            // `base_url` may be inherited from another provider's section, so `ollama_base_url`
            // wins.
            let base_url = self.ollama_base_url.clone().or(config.base_url);
            config.base_url = Some(to_ollama_base_url(base_url));
        }
        let has_safety_settings = ["gemini", "mistral"]
            .iter()
            .any(|name| model.contains(name));
        if let Some(list) = self.safety_settings.clone().filter(|_| has_safety_settings) {
            config
                .completion_kwargs
                .entry("safety_settings")
                .or_insert(list);
        }
        config
    }

    /// The model of a group, which inherits from its section.
    pub(super) fn from_group(section: &Settings, group: &Settings) -> Self {
        let mut settings = section.clone();
        settings.overlay(group.clone());
        Self::from_section(&settings)
    }

    /// Sends requests to another address.
    pub(crate) fn set_base_url(&mut self, base_url: String) {
        self.provider.base_url = Some(base_url);
        self.ollama_base_url = None;
    }

    /// Removes everything that is meant for the configured address, such as keys and headers.
    /// `base_url` is the other address; `None` for that of the model's provider.
    pub(crate) fn remove_credentials(&mut self, base_url: Option<String>) {
        let LlmConfig {
            timeouts,
            retry,
            max_message_chars,
            ..
        } = self.provider;
        self.provider = LlmConfig {
            base_url,
            timeouts,
            retry,
            max_message_chars,
            ..LlmConfig::new("")
        };
        self.ollama_base_url = None;
        self.safety_settings = None;
    }

    /// Marks the model as changed by a user's settings, so that it is not the same as one of the
    /// configuration.
    pub(crate) fn mark_as_changed(&mut self, user: &UserSettings) {
        let mut hasher = DefaultHasher::new();
        let key = user.llm_api_key.as_ref().map(|key| key.expose_secret());
        (self.section_hash, &user.llm_base_url, key).hash(&mut hasher);
        self.section_hash = hasher.finish();
    }

    /// Whether both are the same model, called with the same settings.
    pub(crate) fn is_same_model(&self, other: &Self) -> bool {
        self.model == other.model && self.section_hash == other.section_hash
    }

    /// The agent's model. `--model` and the agent's `llm_config` name a group `[llm.NAME]`, or else
    /// a model.
    pub(super) fn read_agent(
        mut settings: Settings,
        file: &ConfigFile,
        overrides: &Overrides,
        agent: &AgentSettings,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut name = overrides.model.clone().or_else(|| agent.model.clone());
        let group = name.as_deref().and_then(|name| file.group("llm", name));
        if group.is_none() && overrides.model.is_none() && agent.definition.is_ok() {
            // V0 falls back to [llm] if the group of `llm_config` does not exist. An agent's file
            // may name a model instead.
            let configured = settings.text("agent", "llm_config");
            if let Some(name) = name.take_if(|name| configured.as_ref() == Some(&*name)) {
                warnings.push(format!(
                    "agent.llm_config: there is no [llm.{name}]: [llm] is used"
                ));
            }
        }
        let model = name.filter(|_| group.is_none());
        settings.overlay(group.cloned().unwrap_or_default());
        warnings.extend(settings.without_effect());
        let mut llm = Self::from_section(&settings);
        llm.model = model.or(llm.model);
        llm
    }

    /// The model that generates titles. `None` if titles are not generated.
    pub(super) fn read_title(
        settings: &Settings,
        file: &ConfigFile,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(name) = settings.text("core", "title_llm_config") else {
            return Ok(None);
        };
        let Some(group) = file.group("llm", &name) else {
            return Err(ConfigError::NoTitleModel(name));
        };
        let mut settings = settings.clone();
        settings.overlay(group.clone());
        settings.set_default_integer("llm", "max_output_tokens", MAX_TITLE_TOKENS);
        Ok(Some(Self::from_section(&settings)))
    }

    /// The prices that the section and its groups set, by model. The higher one if a model has
    /// several, so that a budget is not exceeded.
    pub(super) fn read_prices(
        settings: &Settings,
        file: &ConfigFile,
    ) -> BTreeMap<String, ModelPrice> {
        let groups = file
            .groups
            .iter()
            .filter(|((section, _), _)| section == "llm")
            .map(|(_, group)| Self::from_group(settings, group));
        let mut prices: BTreeMap<String, ModelPrice> = BTreeMap::new();
        for llm in groups.chain([Self::from_section(settings)]) {
            let LlmConfig {
                input_cost_per_token: Some(input),
                output_cost_per_token: Some(output),
                ..
            } = llm.provider
            else {
                continue;
            };
            let Some(model) = llm.model else { continue };
            let price = prices.entry(model).or_insert(ModelPrice { input, output });
            price.input = price.input.max(input);
            price.output = price.output.max(output);
        }
        prices
    }

    /// The model that applies drafted edits. `None` if the agent's own model does.
    pub(super) fn read_draft_editor(settings: &Settings, file: &ConfigFile) -> Option<Self> {
        file.group("llm", DRAFT_EDITOR)
            .map(|group| Self::from_group(settings, group))
    }
}

/// Overrides the wire's defaults, which are V0's, with the configured values.
fn read_provider(settings: &Settings) -> LlmConfig {
    let text = |name| settings.text("llm", name);
    let flag = |name| settings.flag("llm", name);
    let integer = |name| settings.integer("llm", name);
    let number = |name| settings.number("llm", name);
    let seconds = |name| number(name).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // 0 is V0's notation for an unknown limit.
    let tokens = |name| integer(name).filter(|tokens| *tokens > 0);
    let mut config = LlmConfig::new("");
    config.custom_llm_provider = text("custom_llm_provider");
    config.base_url = text("base_url");
    config.api_key = text("api_key").map(SecretString::from);
    config.api_version = text("api_version");
    config.completion_kwargs = settings
        .table("llm", "completion_kwargs")
        .unwrap_or_default();
    config.temperature = number("temperature").or(config.temperature);
    config.top_p = number("top_p").or(config.top_p);
    match number("top_k") {
        // Both wires have an integer, so a fraction is passed through unchecked, as in V0.
        Some(top_k) if top_k.fract() != 0.0 => {
            config
                .completion_kwargs
                .entry("top_k")
                .or_insert(top_k.into());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a configured number is small"
        )]
        top_k => config.top_k = top_k.map(|top_k| top_k as u64),
    }
    config.max_input_tokens = tokens("max_input_tokens");
    config.max_output_tokens = tokens("max_output_tokens");
    if let Some(max) = integer("max_message_chars") {
        config.max_message_chars = usize::try_from(max).ok();
    }
    config.seed = integer("seed").and_then(|seed| i64::try_from(seed).ok());
    config.reasoning_effort = text("reasoning_effort");
    config.drop_params = flag("drop_params").unwrap_or(config.drop_params);
    config.native_tool_calling = flag("native_tool_calling");
    config.disable_stop_word = flag("disable_stop_word").unwrap_or_default();
    config.disable_vision = flag("disable_vision");
    config.caching_prompt = flag("caching_prompt").unwrap_or(config.caching_prompt);
    config.input_cost_per_token = number("input_cost_per_token");
    config.output_cost_per_token = number("output_cost_per_token");
    let total = seconds("timeout").filter(|time| !time.is_zero());
    config.timeouts.total = total.unwrap_or(config.timeouts.total);
    let attempts = integer("num_retries").and_then(|number| u32::try_from(number).ok());
    let default = config.retry;
    config.retry = RetryPolicy {
        num_retries: attempts.unwrap_or(default.num_retries),
        multiplier: number("retry_multiplier").unwrap_or(default.multiplier),
        min_wait: seconds("retry_min_wait").unwrap_or(default.min_wait),
        max_wait: seconds("retry_max_wait").unwrap_or(default.max_wait),
    };
    config
}

/// Address of Ollama's OpenAI-compatible API. Users configure the address of its own API.
fn to_ollama_base_url(base_url: Option<String>) -> String {
    let base_url = base_url.unwrap_or_else(|| "http://localhost:11434".to_owned());
    let server = base_url.trim_end_matches('/');
    format!("{}/v1", server.strip_suffix("/v1").unwrap_or(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_model_is_called_in_openais_format() {
        for (given, base_url) in [
            (None, "http://localhost:11434/v1"),
            (Some("http://h:1/"), "http://h:1/v1"),
            (Some("http://h:1/v1/"), "http://h:1/v1"),
        ] {
            assert_eq!(to_ollama_base_url(given.map(str::to_owned)), base_url);
        }
    }
}
