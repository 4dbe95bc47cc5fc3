//! A server as a process of this host, in a session of its own.
//!
//! **It does not isolate.** What the agent runs can do what the user can: read every file, use the network, and bounds
//! on memory, processors and processes are not applied. It is for work inside something that isolates already, and for
//! trying things out; the command line says so before it starts one.
//!
//! The server outlives the host program, which attaches again through its socket; one that nobody speaks to ends
//! itself. Removing a sandbox ends its processes and deletes its folder, never a workspace of the user's.

mod folder;
mod process;
mod start;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{Placed, Sandbox, SandboxError, SandboxProvider, SandboxSpec, StartProgress};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use tokio_util::task::TaskTracker;

use crate::action_client::{ActionClient, Address};
use crate::connect::UnixSocket;
use crate::placement::{check_workspace, sandbox_id_of, with_logs};
use crate::unfinished_start::{Steps, UnfinishedStart};
use crate::{HostSecret, ServerBinary};
use folder::SandboxFolder;
use start::ServerStart;

const RUNTIME: &str = "local";

/// The server answers when its launcher returns; this is for the first connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// What the local backend needs of the host.
#[derive(Debug)]
pub struct LocalConfig {
    /// Where sandboxes have their folders. Its path must be short: a unix socket lies below it.
    pub state_dir: PathBuf,
    /// The server's program.
    pub server: ServerBinary,
    /// What keys are derived from.
    pub secret: HostSecret,
    /// The whole environment of what the agent runs: never this program's own, which may hold keys.
    pub environment: Vec<(OsString, OsString)>,
    /// A server that nobody speaks to for so long ends itself.
    pub idle_timeout: Duration,
}

/// Places sandboxes as processes of this host. See the module: it does not isolate.
pub struct LocalProvider {
    config: Arc<LocalConfig>,
    removals: TaskTracker,
}

impl LocalProvider {
    /// Touches nothing yet.
    pub fn new(config: LocalConfig) -> Self {
        Self { config: Arc::new(config), removals: TaskTracker::new() }
    }

    async fn place(
        &self,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        steps: Steps,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let folder = self.folder(sandbox)?;
        let workspace = spec.workspace.as_deref().map(check_workspace).transpose()?;
        on_progress(StartProgress::Starting);
        folder.create(spec.lifetime)?;
        let start = ServerStart {
            binary: self.config.server.path().await?,
            folder: folder.clone(),
            working_dir: workspace.unwrap_or_else(|| folder.workspace()),
            key: self.config.secret.key_of(sandbox),
            environment: self.config.environment.clone(),
            idle_timeout: self.config.idle_timeout,
        };
        steps.take(start.run()).await?;
        on_progress(StartProgress::Connecting);
        let started = async {
            let client = ActionClient::first(self.address(sandbox)?, CONNECT_PATIENCE).await?;
            client.begin_with(&spec.environment).await?;
            Ok(client)
        };
        started.await.map_err(|error| with_logs(error, folder.log_tail()))
    }

    fn folder(&self, sandbox: &SandboxId) -> Result<SandboxFolder, SandboxError> {
        SandboxFolder::of(&self.config.state_dir, sandbox)
    }

    fn address(&self, sandbox: &SandboxId) -> Result<Address, SandboxError> {
        Ok(Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.config.secret.key_of(sandbox),
            connector: Box::new(UnixSocket::at(self.folder(sandbox)?.socket())),
        })
    }
}

#[async_trait]
impl SandboxProvider for LocalProvider {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        remove(&self.config, &sandbox).await?;

        let (config, left) = (Arc::clone(&self.config), sandbox.clone());
        let unfinished = UnfinishedStart::new(&self.removals, async move {
            if let Err(error) = remove(&config, &left).await {
                tracing::warn!(sandbox = %left, %error, "removing what a failed start left");
            }
        });
        let started = self.place(&sandbox, spec, unfinished.steps(), on_progress).await;
        Ok(Box::new(unfinished.end(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.address(&lease.sandbox_id)?;
        Ok(Box::new(ActionClient::again(address, Some(&lease.boot_id)).await?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(Box::new(ActionClient::again(self.address(sandbox)?, None).await?))
    }

    async fn list(&self) -> Result<Vec<Placed>, SandboxError> {
        folder::all_below(&self.config.state_dir)
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        Ok(self.folder(sandbox)?.log_tail())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        remove(&self.config, sandbox).await
    }

    async fn settle(&self) {
        self.removals.close();
        self.removals.wait().await;
    }
}

/// Ends a sandbox's processes, then deletes its folder: the record of the process goes last.
async fn remove(config: &LocalConfig, sandbox: &SandboxId) -> Result<(), SandboxError> {
    let folder = SandboxFolder::of(&config.state_dir, sandbox)?;
    if let Some(server) = folder.server()? {
        server.end_with_descendants().await.map_err(|source| SandboxError::Host {
            doing: format!("ending the server of sandbox {sandbox}, process {}", server.pid),
            source,
        })?;
    }
    folder.remove().await
}
