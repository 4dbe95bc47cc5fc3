//! The configured parts of one conversation.

use std::sync::Arc;

use conversations::ConversationParts;
use engine::agent::{Agent, Team, TeamMember};
use engine::sandbox::SandboxSpec;

use super::{
    Models, StateDir, agent as configured_agent, browsing_provider, condenser, memory, redactor, registry,
    security_analyzer, tool_servers,
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
    let analyzer = security_analyzer(&config.security)?;
    let redactor = redactor(config)?;
    Ok(ConversationParts {
        own: member(config, models, agent)?,
        team: team(config, models)?,
        provider: browsing_provider(config, state_dir)?,
        spec,
        analyzer,
        memory: memory(config),
        redactor,
        secrets: registry(&config.secrets),
        title_model: models.title(),
        disposition: config.sandbox.disposition,
    })
}

/// The agents that tasks can be delegated to. An agent with the same models as the first one shares its clients.
fn team(config: &Config, models: &Models) -> anyhow::Result<Team> {
    let to_member = |(name, own): (&String, &Config)| {
        let models = models.for_delegate(config, own)?;
        Ok((name.clone(), member(own, &models, configured_agent(own)?)?))
    };
    config.team.iter().map(to_member).collect()
}

/// An agent with its models, condenser and tools.
fn member(config: &Config, models: &Models, agent: Arc<dyn Agent>) -> anyhow::Result<TeamMember> {
    Ok(TeamMember {
        llm: Arc::clone(&models.agent),
        draft_editor: models.draft_editor(config)?,
        condenser: condenser(config, models)?,
        tool_servers: tool_servers(&config.mcp_servers, &config.host, agent.as_ref()),
        agent,
    })
}
