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

use ::engine::errors::format_chain;
use ::engine::sandbox::{
    ResourceUsage, Sandbox, SandboxDetails, SandboxError, SandboxMonitoring, SandboxPausing,
    SandboxProvider, SandboxSnapshots, SandboxSpec, SandboxSummary, ServerAccess, Snapshot,
    SnapshotPurpose, StartProgress,
};
use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::{BootId, SandboxId};
use sandbox_client::provisioning::sandbox_id_of;
use sandbox_client::{ActionClient, Address, UnfinishedStart};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub use config::{DEFAULT_IMAGE, DockerConfig, Gpus, MAX_HOLDER_LENGTH, Pool};
use engine::Engine;
use exec_stream::ExecStream;
use image::Image;
use labels::Ownership;
use lifecycle::ContainerInfo;
pub use pooled_sandbox::pool_entry_holder;
use warm_pool::WarmPool;

const RUNTIME: &str = "docker";

/// A healthy engine responds in milliseconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A busy one may take longer. More than the search waits for one socket.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Provisions sandboxes as containers.
pub struct DockerProvider {
    installation: Arc<Installation>,
    pool: Option<WarmPool>,
}

/// State that the provider shares with its background tasks.
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

impl DockerProvider {
    /// Creates a provider. Connects to the engine on first use, or immediately in a background task
    /// if a warm pool is configured. The task needs a tokio runtime.
    pub fn new(config: DockerConfig) -> Self {
        let installation = Arc::new(Installation {
            config,
            engine: OnceCell::new(),
            removals: TaskTracker::new(),
        });
        let pool = WarmPool::start(&installation);
        Self { installation, pool }
    }

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
        spec: &SandboxSpec,
        sandbox: &SandboxId,
        image: &Image,
    ) -> Option<ActionClient> {
        let pool = self.pool.as_ref().filter(|pool| pool.fits(spec, image))?;
        while let Some(pooled_sandbox) = pool.take(image) {
            match pooled_sandbox
                .adopt(engine, &self.installation.config.owner, sandbox)
                .await
            {
                Ok(client) => return Some(client),
                // The name is not free for any of them.
                Err(SandboxError::Invalid { .. }) => return None,
                Err(error) => tracing::warn!(%sandbox, %error, "cannot adopt a pool entry"),
            }
        }
        None
    }

    async fn start_sandbox(
        &self,
        engine: &Engine,
        spec: &SandboxSpec,
        sandbox: &SandboxId,
        image: &Image,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let (removing, left) = (engine.clone(), sandbox.clone());
        let owner = self.installation.config.owner.clone();
        let unfinished = UnfinishedStart::new(&self.installation.removals, async move {
            if let Err(error) = removing.remove_of(&owner, left.as_str()).await {
                tracing::warn!(sandbox = %left, error = format_chain(&error), "cannot clean up after a failed start");
            }
        });
        let start = start::ContainerStart {
            engine,
            config: &self.installation.config,
            spec,
            belongs: Ownership::Conversation(&spec.conversation),
            sandbox,
            image,
            steps: unfinished.steps(),
        };
        let started = start.run(on_progress).await;
        unfinished
            .finish(started.map(|started| started.client))
            .await
    }

    /// Returns the address of an existing sandbox.
    fn address_of(&self, engine: &Engine, sandbox: &SandboxId, found: &ContainerInfo) -> Address {
        let key_of = found.key_of.as_ref().unwrap_or(sandbox);
        address(
            &self.installation.config,
            engine,
            sandbox,
            key_of,
            sandbox.as_str(),
        )
    }

    /// Connects to an existing sandbox, and resumes it if it is paused.
    async fn connect_existing(
        &self,
        sandbox: &SandboxId,
        boot_id: Option<&BootId>,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let engine = self.engine().await?;
        let found = engine.inspect_container(sandbox.as_str()).await?;
        if found.is_paused {
            engine.resume(sandbox.as_str()).await?;
        }
        Ok(Box::new(
            ActionClient::reconnect(self.address_of(engine, sandbox, &found), boot_id).await?,
        ))
    }
}

/// Returns the address of a container's server. `sandbox` is its current name, `key_of` the one it
/// was created under.
fn address(
    config: &DockerConfig,
    engine: &Engine,
    sandbox: &SandboxId,
    key_of: &SandboxId,
    container: &str,
) -> Address {
    Address {
        runtime: RUNTIME,
        sandbox: sandbox.clone(),
        key: config.secret.derive_key(key_of),
        connector: Box::new(ExecStream::new(engine.clone(), container)),
    }
}

#[async_trait]
impl SandboxProvider for DockerProvider {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        let (engine, config) = (self.engine().await?, &self.installation.config);
        let image_name = spec.image.as_deref().unwrap_or(&config.default_image);
        let image = image::ensure(engine, config, image_name, on_progress).await?;
        if config.refuses_snapshots && image.is_snapshot && image_name != config.default_image {
            return Err(SandboxError::Invalid {
                detail: format!("the image {image_name} is a snapshot of a sandbox"),
            });
        }
        let client = match self.adopt(engine, spec, &sandbox, &image).await {
            // The pool entry belongs to the conversation from here on, and receives its
            // environment.
            Some(adopted) => match adopted.set_initial_environment(&spec.environment).await {
                Ok(()) => adopted,
                Err(error) => {
                    engine.remove_of(&config.owner, sandbox.as_str()).await?;
                    return Err(error);
                }
            },
            None => {
                self.start_sandbox(engine, spec, &sandbox, &image, on_progress)
                    .await?
            }
        };
        Ok(Box::new(client))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.connect_existing(&lease.sandbox_id, Some(&lease.boot_id))
            .await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.connect_existing(sandbox, None).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.engine()
            .await?
            .containers_of(&self.installation.config.owner)
            .await
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        Ok(self)
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        Ok(self)
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        Ok(self)
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        let engine = self.engine().await?;
        // Reading the address does not resume a paused sandbox.
        let found = engine.inspect_container(sandbox.as_str()).await?;
        Ok(self.address_of(engine, sandbox, &found).into())
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

    async fn wait_for_cleanup(&self) {
        self.installation.removals.close();
        self.installation.removals.wait().await;
    }

    async fn shut_down(&self) {
        if let Some(pool) = &self.pool {
            pool.end().await;
        }
        self.wait_for_cleanup().await;
    }
}

#[async_trait]
impl SandboxPausing for DockerProvider {
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.pause(sandbox.as_str()).await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.resume(sandbox.as_str()).await
    }
}

#[async_trait]
impl SandboxSnapshots for DockerProvider {
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
impl SandboxMonitoring for DockerProvider {
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
