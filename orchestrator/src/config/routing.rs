//! `[model_routing]`, or the router of an agent's section: a cheaper model for the requests that it
//! supports.

use super::LlmSettings;
use super::file::ConfigFile;
use super::settings::{ConfigError, Settings};

/// V0's only router that chooses between models.
const MULTIMODAL: &str = "multimodal_router";

/// The group that V0's router uses.
const V0_GROUP: &str = "secondary_model";

/// Reads the secondary model. `None` without a router. `settings` include the keys of the agent's
/// section.
pub(super) fn read(
    settings: &Settings,
    file: &ConfigFile,
) -> Result<Option<LlmSettings>, ConfigError> {
    let own = settings.table("agent", "model_routing");
    let own = own.and_then(|table| Some(table.get("router_name")?.as_str()?.to_owned()));
    match own
        .or_else(|| settings.text("model_routing", "router_name"))
        .as_deref()
    {
        Some(MULTIMODAL) => {}
        Some("noop_router") | None => return Ok(None),
        Some(other) => {
            return Err(ConfigError::Routing(format!(
                "there is no router {other}, but {MULTIMODAL}"
            )));
        }
    }
    let marked: Vec<_> = file
        .groups
        .iter()
        .filter(|((section, _), group)| {
            section == "llm" && group.flag("llm", "for_routing") == Some(true)
        })
        .collect();
    let secondary = match marked.as_slice() {
        [one] => Some(one),
        many => many.iter().find(|((_, name), _)| name == V0_GROUP),
    };
    let (_, group) = secondary.ok_or_else(|| {
        ConfigError::Routing(format!(
            "{MULTIMODAL} needs one [llm.NAME] with for_routing = true, and there are {}",
            marked.len()
        ))
    })?;
    Ok(Some(LlmSettings::from_group(settings, group)))
}
