//! The composition root: the only place that knows every concrete type.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use engine::agent::{Agent, CodeActAgent};
use engine::events::EventStore;
use engine::llm::Llm;
use engine::sandbox::SandboxProvider;
use llm::{LlmConfig, OpenAiLlm, RetryPolicy, ScriptedLlm};
use protocol::{ConversationId, EventId};
use sandbox::{
    BUBBLEWRAP_PROGRAMS, DockerConfig, DockerProvider, HostSecret, IsolationChoice, LocalConfig,
    LocalProvider, ServerBinary,
};
use storage::SqliteStore;

use crate::config::{Config, LlmSettings};
use crate::exit::UsageError;

/// A model name that begins with this names a file of answers.
const SCRIPTED: &str = "scripted:";

/// A local sandbox that nobody speaks to for so long ends itself.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The folder that keeps everything between runs. Only its owner can look into it.
#[derive(Debug, Clone)]
pub(crate) struct StateDir(PathBuf);

impl StateDir {
    /// Opens the folder, making it if it is not there.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        private_folder(path)?;
        let path = path.canonicalize().with_context(|| format!("opening {}", path.display()))?;
        Ok(Self(path))
    }

    /// Opens the store of event logs.
    pub(crate) async fn store(&self) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.0.join("glovebox.db");
        let store = SqliteStore::open(&path).await;
        store.map(Arc::new).with_context(|| format!("opening the event logs in {}", path.display()))
    }

    /// Makes the folder that a conversation works in when none is named.
    pub(crate) fn workspace(&self, conversation: &ConversationId) -> anyhow::Result<PathBuf> {
        let path = self.0.join("workspaces").join(conversation.as_str());
        private_folder(&path)?;
        Ok(path)
    }

    /// Makes this process the one that writes a conversation, until the lock is dropped.
    pub(crate) fn lock(&self, conversation: &ConversationId) -> anyhow::Result<File> {
        let folder = self.0.join("locks");
        private_folder(&folder)?;
        let path = folder.join(conversation.as_str());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => {
                anyhow::bail!("conversation {conversation} is being run by another process")
            }
            Err(std::fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", path.display()))
            }
        }
    }

    /// The same for a conversation that there must be: one that there is not leaves no lock behind.
    pub(crate) async fn lock_existing(
        &self,
        store: &dyn EventStore,
        conversation: &ConversationId,
    ) -> anyhow::Result<File> {
        if store.read(conversation, EventId::FIRST, 1).await?.is_empty() {
            return Err(UsageError(format!("there is no conversation {conversation}")).into());
        }
        self.lock(conversation)
    }

    /// What sandbox keys are derived from; made at the first start.
    fn secret(&self) -> anyhow::Result<HostSecret> {
        let path = self.0.join("secret");
        let doing = || format!("reading the host's secret in {}", path.display());
        if !path.exists() {
            self.make_secret(&path).with_context(doing)?;
        }
        let mut bytes = [0; 32];
        File::open(&path).and_then(|mut file| file.read_exact(&mut bytes)).with_context(doing)?;
        Ok(HostSecret::new(bytes))
    }

    /// Whole or not at all, and never over one that another process made meanwhile.
    fn make_secret(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut bytes)
            .map_err(|_| anyhow::anyhow!("no random bytes"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error.into()),
        }
    }
}

/// What places sandboxes of the configured runtime.
pub(crate) fn provider(config: &Config, state_dir: &StateDir) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let server = match &config.action_server {
        Some(path) => ServerBinary::at(path),
        None => ServerBinary::embedded(state_dir.0.join("bin")),
    };
    let secret = state_dir.secret()?;
    match config.runtime.as_str() {
        "docker" => {
            let owner = secret.owner();
            let docker = DockerConfig::new(server, secret, owner);
            Ok(Arc::new(DockerProvider::new(DockerConfig { host: config.docker_host.clone(), ..docker })))
        }
        "local" => Ok(Arc::new(LocalProvider::new(LocalConfig {
            state_dir: state_dir.0.clone(),
            server,
            secret,
            environment: config.local_environment.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            idle_timeout: LOCAL_IDLE_TIMEOUT,
            isolation: IsolationChoice::Probe,
            network: false,
            hidden: Vec::new(),
            launcher: "/proc/self/exe".into(),
            bubblewrap: BUBBLEWRAP_PROGRAMS.map(PathBuf::from).into(),
        }))),
        other => Err(UsageError(format!("there is no runtime {other}: docker and local are there")).into()),
    }
}

/// The agent of that name.
pub(crate) fn agent(config: &Config) -> anyhow::Result<Arc<dyn Agent>> {
    match config.agent.as_str() {
        "CodeActAgent" => Ok(Arc::new(CodeActAgent { command_timeout: config.command_timeout })),
        other => Err(UsageError(format!("there is no agent {other}: CodeActAgent is there")).into()),
    }
}

/// The configured model. A scripted one begins after `answered` answers, for a conversation that goes on.
pub(crate) fn llm(settings: &LlmSettings, answered: usize) -> anyhow::Result<Arc<dyn Llm>> {
    let Some(model) = &settings.model else {
        let text = "no model is named: set LLM_MODEL (and LLM_API_KEY, LLM_BASE_URL), or use --model; \
                    `glovebox demo` needs none";
        return Err(UsageError(text.to_owned()).into());
    };
    if let Some(file) = model.strip_prefix(SCRIPTED) {
        let script = std::fs::read_to_string(file)
            .map_err(|error| UsageError(format!("reading the script {file}: {error}")))?;
        return scripted_llm(&script, answered)
            .map_err(|error| UsageError(format!("the script {file}: {error:#}")).into());
    }
    let config = llm_config(model, settings);
    let llm = OpenAiLlm::new(&config).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        UsageError(format!("the configuration of the model: {error}{cause}"))
    })?;
    Ok(Arc::new(llm))
}

/// The model's name as a conversation keeps it: a script is found again from any folder.
pub(crate) fn lasting_model_name(settings: &LlmSettings) -> String {
    let model = settings.model.clone().unwrap_or_default();
    let script = model.strip_prefix(SCRIPTED).and_then(|file| Path::new(file).canonicalize().ok());
    script.map_or(model, |path| format!("{SCRIPTED}{}", path.display()))
}

/// A model that plays a script.
pub(crate) fn scripted_llm(script: &str, answered: usize) -> anyhow::Result<Arc<dyn Llm>> {
    Ok(Arc::new(ScriptedLlm::from_json(script)?.starting_at(answered)))
}

/// Only what is configured differs from the wire's own defaults, which are V0's.
fn llm_config(model: &str, settings: &LlmSettings) -> LlmConfig {
    let LlmSettings { api_key, settings, .. } = settings;
    let number = |name| settings.number("llm", name);
    let seconds = |name| number(name).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let mut config = LlmConfig::new(model);
    config.api_key.clone_from(api_key);
    config.base_url = settings.text("llm", "base_url");
    config.api_version = settings.text("llm", "api_version");
    config.temperature = number("temperature").or(config.temperature);
    config.top_p = number("top_p").or(config.top_p);
    config.max_output_tokens = settings.integer("llm", "max_output_tokens");
    config.seed = settings.integer("llm", "seed").and_then(|seed| i64::try_from(seed).ok());
    config.reasoning_effort = settings.text("llm", "reasoning_effort");
    config.input_cost_per_token = number("input_cost_per_token");
    config.output_cost_per_token = number("output_cost_per_token");
    config.completion_kwargs = settings.table("llm", "completion_kwargs").unwrap_or_default();
    config.timeouts.total = seconds("timeout").unwrap_or(config.timeouts.total);
    let RetryPolicy { num_retries, multiplier, min_wait, max_wait } = &mut config.retry;
    let configured = settings.integer("llm", "num_retries").and_then(|number| u32::try_from(number).ok());
    *num_retries = configured.unwrap_or(*num_retries);
    *multiplier = number("retry_multiplier").unwrap_or(*multiplier);
    *min_wait = seconds("retry_min_wait").unwrap_or(*min_wait);
    *max_wait = seconds("retry_max_wait").unwrap_or(*max_wait);
    config
}

fn private_folder(path: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("making the folder {}", path.display()))
}
