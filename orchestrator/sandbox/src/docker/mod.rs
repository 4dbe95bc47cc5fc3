//! A server in a container of an engine that speaks Docker's API: any image, unchanged.
//!
//! Nothing is built, no port is published and no host name is needed; the network is none unless configured. The
//! connection is the standard streams of `action-server dial`, run in the container. A container outlives the host
//! program, which attaches to it again or sweeps it away by its labels.

mod archive;
mod config;
mod container;
mod discovery;
mod engine;
mod exec_stream;
mod image;
mod labels;
mod lifecycle;
mod machine;
mod mounts;
mod pull_progress;
mod registry_login;
mod snapshot;
mod snapshots;
mod spare;
mod start;
mod usage;
mod user;
mod warm_pool;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::engine::sandbox::{
    ResourceUsage, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary, ServerAccess,
    Snapshot, SnapshotPurpose, StartProgress,
};
use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::{BootId, SandboxId};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::action_client::{ActionClient, Address};
use crate::placement::sandbox_id_of;
use crate::unfinished_start::UnfinishedStart;
pub use config::{DEFAULT_IMAGE, DockerConfig, Gpus, MAX_HOLDER_LENGTH, Pool};
use engine::Engine;
use exec_stream::ExecStream;
use image::Image;
use labels::Belongs;
use lifecycle::Found;
pub use spare::spare_holder;
use warm_pool::WarmPool;

const RUNTIME: &str = "docker";

/// An engine that is well answers in milliseconds.
const ANSWER_WAIT: Duration = Duration::from_millis(1500);

/// Places sandboxes as containers.
pub struct DockerProvider {
    installation: Arc<Installation>,
    pool: Option<WarmPool>,
}

/// What the provider and what it does in the background share.
struct Installation {
    config: DockerConfig,
    engine: OnceCell<Engine>,
    removals: TaskTracker,
}

impl Installation {
    /// The engine; asked for anew until it has answered once.
    async fn engine(&self) -> Result<&Engine, SandboxError> {
        let DockerConfig { host, runtime_dir, .. } = &self.config;
        self.engine.get_or_try_init(|| Engine::find(host.as_deref(), runtime_dir.as_deref())).await
    }
}

impl DockerProvider {
    /// Does not speak to the engine yet, unless there is a pool to fill: that is done by a task of the runtime which this
    /// is called in.
    pub fn new(config: DockerConfig) -> Self {
        let installation =
            Arc::new(Installation { config, engine: OnceCell::new(), removals: TaskTracker::new() });
        let pool = WarmPool::start(&installation);
        Self { installation, pool }
    }

    /// Whether the engine answers, within 2 s: for whoever would place sandboxes elsewhere if it does not.
    ///
    /// # Errors
    /// [`SandboxError::RuntimeUnavailable`] says what came of asking.
    pub async fn answers(&self) -> Result<(), SandboxError> {
        let answered = timeout(ANSWER_WAIT, self.engine()).await;
        let silent = |_| SandboxError::RuntimeUnavailable {
            runtime: RUNTIME,
            detail: format!("the engine does not answer within {} ms", ANSWER_WAIT.as_millis()),
        };
        answered.map_err(silent)?.map(|_| ())
    }

    async fn engine(&self) -> Result<&Engine, SandboxError> {
        self.installation.engine().await
    }

    /// A sandbox that was made ahead, if there is one that fits.
    async fn adopt(
        &self,
        engine: &Engine,
        spec: &SandboxSpec,
        sandbox: &SandboxId,
        image: &Image,
    ) -> Option<ActionClient> {
        let pool = self.pool.as_ref().filter(|pool| pool.fits(spec, image))?;
        while let Some(spare) = pool.take(image) {
            match spare.adopt(engine, sandbox).await {
                Ok(client) => return Some(client),
                Err(error) => tracing::warn!(%sandbox, %error, "adopting a sandbox that was made ahead"),
            }
        }
        None
    }

    async fn place(
        &self,
        engine: &Engine,
        spec: &SandboxSpec,
        sandbox: &SandboxId,
        image: &Image,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let (removing, left) = (engine.clone(), sandbox.clone());
        let unfinished = UnfinishedStart::new(&self.installation.removals, async move {
            if let Err(error) = removing.remove(left.as_str()).await {
                tracing::warn!(sandbox = %left, %error, "removing what a failed start left");
            }
        });
        let start = start::ContainerStart {
            engine,
            config: &self.installation.config,
            spec,
            belongs: Belongs::To(&spec.conversation),
            sandbox,
            image,
            steps: unfinished.steps(),
        };
        let started = start.run(on_progress).await;
        unfinished.end(started.map(|started| started.client)).await
    }

    /// Where a sandbox is that was found.
    fn address_of(&self, engine: &Engine, sandbox: &SandboxId, found: &Found) -> Address {
        let key_of = found.key_of.as_ref().unwrap_or(sandbox);
        address(&self.installation.config, engine, sandbox, key_of, sandbox.as_str())
    }

    /// Speaks with a sandbox that is there. One that is frozen goes on: who speaks with it wants that.
    async fn speak(
        &self,
        sandbox: &SandboxId,
        boot_id: Option<&BootId>,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let engine = self.engine().await?;
        let found = engine.look_at(sandbox.as_str()).await?;
        if found.is_paused {
            engine.resume(sandbox.as_str()).await?;
        }
        Ok(Box::new(ActionClient::again(self.address_of(engine, sandbox, &found), boot_id).await?))
    }
}

/// Where the server of a container is: `sandbox` is what it is known as, `key_of` what it was made as.
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
        key: config.secret.key_of(key_of),
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
        let client = match self.adopt(engine, spec, &sandbox, &image).await {
            // It is the conversation's from here on, and gets what is the conversation's own.
            Some(adopted) => match adopted.begin_with(&spec.environment).await {
                Ok(()) => adopted,
                Err(error) => {
                    engine.remove(sandbox.as_str()).await?;
                    return Err(error);
                }
            },
            None => self.place(engine, spec, &sandbox, &image, on_progress).await?,
        };
        Ok(Box::new(client))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.speak(&lease.sandbox_id, Some(&lease.boot_id)).await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.speak(sandbox, None).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.engine().await?.containers_of(&self.installation.config.owner).await
    }

    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.pause(sandbox.as_str()).await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.resume(sandbox.as_str()).await
    }

    async fn snapshot(
        &self,
        sandbox: &SandboxId,
        purpose: SnapshotPurpose<'_>,
    ) -> Result<String, SandboxError> {
        snapshot::make(self.engine().await?, &self.installation.config.owner, sandbox, purpose).await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, SandboxError> {
        snapshots::of(self.engine().await?, &self.installation.config.owner).await
    }

    async fn remove_snapshot(&self, image: &str) -> Result<(), SandboxError> {
        snapshots::remove(self.engine().await?, &self.installation.config.owner, image).await
    }

    async fn usage(&self, sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        self.engine().await?.usage(sandbox.as_str()).await
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        self.engine().await?.logs(sandbox.as_str()).await
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        let engine = self.engine().await?;
        // Who is only told of it lets nothing go on.
        let found = engine.look_at(sandbox.as_str()).await?;
        Ok(self.address_of(engine, sandbox, &found).into())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let engine = self.engine().await?;
        let found = engine.look_at(sandbox.as_str()).await.ok().filter(|found| found.is_fork);
        engine.remove(sandbox.as_str()).await?;
        if let Some(fork) = found {
            snapshots::remove_after_fork(engine, &self.installation.config.owner, &fork.image).await;
        }
        Ok(())
    }

    async fn wait_for_cleanup(&self) {
        if let Some(pool) = &self.pool {
            pool.end();
        }
        self.installation.removals.close();
        self.installation.removals.wait().await;
    }
}

/// Where the server's file comes from, for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerSource {
    /// Bind-mounted, read-only: 60 ms faster. The engine must see this host's files.
    Mounted(PathBuf),
    /// Copied into the container.
    Uploaded,
}
