//! A server in a container of an engine that speaks Docker's API: any image, unchanged.
//!
//! Nothing is built, no port is published and no host name is needed; the network is none unless configured. The
//! connection is the standard streams of `action-server dial`, run in the container. A container outlives the host
//! program, which attaches to it again or sweeps it away by its labels.

mod archive;
mod container;
mod engine;
mod exec_stream;
mod image;
mod pull_progress;
mod start;
mod user;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::engine::sandbox::{Placed, Sandbox, SandboxError, SandboxProvider, SandboxSpec, StartProgress};
use async_trait::async_trait;
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use crate::action_client::{ActionClient, Address};
use crate::placement::sandbox_id_of;
use crate::unfinished_start::UnfinishedStart;
use crate::{HostSecret, ServerBinary};
use engine::Engine;
use exec_stream::ExecStream;

const RUNTIME: &str = "docker";

/// What is used when no image is asked for: small, and has a package manager, bash and glibc, which most programs that
/// are not built inside expect.
pub const DEFAULT_IMAGE: &str = "debian:bookworm-slim";

/// What the Docker backend needs of the host.
#[derive(Debug)]
pub struct DockerConfig {
    /// `unix://PATH` or `tcp://HOST:PORT` (plain, no TLS), as in `DOCKER_HOST`; nothing: the default socket.
    pub host: Option<String>,
    /// The server's program.
    pub server: ServerBinary,
    /// What keys are derived from.
    pub secret: HostSecret,
    /// Labels this installation's containers, so that a sweep leaves those of others alone.
    pub owner: String,
    /// When a spec names no image; [`DEFAULT_IMAGE`] is a good one.
    pub default_image: String,
    /// The engine's network that containers join; nothing: no network.
    pub network: Option<String>,
    /// From the image being there to a server that answers.
    pub start_timeout: Duration,
    /// For the whole pull of an image.
    pub pull_timeout: Duration,
}

impl DockerConfig {
    /// The default engine and image, no network, 60 s to start and 30 minutes to pull.
    pub fn new(server: ServerBinary, secret: HostSecret, owner: impl Into<String>) -> Self {
        Self {
            host: None,
            server,
            secret,
            owner: owner.into(),
            default_image: DEFAULT_IMAGE.into(),
            network: None,
            start_timeout: Duration::from_secs(60),
            pull_timeout: Duration::from_secs(1800),
        }
    }
}

/// Places sandboxes as containers.
pub struct DockerProvider {
    config: Arc<DockerConfig>,
    engine: OnceCell<Engine>,
    removals: TaskTracker,
}

impl DockerProvider {
    /// Does not speak to the engine yet.
    pub fn new(config: DockerConfig) -> Self {
        Self { config: Arc::new(config), engine: OnceCell::new(), removals: TaskTracker::new() }
    }

    /// The engine; asked for anew until it has answered once.
    async fn engine(&self) -> Result<&Engine, SandboxError> {
        self.engine.get_or_try_init(|| Engine::connect(self.config.host.as_deref())).await
    }

    fn address(&self, engine: &Engine, sandbox: &SandboxId) -> Address {
        Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.config.secret.key_of(sandbox),
            connector: Box::new(ExecStream::new(engine.clone(), sandbox.clone())),
        }
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
        let engine = self.engine().await?;
        let image_name = spec.image.as_deref().unwrap_or(&self.config.default_image);
        let image = image::ensure(engine, image_name, self.config.pull_timeout, on_progress).await?;

        let (removing, left) = (engine.clone(), sandbox.clone());
        let unfinished = UnfinishedStart::new(&self.removals, async move {
            if let Err(error) = removing.remove(left.as_str()).await {
                tracing::warn!(sandbox = %left, %error, "removing what a failed start left");
            }
        });
        let start = start::ContainerStart {
            engine,
            config: &self.config,
            spec,
            sandbox: &sandbox,
            image: &image,
            steps: unfinished.steps(),
        };
        let started = start.run(self.address(engine, &sandbox), on_progress).await;
        Ok(Box::new(unfinished.end(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.address(self.engine().await?, &lease.sandbox_id);
        Ok(Box::new(ActionClient::again(address, Some(&lease.boot_id)).await?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.address(self.engine().await?, sandbox);
        Ok(Box::new(ActionClient::again(address, None).await?))
    }

    async fn list(&self) -> Result<Vec<Placed>, SandboxError> {
        self.engine().await?.containers_of(&self.config.owner).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.engine().await?.remove(sandbox.as_str()).await
    }

    async fn settle(&self) {
        self.removals.close();
        self.removals.wait().await;
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
