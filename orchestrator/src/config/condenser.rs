//! `[condenser]`, or the condenser of an agent's section, with the models that it names.

use std::collections::BTreeMap;

use engine::condenser::CondenserConfig;
use serde_json::Value;

use super::LlmSettings;
use super::file::ConfigFile;
use super::settings::{ConfigError, Settings};

/// The condenser, as configured.
#[derive(Debug, Clone)]
pub(crate) struct CondenserSettings {
    /// `None` if the configuration names no condenser.
    pub chosen: Option<CondenserConfig>,
    /// Whether V0's default condenser applies if there is no `chosen` one.
    pub is_default_enabled: bool,
    /// Number of events from which V0's default condenser summarizes. `None` for V0's number.
    pub default_max_size: Option<usize>,
    /// Its models, by the name of their group.
    pub llms: BTreeMap<String, LlmSettings>,
}

impl CondenserSettings {
    /// Reads the section and the groups of its models. `settings` include the keys of the agent's
    /// section.
    pub(super) fn read(settings: &Settings, file: &ConfigFile) -> Result<Self, ConfigError> {
        let is_default_enabled = settings
            .flag("core", "enable_default_condenser")
            .unwrap_or(true);
        let section = settings
            .table("agent", "condenser")
            .unwrap_or_else(|| settings.section("condenser"));
        if section.is_empty() {
            return Ok(Self {
                chosen: None,
                is_default_enabled,
                default_max_size: None,
                llms: BTreeMap::new(),
            });
        }
        let chosen: CondenserConfig = serde_json::from_value(Value::Object(section))
            .map_err(|error| ConfigError::Condenser(error.to_string()))?;
        chosen
            .check()
            .map_err(|error| ConfigError::Condenser(error.to_string()))?;
        let mut llms = BTreeMap::new();
        for name in chosen.llm_configs() {
            let missing =
                || ConfigError::Condenser(format!("llm_config: there is no [llm.{name}]"));
            let group = file.group("llm", name).ok_or_else(missing)?;
            llms.insert(name.to_owned(), LlmSettings::from_group(settings, group));
        }
        Ok(Self {
            chosen: Some(chosen),
            is_default_enabled,
            default_max_size: None,
            llms,
        })
    }
}
