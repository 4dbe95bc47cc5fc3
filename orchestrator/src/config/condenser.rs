//! `[condenser]`, or an agent's own, with the models that it names.

use std::collections::BTreeMap;

use engine::condenser::CondenserConfig;
use serde_json::Value;

use super::LlmSettings;
use super::settings::{ConfigError, Settings};

/// How long histories are kept short.
#[derive(Debug, Clone)]
pub(crate) struct CondenserSettings {
    /// What the configuration says; nothing: it says nothing.
    pub chosen: Option<CondenserConfig>,
    /// Whether there is to be one all the same.
    pub is_usual_wanted: bool,
    /// The models that it names, by their groups.
    pub llms: BTreeMap<String, LlmSettings>,
}

impl CondenserSettings {
    /// Reads the section, and the groups of models that it names of those there are. `settings` hold the agent's keys.
    pub(super) fn read(
        settings: &Settings,
        groups: &BTreeMap<(String, String), Settings>,
    ) -> Result<Self, ConfigError> {
        let is_usual_wanted = settings.flag("core", "enable_default_condenser").unwrap_or(true);
        let of_agent = settings.table("agent", "condenser");
        let section = of_agent.unwrap_or_else(|| settings.section("condenser"));
        if section.is_empty() {
            return Ok(Self { chosen: None, is_usual_wanted, llms: BTreeMap::new() });
        }
        let chosen: CondenserConfig = serde_json::from_value(Value::Object(section))
            .map_err(|error| ConfigError::Condenser(error.to_string()))?;
        chosen.check().map_err(|error| ConfigError::Condenser(error.to_string()))?;
        let mut llms = BTreeMap::new();
        for name in chosen.llm_configs() {
            let group = groups.get(&("llm".to_owned(), name.to_owned()));
            let group = group
                .ok_or_else(|| ConfigError::Condenser(format!("llm_config: there is no [llm.{name}]")))?;
            llms.insert(name.to_owned(), LlmSettings::of_group(settings, group));
        }
        Ok(Self { chosen: Some(chosen), is_usual_wanted, llms })
    }
}
