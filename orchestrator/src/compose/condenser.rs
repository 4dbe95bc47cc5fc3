//! The condenser.

use std::sync::Arc;

use engine::condenser::{Condenser, CondenserConfig};

use super::{Models, model};
use crate::config::Config;

/// The configured condenser, else V0's default. A scripted model has no responses for that one, so
/// its history is only cut to the context window.
pub(crate) fn condenser(config: &Config, models: &Models) -> anyhow::Result<Arc<dyn Condenser>> {
    let settings = &config.condenser;
    let condenser = match &settings.chosen {
        Some(chosen) => chosen.clone(),
        None if settings.is_default_enabled && !model::is_scripted(&config.llm) => {
            settings.default_max_size.map_or_else(
                CondenserConfig::v0_default,
                CondenserConfig::v0_default_with,
            )
        }
        None => CondenserConfig::ConversationWindow {},
    };
    condenser.build(
        &|group| match group.and_then(|name| settings.llms.get(name)) {
            Some(settings) => models.connect(config, settings),
            None => Ok(Arc::clone(&models.agent)),
        },
    )
}
