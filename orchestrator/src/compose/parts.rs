//! The configured parts of one conversation.

use std::path::PathBuf;
use std::sync::Arc;

use conversations::ConversationParts;
use engine::agent::{Agent, Agents, Team, TeamMember};
use engine::sandbox::SandboxSpec;
use engine::secrets::Redactor;
use protocol::ConversationId;
use protocol::record::{ConversationStarted, WorkspaceSetup};

use super::{
    Models, StateDir, agent as configured_agent, browsing_provider, condenser, confirmation_policy,
    memory, registry, security_analyzer, spec, tool_servers,
};
use crate::config::{Config, Runtime};
use crate::exit::UsageError;
use crate::workspace::{self, WorkspaceFolder};

/// Settings of a new conversation, for its log.
pub(crate) fn started(
    config: &Config,
    workspace: &WorkspaceFolder,
    setup: Option<WorkspaceSetup>,
    model: String,
) -> Result<ConversationStarted, UsageError> {
    Ok(ConversationStarted {
        agent: config.agent.stored_name.clone(),
        model,
        model_source: None,
        max_iterations: config.max_iterations,
        max_budget: config.max_budget,
        confirmation: confirmation_policy(&config.security),
        runtime: config.runtime.to_string(),
        host: config
            .sandbox
            .ssh
            .target
            .clone()
            .filter(|_| config.runtime == Runtime::Ssh),
        image: config.sandbox.image.clone(),
        workspace: workspace.for_log()?,
        network: Some(
            config
                .sandbox
                .network
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
        ),
        setup,
        forked_from: None,
        owner: None,
        git_provider: None,
        trigger: None,
        history_truncation_disabled: config.history_truncation_disabled,
        stuck_detection_disabled: config.stuck_detection_disabled,
    })
}

/// Spec of a conversation's sandbox, from its log and the configuration. The environment is not in
/// the log, because it may hold secrets.
pub(crate) fn conversation_spec(
    config: &Config,
    id: &ConversationId,
    started: &ConversationStarted,
) -> SandboxSpec {
    SandboxSpec {
        image: started.image.clone(),
        environment: workspace::environment(&config.workspace, started.setup.as_ref()),
        workspace: started.workspace.as_ref().map(PathBuf::from),
        ..spec(&config.sandbox, id.clone())
    }
}

/// The parts of one conversation.
pub(crate) fn parts(
    config: &Config,
    state_dir: &StateDir,
    models: &Models,
    agent: Arc<dyn Agent>,
    spec: SandboxSpec,
    redactor: Redactor,
) -> anyhow::Result<ConversationParts> {
    let analyzer = security_analyzer(&config.security)?;
    Ok(ConversationParts {
        agents: agents(config, models, agent)?,
        provider: browsing_provider(config, state_dir)?,
        spec,
        analyzer,
        memory: memory(config),
        is_unattended: false,
        redactor,
        secrets: registry(&config.secrets),
        title_model: models.title(),
        disposition: config.sandbox.disposition,
    })
}

/// The conversation's own agent, and the agents that it can delegate tasks to.
pub(super) fn agents(
    config: &Config,
    models: &Models,
    agent: Arc<dyn Agent>,
) -> anyhow::Result<Agents> {
    Ok(Agents {
        own: member(config, models, agent)?,
        team: Arc::new(team(config, models)?),
    })
}

/// The agents that tasks can be delegated to. An agent with the same models as the first one shares
/// its clients.
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
        tool_servers: tool_servers(config, agent.as_ref()),
        agent,
    })
}
