//! Conversations of the server, composed from its configuration and the settings of their user.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    Claim, ComposedAgents, ComposedConversation, ConversationFactory, ConversationParts,
    ConversationRequest, GitToken, HostError, InitialTask, NewConversation, ProfileError,
    StoredConversation, UserProfile, UserProfiles,
};
use engine::agent::Agent;
use engine::conversation::SandboxDisposition;
use engine::sandbox::SandboxProvider;
use protocol::client_api::git::GitProvider;
use protocol::record::{ConversationStarted, ModelSource};
use protocol::{ConversationId, UserId};
use secrecy::SecretString;

use super::shared_redactors::SharedRedactors;
use super::user_model::OPERATORS_MODEL;
use super::{
    CallMode, Models, StateDir, UserConfigs, agent, agents, clone_url, confirmation_policy,
    conversation_spec, host_error, parts, provider, restore_settings, started, stored_model_name,
};
use crate::config::{Config, Overrides};
use crate::exit::UsageError;
use crate::metrics::Metrics;
use crate::workspace::{self, WorkspaceFolder};
use crate::writable;

/// Composes each conversation of a server from the configuration with which the server was started,
/// and the settings that its user has stored by now.
pub(crate) struct ConfiguredFactory {
    configs: UserConfigs,
    profiles: Arc<UserProfiles>,
    state_dir: StateDir,
    metrics: Arc<Metrics>,
    redactors: SharedRedactors,
}

impl ConfiguredFactory {
    pub(crate) fn new(
        configs: UserConfigs,
        profiles: Arc<UserProfiles>,
        state_dir: StateDir,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            configs,
            profiles,
            state_dir,
            metrics,
            redactors: SharedRedactors::default(),
        }
    }

    /// Loads what the owner of a conversation has stored.
    async fn profile(&self, owner: Option<&UserId>) -> Result<UserProfile, HostError> {
        self.profiles
            .load(owner)
            .await
            .map_err(|error| match error {
                ProfileError::Store(error) => error,
                error => HostError::Failed(error.into()),
            })
    }

    async fn new_conversation(
        &self,
        mut config: Config,
        tokens: &BTreeMap<GitProvider, GitToken>,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> anyhow::Result<NewConversation> {
        let ConversationRequest {
            message,
            instructions,
            repository,
            branch,
            trajectory,
            ..
        } = request;
        let mut git_provider = request.git_provider;
        if let Some(repository) = repository {
            let chosen = clone_url::choose(&repository, git_provider, tokens)?;
            git_provider = chosen.provider;
            let branch = branch
                .map(|branch| format!("#{branch}"))
                .unwrap_or_default();
            config.workspace.selected_repository =
                Some(SecretString::from(format!("{}{branch}", chosen.url)));
        }
        let task = match (trajectory, message) {
            (Some(trajectory), _) => InitialTask::Replay {
                trajectory,
                continues: true,
            },
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
        let trigger = Some(request.trigger);
        let model_source = match request.model.as_deref() {
            Some(model) if model != OPERATORS_MODEL => ModelSource::Conversation,
            _ => self.configs.model_source(&config),
        };
        let started = ConversationStarted {
            git_provider,
            trigger,
            model_source: Some(model_source),
            ..started(&config, &folder, setup, model)?
        };
        let agent = task.agent(agent(&config)?);
        let mut parts = self.parts(&config, &id, &started, agent, 0).await?;
        parts.memory = parts
            .memory
            .map(|memory| memory.with_instructions(instructions.unwrap_or_default()));
        Ok(NewConversation {
            started,
            parts,
            title: request.title,
            task,
        })
    }

    async fn stored_conversation(
        &self,
        mut config: Config,
        stored: &mut StoredConversation,
    ) -> anyhow::Result<ComposedConversation> {
        let mut started = stored.started.clone();
        // The user may have chosen another model since.
        let overrides = Overrides {
            model: config.llm.model.clone(),
            ..Overrides::default()
        };
        restore_settings(&mut config, &started, &overrides)?;
        let id = stored.claim().id().clone();
        workspace::locate_copied(&mut started, &config, &self.state_dir, &id);
        let folder = started
            .workspace
            .as_deref()
            .filter(|_| !config.runtime.is_on_other_machine());
        if let Some(folder) = folder.map(Path::new) {
            workspace::check_not_replaced("workspace", folder)?;
            // An empty workspace was removed.
            if self
                .state_dir
                .workspace_in_log(&id, started.workspace.as_deref())
                .is_some()
            {
                self.state_dir.workspace(&id)?;
            }
            if folder.exists() {
                stored.claim().lock_folder(folder)?;
            }
        }
        let answered = stored.state.iterations as usize;
        let parts = self
            .parts(&config, &id, &started, agent(&config)?, answered)
            .await?;
        Ok(ComposedConversation {
            parts,
            confirmation: confirmation_policy(&config.security),
        })
    }

    fn models(&self, config: &Config, answered: usize) -> anyhow::Result<Models> {
        let mode = CallMode::Metered(self.metrics.models().clone());
        Models::new(config, answered, mode)
    }

    async fn agents(&self, config: &Config, answered: usize) -> anyhow::Result<ComposedAgents> {
        let models = self.models(config, answered)?;
        Ok(ComposedAgents {
            agents: agents(config, &models, agent(config)?)?,
            redactor: self.redactors.get(config).await?,
        })
    }

    async fn parts(
        &self,
        config: &Config,
        id: &ConversationId,
        started: &ConversationStarted,
        agent: Arc<dyn Agent>,
        answered: usize,
    ) -> anyhow::Result<ConversationParts> {
        let redactor = self.redactors.get(config).await?;
        let models = self.models(config, answered)?;
        let spec = conversation_spec(config, id, started);
        // A server has no user to ask about files that the sandbox could write.
        if let Some(file) = writable::check(config, &spec)?.first() {
            let text = format!(
                "the sandbox could write {}, which this machine trusts",
                file.file.path.display()
            );
            return Err(UsageError(text).into());
        }
        let parts = parts(config, &self.state_dir, &models, agent, spec, redactor)?;
        Ok(ConversationParts {
            provider: self.metrics.provider(Arc::clone(&parts.provider)),
            ..parts
        })
    }
}

#[async_trait]
impl ConversationFactory for ConfiguredFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        let owner = request.owner.as_ref();
        let profile = self.profile(owner).await?;
        let config = self.configs.for_new(
            owner,
            &profile,
            request.agent.as_deref(),
            request.model.as_deref(),
        )?;
        self.new_conversation(config, &profile.git_tokens, claim, request)
            .await
            .map_err(host_error)
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        let ConversationStarted {
            agent,
            model,
            model_source,
            owner,
            ..
        } = &stored.started;
        let owner = owner.as_ref();
        let profile = self.profile(owner).await?;
        let config = self
            .configs
            .for_stored(owner, &profile, agent, (model, *model_source))?;
        self.stored_conversation(config, stored)
            .await
            .map_err(host_error)
    }

    async fn compose_agents(
        &self,
        started: &ConversationStarted,
        steps: u32,
    ) -> Result<ComposedAgents, HostError> {
        let owner = started.owner.as_ref();
        let profile = self.profile(owner).await?;
        let config = self
            .configs
            .with_model(owner, &profile, &started.agent, &started.model)?;
        self.agents(&config, steps as usize)
            .await
            .map_err(host_error)
    }

    fn provider(
        &self,
        runtime: &str,
        host: Option<&str>,
    ) -> Result<Arc<dyn SandboxProvider>, HostError> {
        let to_provider = || {
            let mut config = self.configs.operators().clone();
            config.runtime = runtime
                .parse()
                .map_err(|error| UsageError(format!("{runtime}: {error}")))?;
            if let Some(host) = host {
                config.sandbox.ssh.target = Some(host.to_owned());
            }
            provider(&config, &self.state_dir)
        };
        to_provider().map_err(host_error)
    }

    fn disposition(&self) -> SandboxDisposition {
        self.configs.operators().sandbox.disposition
    }
}
