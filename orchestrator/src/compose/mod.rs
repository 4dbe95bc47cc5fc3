//! The composition root: the only place that knows every concrete type.

mod model;
mod sandboxes;
mod state_dir;

use std::sync::Arc;

use engine::agent::{Agent, CodeActAgent};

use crate::config::Config;
use crate::exit::UsageError;

pub(crate) use model::{lasting_model_name, llm, recorded_llm, replayed_llm, scripted_llm};
pub(crate) use sandboxes::{
    Sweep, choose_runtime, is_spare_in_use, isolation, provider, provider_with_spares, spec,
};
pub(crate) use state_dir::{Lock, StateDir};

/// The agent of that name.
pub(crate) fn agent(config: &Config) -> anyhow::Result<Arc<dyn Agent>> {
    match config.agent.as_str() {
        "CodeActAgent" => Ok(Arc::new(CodeActAgent { command_timeout: config.command_timeout })),
        other => Err(UsageError(format!("there is no agent {other}: CodeActAgent is there")).into()),
    }
}
