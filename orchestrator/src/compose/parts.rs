//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use engine::agent::Agent;
use engine::conversation::Parts;
use engine::events::EventStore;
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;

use super::{
    StateDir, condenser, guarded_provider, guarded_store, guarded_tool_servers, memory, redactor, security,
    tool_servers,
};
use crate::config::Config;

/// The parts of one conversation. No secret of the configuration gets into its log.
pub(crate) fn parts(
    config: &Config,
    state_dir: &StateDir,
    store: Arc<dyn EventStore>,
    llm: Arc<dyn Llm>,
    agent: Arc<dyn Agent>,
    spec: SandboxSpec,
) -> anyhow::Result<Parts> {
    let (_, analyzer) = security(config)?;
    let redactor = redactor(config)?;
    Ok(Parts {
        store: guarded_store(store, &redactor),
        condenser: condenser(config, &llm)?,
        llm,
        tool_servers: guarded_tool_servers(tool_servers(config, agent.as_ref()), &redactor),
        agent,
        provider: guarded_provider(config, state_dir, &redactor)?,
        spec,
        analyzer,
        memory: memory(config),
    })
}
