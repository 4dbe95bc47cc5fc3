//! The operator's configuration with the settings of a user.
//!
//! A user chooses less than the operator: an agent that the operator has, a model, lower limits,
//! more confirmation, and secrets. Runtime, image, network and volumes are the operator's. What is
//! private to the operator is left out.

mod sharing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use conversations::{GitToken, HostError, InvalidSetting, SettingsPolicy, UserProfile};
use engine::condenser::CondenserConfig;
use engine::secrets::Secret;
use git_providers::AddressPolicy;
use protocol::UserId;
use protocol::client_api::UserSettings;
use protocol::client_api::git::GitProvider;
use protocol::record::ModelSource;
use protocol::risk::ConfirmationPolicy;
use secrecy::{ExposeSecret as _, SecretString};

use super::model::{SCRIPTED, is_scripted_name};
use super::user_model::{ModelPolicy, OPERATORS_MODEL};
use super::{confirmation_policy, provider_models, user_model};
use crate::config::{AnalyzerChoice, Config, LlmSettings, SecuritySettings, WorkspaceSettings};

pub(crate) use sharing::warnings as sharing_warnings;

/// Names of the security analyzers that users can choose.
const DECLARED_RISK: &str = "llm";
const INVARIANT: &str = "invariant";

/// The configurations that users can choose from.
#[derive(Clone)]
pub(crate) struct UserConfigs {
    operators: Config,
    /// Configuration of each agent, by its name in logs. Includes the operator's.
    agents: BTreeMap<String, Config>,
    models: ModelPolicy,
}

impl UserConfigs {
    /// Combines the operator's configuration with those of other agents. Agents that cannot be used
    /// are left out.
    pub(crate) fn new(operators: Config, others: Vec<Config>, addresses: AddressPolicy) -> Self {
        let usable = others
            .into_iter()
            .filter(|config| config.agent.definition.is_ok());
        let all = usable.chain([operators.clone()]);
        let agents = all
            .map(|config| (config.agent.stored_name.clone(), config))
            .collect();
        let configured: BTreeSet<_> = operators
            .llms()
            .filter_map(|llm| llm.model.clone())
            .collect();
        let configured = configured.into_iter().collect();
        let models = ModelPolicy {
            addresses,
            configured,
            prices: operators.model_prices.clone(),
            has_budget: operators.max_budget.is_some(),
        };
        Self {
            operators,
            agents,
            models,
        }
    }

    /// The operator's configuration.
    pub(super) fn operators(&self) -> &Config {
        &self.operators
    }

    /// Names of the models that users can choose.
    pub(crate) fn offered_models(&self) -> Vec<String> {
        let name = |model: String| {
            if is_scripted_name(&model) {
                OPERATORS_MODEL.to_owned()
            } else {
                model
            }
        };
        let models: BTreeSet<_> = self.models().iter().cloned().map(name).collect();
        models.into_iter().collect()
    }

    /// Names of the configured models.
    pub(crate) fn models(&self) -> &[String] {
        &self.models.configured
    }

    /// Names of the agents.
    pub(crate) fn agents(&self) -> Vec<String> {
        self.agents.keys().cloned().collect()
    }

    /// Names of the security analyzers.
    pub(crate) fn security_analyzers(&self) -> Vec<String> {
        let has_invariant = self.operators.security.analyzer_url.is_some();
        let invariant = has_invariant.then_some(INVARIANT);
        invariant
            .into_iter()
            .chain([DECLARED_RISK])
            .map(str::to_owned)
            .collect()
    }

    /// The configuration of a new conversation. Without an agent or a model, the user's settings
    /// name it. Without an owner it is the operator's own.
    pub(super) fn for_new(
        &self,
        owner: Option<&UserId>,
        profile: &UserProfile,
        agent: Option<&str>,
        model: Option<&str>,
    ) -> Result<Config, HostError> {
        let chosen_agent = profile
            .settings
            .as_ref()
            .and_then(|settings| chosen(settings.agent.as_deref()));
        let agent = agent
            .or(chosen_agent)
            .unwrap_or(&self.operators.agent.stored_name);
        match model {
            Some(model) => self.with_model(owner, profile, agent, model),
            None => self.compose(owner, profile, agent, None),
        }
    }

    /// The configuration of a stored conversation, which keeps its agent. The model that its user
    /// chose for it replaces the model of the settings. Otherwise the settings name the model, or
    /// else the configuration if it did before, or else the log. A script is kept: the responses of
    /// another one belong to other conversations.
    pub(super) fn for_stored(
        &self,
        owner: Option<&UserId>,
        profile: &UserProfile,
        agent: &str,
        (model, source): (&str, Option<ModelSource>),
    ) -> Result<Config, HostError> {
        if source == Some(ModelSource::Conversation) && !is_scripted_name(model) {
            let mut profile = profile.clone();
            let settings = profile.settings.get_or_insert_default();
            settings.llm_model = Some(model.to_owned());
            return self.compose(owner, &profile, agent, None);
        }
        let is_script = is_scripted_name(model)
            && self
                .agents
                .get(agent)
                .is_some_and(|config| is_scripted(&config.llm));
        let is_kept = source != Some(ModelSource::Configuration) || is_script;
        self.compose(owner, profile, agent, is_kept.then_some(model))
    }

    /// The configuration of a conversation with the model that its user chooses for it. Another one
    /// does not replace it.
    pub(super) fn with_model(
        &self,
        owner: Option<&UserId>,
        profile: &UserProfile,
        agent: &str,
        model: &str,
    ) -> Result<Config, HostError> {
        let source = Some(ModelSource::Conversation);
        if is_scripted_name(model) {
            return Err(refused(user_model::refused_script("model")));
        }
        if model == OPERATORS_MODEL && !is_scripted(&self.operators.llm) {
            return Err(HostError::Refused(format!("there is no model {model}")));
        }
        let config = self.for_stored(owner, profile, agent, (model, source))?;
        // Without a key, it was replaced.
        let is_chosen = model == OPERATORS_MODEL || config.llm.model.as_deref() == Some(model);
        is_chosen
            .then_some(config)
            .ok_or_else(|| HostError::NoModelKey(model.to_owned()))
    }

    /// Where the model of a configuration for a conversation is from.
    pub(super) fn model_source(&self, config: &Config) -> ModelSource {
        let operators = self.agents.get(&config.agent.stored_name);
        if operators.is_some_and(|operators| operators.llm.model == config.llm.model) {
            ModelSource::Configuration
        } else {
            ModelSource::User
        }
    }

    fn compose(
        &self,
        owner: Option<&UserId>,
        profile: &UserProfile,
        agent: &str,
        stored_model: Option<&str>,
    ) -> Result<Config, HostError> {
        let unknown = || HostError::Refused(format!("this server has no agent {agent}"));
        let mut config = self.agents.get(agent).ok_or_else(unknown)?.clone();
        if owner.is_some() {
            sharing::remove_private(&mut config);
            config.workspace.user = owner.cloned();
        }
        let settings = profile.settings.clone().unwrap_or_default();
        self.choose_model(&mut config, &settings, stored_model)?;
        lower_limits(&mut config, &settings);
        tighten_security(&mut config.security, &settings);
        set_author(&mut config.workspace, &settings);
        config.secrets.extend(profile.secrets.clone());
        profile
            .git_tokens
            .iter()
            .for_each(|(provider, token)| add_git_token(&mut config, *provider, token));
        Ok(config)
    }

    /// Sets the user's model. If it lacks a key, sets that of the stored conversation, else the
    /// operator's, so that a page that always sends the name of a model works without a key. A
    /// script does not replace the model that a user has chosen.
    fn choose_model(
        &self,
        config: &mut Config,
        settings: &UserSettings,
        stored: Option<&str>,
    ) -> Result<(), HostError> {
        let operators = config.llm.clone();
        let choose = |settings, stored| {
            user_model::choose(&operators, settings, stored, &self.models).map_err(refused)
        };
        config.llm = choose(settings, stored)?;
        if let Err(error) = check_model(config) {
            if is_scripted(&operators) {
                return Err(error);
            }
            tracing::info!(%error, "cannot use the user's model: trying that of the configuration");
            let none = UserSettings::default();
            config.llm = choose(&none, stored)?;
            if check_model(config).is_err() {
                config.llm = operators.clone();
                check_model(config).map_err(|_| error)?;
            }
        }
        for member in config
            .team
            .values_mut()
            .filter(|member| member.llm.is_same_model(&operators))
        {
            member.llm = config.llm.clone();
        }
        Ok(())
    }
}

impl SettingsPolicy for UserConfigs {
    fn check(&self, settings: &UserSettings) -> Result<(), InvalidSetting> {
        if let Some(name) = chosen(settings.agent.as_deref())
            && !self.agents.contains_key(name)
        {
            let problem = format!("must be one of: {}", self.agents().join(", "));
            return Err(InvalidSetting::new("agent", problem));
        }
        let analyzers = self.security_analyzers();
        if let Some(name) = chosen(settings.security_analyzer.as_deref())
            && !analyzers.iter().any(|known| known == name)
        {
            let problem = format!("must be one of: {}", analyzers.join(", "));
            return Err(InvalidSetting::new("security_analyzer", problem));
        }
        if let Some(size) = settings.condenser_max_size {
            let condenser = CondenserConfig::v0_default_with(size as usize);
            condenser
                .check()
                .map_err(|error| InvalidSetting::new("condenser_max_size", error.to_string()))?;
        }
        user_model::choose(&self.operators.llm, settings, None, &self.models).map(drop)
    }
}

/// Fails if the agent's model is not named, or lacks a key.
pub(crate) fn check_model(config: &Config) -> Result<(), HostError> {
    if config.agent.is_dummy() {
        return Ok(());
    }
    if config.llm.model.is_none() {
        return Err(HostError::NoModel);
    }
    match provider_models(config).find(|(_, config)| llm::is_key_missing(config)) {
        Some((model, _)) => Err(HostError::NoModelKey(model.clone())),
        None => Ok(()),
    }
}

fn is_scripted(config: &LlmSettings) -> bool {
    config
        .model
        .as_ref()
        .is_some_and(|model| model.starts_with(SCRIPTED))
}

/// `None` for V0's notations of no choice.
fn chosen(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !["", "none"].contains(name))
}

fn lower_limits(config: &mut Config, settings: &UserSettings) {
    if let Some(max) = settings.max_iterations {
        config.max_iterations = config.max_iterations.min(max);
    }
    if let Some(max) = settings.max_budget_per_task.filter(|max| *max > 0.0) {
        config.max_budget = Some(config.max_budget.map_or(max, |own| own.min(max)));
    }
    config.condenser.is_default_enabled &= settings.enable_default_condenser;
    config.condenser.default_max_size = settings.condenser_max_size.map(|size| size as usize);
}

/// Adds what the operator has left open. Confirmation that the operator requires stays as it is: an
/// analyzer of the user would otherwise reduce it.
fn tighten_security(security: &mut SecuritySettings, settings: &UserSettings) {
    let required = confirmation_policy(security);
    if required == ConfirmationPolicy::Never {
        security.policy = None;
        security.confirmation_mode = settings.confirmation_mode.unwrap_or(false);
    } else {
        security.policy = Some(required);
    }
    // Without an analyzer, every risk is unknown, and its action is asked about.
    if security.analyzer.is_none() && required == ConfirmationPolicy::Never {
        security.analyzer = match settings.security_analyzer.as_deref() {
            Some(DECLARED_RISK) => Some(AnalyzerChoice::DeclaredRisk),
            Some(INVARIANT) if security.analyzer_url.is_some() => Some(AnalyzerChoice::Invariant),
            _ => None,
        };
    }
}

fn set_author(workspace: &mut WorkspaceSettings, settings: &UserSettings) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    workspace.git_user_name = given(&settings.git_user_name).or(workspace.git_user_name.take());
    workspace.git_user_email = given(&settings.git_user_email).or(workspace.git_user_email.take());
}

/// Adds a token for git, and as a secret that commands can use.
fn add_git_token(config: &mut Config, provider: GitProvider, token: &GitToken) {
    let (own_host, variable) = match provider {
        GitProvider::GitHub => ("github.com", "GITHUB_TOKEN"),
        GitProvider::GitLab => ("gitlab.com", "GITLAB_TOKEN"),
        GitProvider::Bitbucket => ("bitbucket.org", "BITBUCKET_TOKEN"),
        GitProvider::AzureDevOps => ("dev.azure.com", "AZURE_DEVOPS_TOKEN"),
        GitProvider::EnterpriseSso => return,
    };
    let description = format!("token for {provider}");
    let secret = Secret {
        value: token.token.clone(),
        description,
    };
    config.secrets.entry(variable.to_owned()).or_insert(secret);
    match token.host.as_deref().map(host_name) {
        None => drop(
            config
                .workspace
                .git_tokens
                .insert(own_host.to_owned(), token.token.clone()),
        ),
        // The host of Azure DevOps may be the organization.
        Some(host)
            if host == own_host || provider == GitProvider::AzureDevOps && !host.contains('.') =>
        {
            config
                .workspace
                .git_tokens
                .insert(own_host.to_owned(), token.token.clone());
        }
        Some(host) => {
            let user = if provider == GitProvider::GitLab {
                "oauth2"
            } else {
                "x-access-token"
            };
            let credentials = format!("{user}:{}", token.token.expose_secret());
            config
                .workspace
                .git_tokens
                .insert(host.to_owned(), SecretString::from(credentials));
        }
    }
}

/// Returns the host of `gitlab.example.com` or a URL.
pub(super) fn host_name(host: &str) -> &str {
    let host = host.trim();
    let host = host.split_once("://").map_or(host, |(_, rest)| rest);
    host.split_once('/').map_or(host, |(host, _)| host)
}

fn refused(error: InvalidSetting) -> HostError {
    HostError::Refused(error.to_string())
}
