//! Redaction of the configuration's secrets from event logs, recordings, sandboxes and the
//! terminal.

use std::collections::BTreeMap;
use std::sync::Arc;

use browser::BrowsingProvider;
use engine::sandbox::SandboxProvider;
use engine::secrets::{GuardedProvider, Redactor, Secret, SecretRegistry};
use llm::RecordingRedaction;
use mcp::McpServer;
use protocol::ConversationId;
use secrecy::{ExposeSecret as _, SecretString};

use super::StateDir;
use crate::config::Config;
use crate::exit::UsageError;
use crate::workspace;

/// Minimum length of the redacted key of a model, in bytes. Local models get words such as `dummy`,
/// which occur in ordinary text.
const MIN_KEY_LENGTH: usize = 16;

/// The same for recorded calls. It is lower, because recordings are shared and a redacted word
/// there harms no conversation.
const MIN_RECORDED_KEY_LENGTH: usize = 8;

/// The same for values of MCP servers, among them settings such as `production`.
const MIN_MCP_LENGTH: usize = 12;

/// The same for all other secrets, which people choose. Named secrets have this minimum, too.
const MIN_SECRET_LENGTH: usize = 6;

/// Redactor of every secret of the configuration, including API keys.
pub(crate) fn redactor(config: &Config) -> anyhow::Result<Redactor> {
    RedactedSecrets::new(config).redactor()
}

/// Redaction of recorded model calls. `conversation` is replaced too, if the calls can be replayed
/// in another one.
pub(super) fn recording_redaction(
    config: &Config,
    conversation: Option<&ConversationId>,
) -> anyhow::Result<RecordingRedaction> {
    Ok(RecordingRedaction {
        redactor: RedactedSecrets::with_min_key_length(config, MIN_RECORDED_KEY_LENGTH)
            .redactor()?,
        placeholders: registry(&config.secrets).placeholders(),
        conversation: conversation.cloned(),
    })
}

/// The values that are redacted, with names for errors.
pub(super) struct RedactedSecrets(Vec<(String, SecretString)>);

impl RedactedSecrets {
    pub(super) fn new(config: &Config) -> Self {
        Self::with_min_key_length(config, MIN_KEY_LENGTH)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Builds the redactor.
    pub(super) fn redactor(&self) -> anyhow::Result<Redactor> {
        Ok(Redactor::new(self.iter()).map_err(|error| UsageError(error.to_string()))?)
    }

    fn with_min_key_length(config: &Config, min_key_length: usize) -> Self {
        let keys: [(&str, &Option<SecretString>); 3] = [
            ("sandbox.api_key", &config.sandbox.remote.api_key),
            (
                "sandbox.remote_server_key",
                &config.sandbox.remote.server_key,
            ),
            (
                "security.security_analyzer_key",
                &config.security.analyzer_key,
            ),
        ];
        let model_keys = config
            .llms()
            .map(|llm| ("llm.api_key", &llm.provider.api_key));
        let keys = keys
            .iter()
            .filter_map(|(name, key)| Some((*name, key.as_ref()?)));
        let model_keys = model_keys
            .filter_map(|(name, key)| Some((name, key.as_ref()?)))
            .filter(|(_, key)| key.expose_secret().len() >= min_key_length);
        let server_keys = config
            .agents()
            .flat_map(|agent| &agent.mcp.servers)
            .flat_map(McpServer::secrets)
            .filter(|key| key.expose_secret().len() >= MIN_MCP_LENGTH);
        let store_keys = config.store.s3_secrets().map(|key| ("store", key));
        let repository_keys = workspace::credentials(&config.workspace);
        let keys = keys.chain(store_keys);
        let keys = keys.chain(server_keys.map(|key| ("mcp", key)));
        let keys = keys.chain(repository_keys.iter().map(|key| ("repository", key)));
        let keys = keys.filter(|(_, key)| key.expose_secret().len() >= MIN_SECRET_LENGTH);
        let named = config
            .secrets
            .iter()
            .map(|(name, secret)| (name.as_str(), &secret.value));
        Self(
            named
                .chain(model_keys)
                .chain(keys)
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
        )
    }
}

/// Provider of sandboxes that get the secrets they use, and whose output is redacted.
pub(crate) fn guarded_provider(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let provider = browsing_provider(config, state_dir)?;
    Ok(Arc::new(GuardedProvider::new(
        provider,
        redactor(config)?,
        registry(&config.secrets),
    )))
}

/// Provider of sandboxes with a browser, unless it is disabled. Their output is not redacted.
pub(super) fn browsing_provider(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let provider = super::provider(config, state_dir)?;
    if !config.enable_browser {
        return Ok(provider);
    }
    let has_marks = config.agents().any(|agent| agent.marks_pages);
    Ok(Arc::new(
        BrowsingProvider::new(provider).with_marks(has_marks),
    ))
}

/// Secrets that commands can use: those that the user named, without API keys.
pub(crate) fn registry(secrets: &BTreeMap<String, Secret>) -> SecretRegistry {
    SecretRegistry::new(secrets.clone())
}
