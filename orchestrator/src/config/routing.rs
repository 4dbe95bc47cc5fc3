//! `[model_routing]`, or an agent's own: the second model, which is asked what it can answer.

use std::collections::BTreeMap;

use super::LlmSettings;
use super::settings::{ConfigError, Settings};

/// The one router of V0's that chooses.
const MULTIMODAL: &str = "multimodal_router";

/// The group that V0's router asks for by name.
const V0_GROUP: &str = "secondary_model";

/// The second model; nothing: there is one model for everything. `settings` hold the agent's keys.
pub(super) fn read(
    settings: &Settings,
    groups: &BTreeMap<(String, String), Settings>,
) -> Result<Option<LlmSettings>, ConfigError> {
    let of_agent = settings.table("agent", "model_routing");
    let of_agent = of_agent.and_then(|table| Some(table.get("router_name")?.as_str()?.to_owned()));
    match of_agent.or_else(|| settings.text("model_routing", "router_name")).as_deref() {
        Some(MULTIMODAL) => {}
        Some("noop_router") | None => return Ok(None),
        Some(other) => {
            return Err(ConfigError::Routing(format!("there is no router {other}, but {MULTIMODAL}")));
        }
    }
    let marked: Vec<_> = groups
        .iter()
        .filter(|((section, _), group)| section == "llm" && group.flag("llm", "for_routing") == Some(true))
        .collect();
    let second = match marked.as_slice() {
        [one] => Some(one),
        many => many.iter().find(|((_, name), _)| name == V0_GROUP),
    };
    let (_, group) = second.ok_or_else(|| {
        ConfigError::Routing(format!(
            "{MULTIMODAL} needs one [llm.NAME] with for_routing = true, and there are {}",
            marked.len()
        ))
    })?;
    Ok(Some(LlmSettings::of_group(settings, group)))
}
