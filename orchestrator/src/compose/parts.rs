//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use engine::agent::Agent;
use engine::conversation::Parts;
use engine::events::EventStore;
use engine::sandbox::SandboxSpec;

use super::{Models, StateDir, condenser, guarded_provider, guarded_store, memory, security, tool_servers};
use crate::config::Config;

/// The parts of one conversation. No secret of the configuration gets into its log.
pub(crate) fn parts(
    config: &Config,
    state_dir: &StateDir,
    store: Arc<dyn EventStore>,
    models: &Models,
    agent: Arc<dyn Agent>,
    spec: SandboxSpec,
) -> anyhow::Result<Parts> {
    let (_, analyzer) = security(config)?;
    Ok(Parts {
        store: guarded_store(store, config)?,
        condenser: condenser(config, models)?,
        llm: Arc::clone(&models.agent),
        tool_servers: tool_servers(config, agent.as_ref()),
        agent,
        provider: guarded_provider(config, state_dir)?,
        spec,
        analyzer,
        memory: memory(config),
    })
}
