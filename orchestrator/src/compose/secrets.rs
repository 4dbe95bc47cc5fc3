//! What stands between the secrets of the configuration, and the log, the sandbox and the screen.

use std::sync::Arc;

use engine::events::EventStore;
use engine::sandbox::SandboxProvider;
use engine::secrets::{GuardedProvider, GuardedStore, Redactor};
use secrecy::{ExposeSecret as _, SecretString};

use super::StateDir;
use crate::config::Config;
use crate::exit::UsageError;

/// The program's own keys are hidden from this length on, in bytes: local models get words such as `dummy`.
const SHORTEST_KEY: usize = 16;

/// Knows every secret of the configuration, the program's own keys too.
pub(crate) fn redactor(config: &Config) -> anyhow::Result<Redactor> {
    let keys: [(&str, &Option<SecretString>); 3] = [
        ("sandbox.api_key", &config.sandbox.remote.api_key),
        ("sandbox.remote_server_key", &config.sandbox.remote.server_key),
        ("security.security_analyzer_key", &config.security.analyzer_key),
    ];
    let of_models = config.llms().map(|llm| ("llm.api_key", &llm.api_key));
    let keys = keys.into_iter().chain(of_models).filter_map(|(name, key)| Some((name, key.as_ref()?)));
    let keys = keys.filter(|(_, key)| key.expose_secret().len() >= SHORTEST_KEY);
    let named = config.secrets.iter().map(|(name, value)| (name.as_str(), value));
    Ok(Redactor::new(named.chain(keys)).map_err(|error| UsageError(error.to_string()))?)
}

/// The store of a conversation's log.
pub(crate) fn guarded_store(
    store: Arc<dyn EventStore>,
    config: &Config,
) -> anyhow::Result<Arc<dyn EventStore>> {
    Ok(Arc::new(GuardedStore::new(store, redactor(config)?)))
}

/// What places a conversation's sandbox.
pub(crate) fn guarded_provider(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let provider = super::provider(config, state_dir)?;
    Ok(Arc::new(GuardedProvider::new(provider, redactor(config)?)))
}
