//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use engine::agent::{Agent, Team, TeamMember};
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
        own: member(config, models, agent, &redactor)?,
        team: Arc::new(team(config, models, &redactor)?),
        provider: guarded_provider(config, state_dir, &redactor)?,
        spec,
        analyzer,
        memory: memory(config),
    })
}

/// Whom tasks can be handed on to. Who is configured for the same models shares them.
fn team(config: &Config, models: &Models, redactor: &Redactor) -> anyhow::Result<Team> {
    let named = |(name, own): (&String, &Config)| {
        let models = models.of_another(config, own)?;
        Ok((name.clone(), member(own, &models, configured_agent(own)?, redactor)?))
    };
    config.team.iter().map(named).collect()
}

/// An agent with what it works with.
fn member(
    config: &Config,
    models: &Models,
    agent: Arc<dyn Agent>,
    redactor: &Redactor,
) -> anyhow::Result<TeamMember> {
    Ok(TeamMember {
        llm: Arc::clone(&models.agent),
        draft_editor: models.draft_editor(config)?,
        condenser: condenser(config, models)?,
        tool_servers: guarded_tool_servers(tool_servers(config, agent.as_ref()), redactor),
        agent,
    })
}
