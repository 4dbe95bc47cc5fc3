//! The condenser that is configured.

use std::sync::Arc;

use engine::condenser::{Condenser, CondenserConfig};

use super::{Models, model};
use crate::config::Config;

/// The configured condenser. Where none is, V0's usual one; a script has no answers for it, and with one only what does
/// not fit is cut.
pub(crate) fn condenser(config: &Config, models: &Models) -> anyhow::Result<Arc<dyn Condenser>> {
    let settings = &config.condenser;
    let condenser = match &settings.chosen {
        Some(chosen) => chosen.clone(),
        None if settings.is_usual_wanted && !model::is_scripted(&config.llm) => CondenserConfig::v0_default(),
        None => CondenserConfig::ConversationWindow {},
    };
    condenser.build(&|group| match group.and_then(|name| settings.llms.get(name)) {
        Some(settings) => models.other(config, settings),
        None => Ok(Arc::clone(&models.agent)),
    })
}
