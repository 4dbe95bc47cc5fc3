//! `[llm]` and its groups: the agent's model, and those with a task of their own.

use secrecy::SecretString;

use super::file::File;
use super::settings::{ConfigError, Settings};
use super::{AgentSettings, Overrides};

/// Maximum number of tokens of a response with a title, reasoning included. Its cost is reserved from the budget.
const MAX_TITLE_TOKENS: u32 = 4000;

/// V0's group of the model that applies the edits that the agent drafts.
const DRAFT_EDITOR: &str = "draft_editor";

/// A model and the settings of its requests.
#[derive(Debug, Clone)]
pub(crate) struct LlmSettings {
    /// `None` if the configuration names no model.
    pub model: Option<String>,
    /// API key of the provider.
    pub api_key: Option<SecretString>,
    /// Every key of its section.
    pub settings: Settings,
}

impl LlmSettings {
    fn from_section(settings: Settings) -> Self {
        Self {
            model: settings.text("llm", "model"),
            api_key: settings.text("llm", "api_key").map(SecretString::from),
            settings,
        }
    }

    /// The model of a group, which inherits from its section.
    pub(super) fn from_group(section: &Settings, group: &Settings) -> Self {
        let mut settings = section.clone();
        settings.overlay(group.clone());
        Self::from_section(settings)
    }

    /// Whether both are the same model, called with the same settings.
    pub(super) fn is_same_model(&self, other: &Self) -> bool {
        self.model == other.model && self.settings.section("llm") == other.settings.section("llm")
    }

    /// The agent's model. `--model` and the agent's `llm_config` name a group `[llm.NAME]`, or else a model.
    pub(super) fn read_agent(
        mut settings: Settings,
        file: &File,
        overrides: &Overrides,
        agent: &AgentSettings,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut name = overrides.model.clone().or_else(|| agent.model.clone());
        let group = name.as_deref().and_then(|name| file.group("llm", name));
        if group.is_none() && overrides.model.is_none() && agent.definition.is_ok() {
            // V0 falls back to [llm] if the group of `llm_config` does not exist. An agent's file may name a model instead.
            let configured = settings.text("agent", "llm_config");
            if let Some(name) = name.take_if(|name| configured.as_ref() == Some(&*name)) {
                warnings.push(format!("agent.llm_config: there is no [llm.{name}]: [llm] is used"));
            }
        }
        let model = name.filter(|_| group.is_none());
        settings.overlay(group.cloned().unwrap_or_default());
        let mut llm = Self::from_section(settings);
        llm.model = model.or(llm.model);
        llm
    }

    /// The model that generates titles. `None` if titles are not generated.
    pub(super) fn read_title(settings: &Settings, file: &File) -> Result<Option<Self>, ConfigError> {
        let Some(name) = settings.text("core", "title_llm_config") else { return Ok(None) };
        let Some(group) = file.group("llm", &name) else { return Err(ConfigError::NoTitleModel(name)) };
        let mut llm = Self::from_group(settings, group);
        llm.settings.set_default_integer("llm", "max_output_tokens", MAX_TITLE_TOKENS);
        Ok(Some(llm))
    }

    /// The model that applies drafted edits. `None` if the agent's own model does.
    pub(super) fn read_draft_editor(settings: &Settings, file: &File) -> Option<Self> {
        file.group("llm", DRAFT_EDITOR).map(|group| Self::from_group(settings, group))
    }
}
