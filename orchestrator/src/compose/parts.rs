//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use engine::agent::{Agent, Member, Team};
use engine::conversation::Parts;
use engine::events::EventStore;
use engine::sandbox::SandboxSpec;
use engine::secrets::Redactor;

use super::{
    Models, StateDir, agent as configured_agent, condenser, guarded_provider, guarded_store,
    guarded_tool_servers, memory, redactor, security, tool_servers,
};
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
    let redactor = redactor(config)?;
    Ok(Parts {
        store: guarded_store(store, &redactor),
        condenser: condenser(config, models)?,
        llm: Arc::clone(&models.agent),
        tool_servers: guarded_tool_servers(tool_servers(config, agent.as_ref()), &redactor),
        agent,
        provider: guarded_provider(config, state_dir, &redactor)?,
        spec,
        analyzer,
        memory: memory(config),
        team: Arc::new(team(config, models, &redactor)?),
    })
}

/// Whom tasks can be handed on to. Who is configured for the same model shares it.
fn team(config: &Config, models: &Models, redactor: &Redactor) -> anyhow::Result<Team> {
    let member = |(name, own): (&String, &Config)| {
        let agent = configured_agent(own)?;
        let models = models.of_another(config, own)?;
        let condenser = condenser(own, &models)?;
        let llm = Arc::clone(&models.agent);
        let tool_servers = guarded_tool_servers(tool_servers(own, agent.as_ref()), redactor);
        Ok((name.clone(), Member { agent, llm, condenser, tool_servers }))
    };
    config.team.iter().map(member).collect()
}
