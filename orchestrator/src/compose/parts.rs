//! Everything that a conversation needs of the world, as configured.

use std::sync::Arc;

use engine::agent::{Agent, Member, Team};
use engine::conversation::Parts;
use engine::events::EventStore;
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;

use super::{
    StateDir, agent as configured_agent, condenser, guarded_provider, guarded_store, memory, security,
    tool_servers,
};
use crate::config::{Config, LlmSettings};

/// How a model is reached.
pub(crate) type Connect<'a> = dyn Fn(&LlmSettings) -> anyhow::Result<Arc<dyn Llm>> + 'a;

/// The parts of one conversation. No secret of the configuration gets into its log.
pub(crate) fn parts(
    config: &Config,
    state_dir: &StateDir,
    store: Arc<dyn EventStore>,
    llm: Arc<dyn Llm>,
    agent: Arc<dyn Agent>,
    spec: SandboxSpec,
    connect: &Connect<'_>,
) -> anyhow::Result<Parts> {
    let (_, analyzer) = security(config)?;
    let team = team(config, &llm, connect)?;
    Ok(Parts {
        store: guarded_store(store, config)?,
        condenser: condenser(config, &llm)?,
        llm,
        tool_servers: tool_servers(config, agent.as_ref()),
        agent,
        provider: guarded_provider(config, state_dir)?,
        spec,
        analyzer,
        memory: memory(config),
        team: Arc::new(team),
    })
}

/// Whom tasks can be handed on to. Who is configured for the same model shares it.
fn team(config: &Config, llm: &Arc<dyn Llm>, connect: &Connect<'_>) -> anyhow::Result<Team> {
    let member = |(name, own): (&String, &Config)| {
        let agent = configured_agent(own)?;
        let llm = match own.llm.is_like(&config.llm) {
            true => Arc::clone(llm),
            false => connect(&own.llm)?,
        };
        let condenser = condenser(own, &llm)?;
        let tool_servers = tool_servers(own, agent.as_ref());
        Ok((name.clone(), Member { agent, llm, condenser, tool_servers }))
    };
    config.team.iter().map(member).collect()
}
