//! Action servers in containers of an engine with Docker's API. Any image works unchanged.
//!
//! No image is built, no port published, and no network used unless one is configured. The
//! connection is an exec of `action-server dial` in the container. A container outlives the host
//! program, which re-attaches to it, or finds it by its labels and removes it.

mod archive;
mod config;
mod container;
mod details;
mod discovery;
mod engine;
mod exec_stream;
mod image;
mod labels;
mod lifecycle;
mod machine;
mod mounts;
mod pooled_sandbox;
mod pull_progress;
mod registry_login;
mod snapshot;
mod snapshots;
mod start;
mod usage;
mod user;
mod warm_pool;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::engine::sandbox::{
    ProviderCapabilities, ResourceUsage, SandboxDetails, SandboxError, SandboxMonitoring,
    SandboxPausing, SandboxSnapshots, SandboxSummary, Snapshot, SnapshotPurpose,
};
use async_trait::async_trait;
use protocol::SandboxId;
use sandbox_client::{
    ActionClient, Backend, OnPaused, Provider, ProvisionRequest, Provisioned, ServerLocation,
};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub use config::{DEFAULT_IMAGE, DockerConfig, Gpus, MAX_HOLDER_LENGTH, Pool};
use engine::Engine;
use exec_stream::ExecStream;
use image::Image;
use labels::Ownership;
pub use pooled_sandbox::pool_entry_holder;
use start::{ContainerStart, explain};
use warm_pool::WarmPool;

const RUNTIME: &str = "docker";

/// A healthy engine responds in milliseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A busy one may take longer. More than the search waits for one socket.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Provides sandboxes that are containers.
pub type DockerProvider = Provider<DockerBackend>;

/// Provisions action servers in containers.
pub struct DockerBackend {
    installation: Arc<Installation>,
    pool: Option<WarmPool>,
}

/// State that the backend shares with its background tasks.
struct Installation {
    config: DockerConfig,
    engine: OnceCell<Engine>,
    removals: TaskTracker,
}

impl Installation {
    /// Returns the engine. Connects again on each call until the first success.
    async fn engine(&self) -> Result<&Engine, SandboxError> {
        let DockerConfig {
            host, runtime_dir, ..
        } = &self.config;
        self.engine
            .get_or_try_init(|| Engine::find(host.as_deref(), runtime_dir.as_deref()))
            .await
    }
}

/// Connects to the engine on first use, or immediately in a background task if a warm pool is
/// configured. The task needs a tokio runtime.
impl From<DockerConfig> for DockerBackend {
    fn from(config: DockerConfig) -> Self {
        let installation = Arc::new(Installation {
            config,
            engine: OnceCell::new(),
            removals: TaskTracker::new(),
        });
        let pool = WarmPool::start(&installation);
        Self { installation, pool }
    }
}

impl DockerBackend {
    /// Whether there is an engine, so that the caller can fall back to another runtime.
    ///
    /// # Errors
    /// [`SandboxError::RuntimeUnavailable`] if something accepts connections, but does not respond
    /// as an engine within 10 s: it may be busy.
    pub async fn has_engine(&self) -> Result<bool, SandboxError> {
        let config = &self.installation.config;
        match timeout(BUSY_TIMEOUT, self.engine()).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(error)) => {
                match discovery::accepts_connections(
                    config.host.as_deref(),
                    config.runtime_dir.as_deref(),
                ) {
                    true => Err(error),
                    false => Ok(false),
                }
            }
            Err(_) => Err(self.silent(BUSY_TIMEOUT)),
        }
    }

    fn silent(&self, waited: Duration) -> SandboxError {
        let host = self.installation.config.host.as_ref();
        SandboxError::RuntimeUnavailable {
            runtime: RUNTIME,
            detail: format!(
                "the engine{} does not answer within {} s; {}",
                host.map(|host| format!(" at {host}")).unwrap_or_default(),
                waited.as_secs_f32(),
                engine::NOT_RUNNING
            ),
        }
    }

    /// Checks within 2 s that the engine responds.
    ///
    /// # Errors
    /// [`SandboxError::RuntimeUnavailable`] if it does not respond.
    pub async fn answers(&self) -> Result<(), SandboxError> {
        let answered = timeout(RESPONSE_TIMEOUT, self.engine()).await;
        answered
            .map_err(|_| self.silent(RESPONSE_TIMEOUT))?
            .map(|_| ())
    }

    /// Finds the default image. Returns its name, and whether the engine has it: if not, its first
    /// sandbox pulls it.
    ///
    /// # Errors
    /// See [`SandboxError`].
    pub async fn default_image(&self) -> Result<(&str, bool), SandboxError> {
        let DockerConfig {
            default_image,
            platform,
            ..
        } = &self.installation.config;
        let found = image::find(self.engine().await?, default_image, platform.as_deref()).await?;
        Ok((default_image, found.is_some()))
    }

    async fn engine(&self) -> Result<&Engine, SandboxError> {
        self.installation.engine().await
    }

    /// Takes a sandbox from the warm pool. `None` if none fits.
    async fn adopt(
        &self,
        engine: &Engine,
        request: &ProvisionRequest<'_>,
        image: &Image,
    ) -> Option<ActionClient> {
        let ProvisionRequest { sandbox, spec, .. } = *request;
        let pool = self.pool.as_ref().filter(|pool| pool.fits(spec, image))?;
        while let Some(pooled_sandbox) = pool.take(image) {
            let owner = self.installation.config.owner.clone();
            let adoption = pooled_sandbox.adopt(engine.clone(), owner, sandbox.clone());
            match request.steps().run(adoption).await {
                Ok(client) => return Some(client),
                // The name is not free for any of them.
                Err(SandboxError::Invalid { .. }) => return None,
                Err(error) => tracing::warn!(%sandbox, %error, "cannot adopt a pool entry"),
            }
        }
        None
    }
}

/// Returns the location of a container's server, whose key is derived from the name `key_of` under
/// which the container was created.
fn location(
    config: &DockerConfig,
    engine: &Engine,
    key_of: &SandboxId,
    container: &str,
) -> ServerLocation {
    ServerLocation {
        key: config.secret.derive_key(key_of),
        connector: Box::new(ExecStream::new(engine.clone(), container)),
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError> {
        let ProvisionRequest {
            sandbox,
            spec,
            on_progress,
            ..
        } = *request;
        let (engine, config) = (self.engine().await?, &self.installation.config);
        let image_name = spec.image.as_deref().unwrap_or(&config.default_image);
        let image = image::ensure(engine, config, image_name, on_progress).await?;
        if config.refuses_snapshots && image.is_snapshot && image_name != config.default_image {
            return Err(SandboxError::Invalid {
                detail: format!("the image {image_name} is a snapshot of a sandbox"),
            });
        }
        if let Some(adopted) = self.adopt(engine, request, &image).await {
            return Ok(Provisioned::Connected(adopted));
        }
        let start = ContainerStart {
            engine,
            config,
            spec,
            belongs: Ownership::Conversation(&spec.conversation),
            sandbox,
            image: &image,
            steps: request.steps(),
        };
        let started = start.run(on_progress).await?;
        Ok(Provisioned::Started(started.server))
    }

    async fn locate(
        &self,
        sandbox: &SandboxId,
        on_paused: OnPaused,
    ) -> Result<ServerLocation, SandboxError> {
        let (engine, config) = (self.engine().await?, &self.installation.config);
        let container = sandbox.as_str();
        let found = engine.inspect_container(container).await?;
        if found.is_paused && on_paused == OnPaused::Resume {
            engine.resume(container).await?;
        }
        let key_of = found.key_of.as_ref().unwrap_or(sandbox);
        Ok(location(config, engine, key_of, container))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.engine()
            .await?
            .containers_of(&self.installation.config.owner)
            .await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let engine = self.engine().await?;
        let found = engine
            .inspect_container(sandbox.as_str())
            .await
            .ok()
            .filter(|found| found.is_fork);
        let owner = &self.installation.config.owner;
        // A copied store may name the sandbox of another installation.
        let is_removed = engine.remove_of(owner, sandbox.as_str()).await?;
        if let Some(fork) = found.filter(|_| is_removed) {
            snapshots::remove_after_fork(engine, owner, &fork.image).await;
        }
        Ok(())
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities {
            pausing: Some(self),
            snapshots: Some(self),
            monitoring: Some(self),
        }
    }

    /// Keeps the snapshot of a fork, from which its start can be repeated.
    async fn remove_unfinished(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let owner = &self.installation.config.owner;
        let engine = self.engine().await?;
        engine.remove_of(owner, sandbox.as_str()).await.map(drop)
    }

    async fn explain(&self, sandbox: &SandboxId, error: SandboxError) -> SandboxError {
        match self.engine().await {
            Ok(engine) => explain(engine, &self.installation.config, sandbox, error).await,
            Err(_) => error,
        }
    }

    fn tasks(&self) -> TaskTracker {
        self.installation.removals.clone()
    }

    async fn shut_down(&self) {
        if let Some(pool) = &self.pool {
            pool.end().await;
        }
    }
}

#[async_trait]
impl SandboxPausing for DockerBackend {
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.pause(sandbox.as_str()).await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.resume(sandbox.as_str()).await
    }
}

#[async_trait]
impl SandboxSnapshots for DockerBackend {
    async fn create_snapshot(
        &self,
        sandbox: &SandboxId,
        purpose: SnapshotPurpose<'_>,
    ) -> Result<String, SandboxError> {
        snapshot::make(
            self.engine().await?,
            &self.installation.config.owner,
            sandbox,
            purpose,
        )
        .await
    }

    async fn list_snapshots(&self) -> Result<Vec<Snapshot>, SandboxError> {
        snapshots::list(self.engine().await?, &self.installation.config.owner).await
    }

    async fn remove_snapshot(&self, image: &str) -> Result<(), SandboxError> {
        snapshots::remove(self.engine().await?, &self.installation.config.owner, image).await
    }
}

#[async_trait]
impl SandboxMonitoring for DockerBackend {
    async fn details(&self, sandbox: &SandboxId) -> Result<SandboxDetails, SandboxError> {
        self.engine().await?.details(sandbox.as_str()).await
    }

    async fn usage(&self, sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        self.engine().await?.usage(sandbox.as_str()).await
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        self.engine().await?.logs(sandbox.as_str()).await
    }
}

/// Source of the server's binary for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerSource {
    /// Read-only bind mount, 60 ms faster than a copy. Requires an engine that sees this host's
    /// files.
    Mounted(PathBuf),
    /// Copied into the container.
    Uploaded,
}
