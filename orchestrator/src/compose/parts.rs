//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use conversations::ConversationParts;
use engine::agent::{Agent, Team, TeamMember};
use engine::sandbox::SandboxSpec;

use super::{
    Models, StateDir, agent as configured_agent, browsing_provider, condenser, memory, redactor, registry,
    security, tool_servers,
};
use crate::config::Config;

/// The parts of one conversation.
pub(crate) fn parts(
    config: &Config,
    state_dir: &StateDir,
    models: &Models,
    agent: Arc<dyn Agent>,
    spec: SandboxSpec,
) -> anyhow::Result<ConversationParts> {
    let (_, analyzer) = security(config)?;
    let redactor = redactor(config)?;
    Ok(ConversationParts {
        own: member(config, models, agent)?,
        team: team(config, models)?,
        provider: browsing_provider(config, state_dir)?,
        spec,
        analyzer,
        memory: memory(config),
        redactor,
        secrets: registry(config),
        title_model: models.title(),
        afterwards: config.sandbox.afterwards,
    })
}

/// Whom tasks can be handed on to. Who is configured for the same models shares them.
fn team(config: &Config, models: &Models) -> anyhow::Result<Team> {
    let named = |(name, own): (&String, &Config)| {
        let models = models.of_another(config, own)?;
        Ok((name.clone(), member(own, &models, configured_agent(own)?)?))
    };
    config.team.iter().map(named).collect()
}

/// An agent with what it works with.
fn member(config: &Config, models: &Models, agent: Arc<dyn Agent>) -> anyhow::Result<TeamMember> {
    Ok(TeamMember {
        llm: Arc::clone(&models.agent),
        draft_editor: models.draft_editor(config)?,
        condenser: condenser(config, models)?,
        tool_servers: tool_servers(config, agent.as_ref()),
        agent,
    })
}
