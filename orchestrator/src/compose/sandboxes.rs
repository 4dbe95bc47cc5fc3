//! Sandboxes: what places them, what they are, and how those that nobody uses go.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use engine::conversation::Afterwards;
use engine::events::EventStore as _;
use engine::sandbox::{Lifetime, Placed, SandboxProvider, SandboxSpec, sweep};
use protocol::{ConversationId, SandboxId, Timestamp};
use sandbox::{DockerConfig, DockerProvider, LocalConfig, LocalProvider, ServerBinary};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::StateDir;
use crate::config::Config;
use crate::exit::UsageError;

/// A local sandbox that nobody speaks to for so long ends itself.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// How often a program that runs for long looks for what others have left.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// How long the end of the program waits for a sweep that is under way.
const SWEEP_PATIENCE: Duration = Duration::from_secs(2);

/// What places sandboxes of the configured runtime.
pub(crate) fn provider(config: &Config, state_dir: &StateDir) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let server = match &config.action_server {
        Some(path) => ServerBinary::at(path),
        None => ServerBinary::embedded(state_dir.path().join("bin")),
    };
    let secret = state_dir.secret()?;
    match config.runtime.as_str() {
        "docker" => {
            let owner = secret.owner();
            let docker = DockerConfig::new(server, secret, owner);
            let host = config.docker_host.clone();
            let network = config.sandbox.network.clone();
            Ok(Arc::new(DockerProvider::new(DockerConfig { host, network, ..docker })))
        }
        "local" => Ok(Arc::new(LocalProvider::new(LocalConfig {
            state_dir: state_dir.path().into(),
            server,
            secret,
            environment: config.local_environment.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            idle_timeout: LOCAL_IDLE_TIMEOUT,
        }))),
        other => Err(UsageError(format!("there is no runtime {other}: docker and local are there")).into()),
    }
}

/// A conversation's sandbox as it is configured, in no folder of the host's.
pub(crate) fn spec(config: &Config, conversation: ConversationId) -> SandboxSpec {
    SandboxSpec {
        image: config.sandbox.image.clone(),
        volumes: config.sandbox.volumes.clone(),
        resources: config.sandbox.resources,
        ..SandboxSpec::of(conversation)
    }
}

/// Removes what programs that were killed have left, while this one does its own work: at its start and from time to time.
/// A sandbox is used as long as a process runs its conversation, and for `close_delay` after the last event of a
/// conversation that can be resumed; for ever where sandboxes are to outlive their conversations' runs.
pub(crate) struct Sweep {
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl Sweep {
    /// Begins in the background.
    pub(crate) fn begin(provider: &Arc<dyn SandboxProvider>, config: &Config, state_dir: &StateDir) -> Self {
        let (provider, config, state_dir) = (Arc::clone(provider), config.clone(), state_dir.clone());
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = sweep_once(provider.as_ref(), &config, &state_dir).await {
                    tracing::debug!("looking for sandboxes that nobody uses: {error:#}");
                }
                if timeout(SWEEP_INTERVAL, ended.cancelled()).await.is_ok() {
                    return;
                }
            }
        });
        Self { task, end }
    }

    /// Lets a round that is under way come to its end, within a moment.
    pub(crate) async fn end(self) {
        let Self { mut task, end } = self;
        end.cancel();
        let _ = timeout(SWEEP_PATIENCE, &mut task).await;
        task.abort();
    }
}

/// One round of the sweep. Names what it removed.
pub(crate) async fn sweep_once(
    provider: &dyn SandboxProvider,
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Vec<SandboxId>> {
    let placed = provider.list().await?;
    if placed.iter().all(|placed| placed.lifetime == Lifetime::UntilRemoved) {
        return Ok(Vec::new());
    }
    // What is placed from here on is another's, who has just begun.
    let known: HashSet<SandboxId> = placed.into_iter().map(|placed| placed.sandbox).collect();
    let resumable = resumable(config, state_dir).await?;
    let is_used = |placed: &Placed| {
        let is_in_use = |conversation| state_dir.is_locked(conversation) || resumable.contains(conversation);
        !known.contains(&placed.sandbox) || placed.conversation.as_ref().is_none_or(is_in_use)
    };
    Ok(sweep(provider, &is_used).await?)
}

/// The conversations whose sandboxes are kept for when they go on.
async fn resumable(config: &Config, state_dir: &StateDir) -> anyhow::Result<HashSet<ConversationId>> {
    let now = clock::epoch_seconds(&clock::now());
    let delay = match config.sandbox.afterwards {
        Afterwards::Remove => config.sandbox.close_delay.as_secs_f64(),
        Afterwards::Pause | Afterwards::Keep => f64::INFINITY,
    };
    let conversations = state_dir.store().await?.conversations().await?;
    let is_young = |last: &Timestamp| now - clock::epoch_seconds(last) < delay;
    Ok(conversations
        .into_iter()
        .filter(|conversation| is_young(&conversation.last_updated_at))
        .map(|conversation| conversation.id)
        .collect())
}
