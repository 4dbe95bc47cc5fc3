//! Conversations of the server, composed from its configuration.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    Claim, ComposedConversation, ConversationFactory, ConversationParts, ConversationRequest, HostError,
    InitialTask, NewConversation, StoredConversation,
};
use engine::agent::Agent;
use engine::sandbox::SandboxProvider;
use protocol::ConversationId;
use protocol::record::ConversationStarted;
use secrecy::SecretString;

use super::{
    CallMode, Models, StateDir, agent, confirmation_policy, conversation_spec, host_error, parts, provider,
    restore_settings, started, stored_model_name,
};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::UsageError;
use crate::workspace::{self, WorkspaceFolder};
use crate::writable;

/// Composes each conversation of a server from the configuration with which the server was started.
pub(crate) struct ConfiguredFactory {
    config: Config,
    state_dir: StateDir,
}

impl ConfiguredFactory {
    pub(crate) fn new(config: Config, state_dir: StateDir) -> Self {
        Self { config, state_dir }
    }

    fn new_conversation(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> anyhow::Result<NewConversation> {
        let ConversationRequest { message, instructions, repository, branch, trajectory } = request;
        let mut config = self.config.clone();
        if let Some(repository) = repository {
            let branch = branch.map(|branch| format!("#{branch}")).unwrap_or_default();
            config.workspace.selected_repository = Some(SecretString::from(format!("{repository}{branch}")));
        }
        let task = match (trajectory, message) {
            (Some(trajectory), _) => InitialTask::Replay { trajectory, continues: true },
            (None, Some(message)) => InitialTask::Message(message),
            (None, None) => InitialTask::None,
        };
        let id = claim.id().clone();
        let folder = WorkspaceFolder::choose(&config, &self.state_dir, &id, None)?;
        if let WorkspaceFolder::Local(path) = &folder {
            claim.lock_folder(path)?;
        }
        let setup = workspace::setup(&config.workspace, &folder)?;
        let model = stored_model_name(&config.llm);
        let started = started(&config, &folder, setup, model)?;
        let agent = task.agent(agent(&config)?);
        let mut parts = self.parts(&config, &id, &started, agent, 0)?;
        parts.memory = parts.memory.map(|memory| memory.with_instructions(instructions.unwrap_or_default()));
        Ok(NewConversation { started, parts, title: None, task })
    }

    fn stored_conversation(&self, stored: &mut StoredConversation) -> anyhow::Result<ComposedConversation> {
        let started = stored.started.clone();
        let mut config = self.config.clone();
        restore_settings(&mut config, &started, &Overrides::default())?;
        if started.agent != config.agent.stored_name {
            let text = format!("the conversation's agent {} is not that of this server", started.agent);
            return Err(UsageError(text).into());
        }
        let id = stored.claim().id().clone();
        let folder = started.workspace.as_deref().filter(|_| !config.runtime.is_on_other_machine());
        if let Some(folder) = folder.map(Path::new) {
            workspace::check_not_replaced("workspace", folder)?;
            // An empty workspace was removed.
            if self.state_dir.workspace_in_log(&id, started.workspace.as_deref()).is_some() {
                self.state_dir.workspace(&id)?;
            }
            if folder.exists() {
                stored.claim().lock_folder(folder)?;
            }
        }
        let answered = stored.state.iterations as usize;
        let parts = self.parts(&config, &id, &started, agent(&config)?, answered)?;
        Ok(ComposedConversation { parts, confirmation: confirmation_policy(&config.security) })
    }

    fn parts(
        &self,
        config: &Config,
        id: &ConversationId,
        started: &ConversationStarted,
        agent: Arc<dyn Agent>,
        answered: usize,
    ) -> anyhow::Result<ConversationParts> {
        let models = Models::new(config, answered, CallMode::Live)?;
        let spec = conversation_spec(config, id, started);
        // A server has no user to ask about files that the sandbox could write.
        if let Some(file) = writable::check(config, &spec)?.first() {
            let text =
                format!("the sandbox could write {}, which this machine trusts", file.file.path.display());
            return Err(UsageError(text).into());
        }
        parts(config, &self.state_dir, &models, agent, spec)
    }
}

#[async_trait]
impl ConversationFactory for ConfiguredFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        self.new_conversation(claim, request).map_err(host_error)
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        self.stored_conversation(stored).map_err(host_error)
    }

    fn provider(&self, runtime: &str) -> Result<Arc<dyn SandboxProvider>, HostError> {
        let to_provider = || {
            let runtime: Runtime =
                runtime.parse().map_err(|error| UsageError(format!("{runtime}: {error}")))?;
            provider(&Config { runtime, ..self.config.clone() }, &self.state_dir)
        };
        to_provider().map_err(host_error)
    }
}
