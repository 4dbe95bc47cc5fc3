//! What stands between the secrets of the configuration, and the log, the sandbox, the tool servers and the screen.

use std::sync::Arc;

use browser::BrowsingProvider;
use engine::sandbox::SandboxProvider;
use engine::secrets::{GuardedProvider, Redactor, SecretRegistry};
use llm::RecordingRedaction;
use mcp::McpServer;
use protocol::ConversationId;
use secrecy::{ExposeSecret as _, SecretString};

use super::StateDir;
use crate::config::Config;
use crate::exit::UsageError;
use crate::workspace;

/// The program's own keys are hidden from this length on, in bytes: local models get words such as `dummy`.
const SHORTEST_KEY: usize = 16;

/// The same for recorded calls, which are files to pass on. A word that is replaced there harms no conversation.
const SHORTEST_RECORDED_KEY: usize = 8;

/// Knows every secret of the configuration, the program's own keys too.
pub(crate) fn redactor(config: &Config) -> anyhow::Result<Redactor> {
    redactor_of_keys_from(config, SHORTEST_KEY)
}

/// The same for recorded calls of models, and of one conversation if they can be replayed in another.
pub(super) fn recording_redaction(
    config: &Config,
    conversation: Option<&ConversationId>,
) -> anyhow::Result<RecordingRedaction> {
    Ok(RecordingRedaction {
        redactor: redactor_of_keys_from(config, SHORTEST_RECORDED_KEY)?,
        placeholders: registry(config).placeholders(),
        conversation: conversation.cloned(),
    })
}

fn redactor_of_keys_from(config: &Config, shortest: usize) -> anyhow::Result<Redactor> {
    let keys: [(&str, &Option<SecretString>); 3] = [
        ("sandbox.api_key", &config.sandbox.remote.api_key),
        ("sandbox.remote_server_key", &config.sandbox.remote.server_key),
        ("security.security_analyzer_key", &config.security.analyzer_key),
    ];
    let of_models = config.llms().map(|llm| ("llm.api_key", &llm.api_key));
    let keys = keys.into_iter().chain(of_models).filter_map(|(name, key)| Some((name, key.as_ref()?)));
    let agents = std::iter::once(config).chain(config.team.values());
    let of_servers = agents.flat_map(|agent| &agent.mcp_servers).flat_map(McpServer::secrets);
    let of_repositories = workspace::credentials(config);
    let keys = keys.chain(of_servers.map(|key| ("mcp", key)));
    let keys = keys.chain(of_repositories.iter().map(|key| ("repository", key)));
    let keys = keys.filter(|(_, key)| key.expose_secret().len() >= shortest);
    let named = config.secrets.iter().map(|(name, secret)| (name.as_str(), &secret.value));
    Ok(Redactor::new(named.chain(keys)).map_err(|error| UsageError(error.to_string()))?)
}

/// The provider of sandboxes whose commands may use the secrets, and show none.
pub(crate) fn guarded_provider(
    config: &Config,
    state_dir: &StateDir,
    redactor: &Redactor,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let provider = browsing_provider(config, state_dir)?;
    Ok(Arc::new(GuardedProvider::new(provider, redactor.clone(), registry(config))))
}

/// The provider of sandboxes that have a browser, if one is configured. What pages say is not redacted yet.
pub(super) fn browsing_provider(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let provider = super::provider(config, state_dir)?;
    if !config.enable_browser {
        return Ok(provider);
    }
    let has_marks = std::iter::once(config).chain(config.team.values()).any(|agent| agent.marks_pages);
    Ok(Arc::new(BrowsingProvider::new(provider).with_marks(has_marks)))
}

/// What commands may name: the secrets that the user named, none of the program's own keys.
pub(crate) fn registry(config: &Config) -> SecretRegistry {
    SecretRegistry::new(config.secrets.clone())
}
