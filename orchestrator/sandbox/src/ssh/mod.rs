//! A server on another machine, reached over SSH: no root there, no Docker, nothing installed.
//!
//! **It does not isolate.** What the agent runs can do what the account there can do, like a user who logged in; a
//! machine or an account of its own is what isolates it. The account's other processes can read the server's file and
//! its folder.
//!
//! The program is kept there under its hash, in `~/.glovebox/bin`; each sandbox has a folder in `~/.glovebox/sandboxes`
//! with a socket that only its user can open. The server is detached and outlives every connection. One connection is
//! shared by all sandboxes of a provider, and made again when it has broken. `spec.workspace` is a path on the other
//! side; it is never removed.

mod authentication;
mod client_config;
mod config;
mod connection;
mod error;
mod far_side;
mod host_key;
mod known_hosts;
mod login;
mod pattern;
mod program;
mod script;
mod shared_connection;
mod start;
mod stream;
mod target;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary, StartProgress};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::action_client::{ActionClient, Address};
use crate::placement::{sandbox_id_of, start_error, unusable_workspace, with_logs};
use crate::unfinished_start::{Steps, UnfinishedStart};
pub use config::{HostKeyQuestion, SshConfig, UnknownHosts};
use far_side::{FarSide, State};
use program::Program;
use shared_connection::SharedConnection;
use start::ServerStart;
use stream::{RefusesSockets, SshStream};

const RUNTIME: &str = "ssh";

/// The server answers when its launcher returns; this is for the first stream to it.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// For the removal of what a failed start left, with a new connection if it must be.
const REMOVAL_LIMIT: Duration = Duration::from_secs(20);

/// Places sandboxes on another machine. See the module: it does not isolate.
pub struct SshProvider {
    config: Arc<SshConfig>,
    shared: Arc<SharedConnection>,
    refuses_sockets: Arc<RefusesSockets>,
    program: Arc<Program>,
    owner: Arc<str>,
    removals: TaskTracker,
}

impl SshProvider {
    /// Connects to nothing yet.
    pub fn new(config: SshConfig) -> Self {
        let config = Arc::new(config);
        Self {
            shared: Arc::new(SharedConnection::new(Arc::clone(&config))),
            refuses_sockets: Arc::default(),
            program: Arc::new(Program::new(config.server.clone())),
            owner: config.secret.owner().into(),
            removals: TaskTracker::new(),
            config,
        }
    }

    async fn far_side(&self) -> Result<FarSide, SandboxError> {
        far_side(&self.shared, &self.owner).await
    }

    async fn place(
        &self,
        far_side: FarSide,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        steps: Steps,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let start = ServerStart {
            far_side: far_side.clone(),
            program: Arc::clone(&self.program),
            sandbox: sandbox.clone(),
            lifetime: spec.lifetime,
            workspace: workspace_of(spec)?,
            key: self.config.secret.key_of(sandbox),
            idle_timeout: self.config.idle_timeout,
        };
        let socket = steps.take(start.run()).await?;
        on_progress(StartProgress::Connecting);
        let begun = async {
            let client = ActionClient::first(self.address(sandbox, socket), CONNECT_PATIENCE).await?;
            client.begin_with(&spec.environment).await.map(|()| client)
        };
        match begun.await {
            Ok(client) => Ok(client),
            Err(error) => Err(with_logs(error, far_side.logs(sandbox).await.unwrap_or_default())),
        }
    }

    fn address(&self, sandbox: &SandboxId, socket: String) -> Address {
        Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.config.secret.key_of(sandbox),
            connector: Box::new(SshStream {
                shared: Arc::clone(&self.shared),
                refuses_sockets: Arc::clone(&self.refuses_sockets),
                program: Arc::clone(&self.program),
                owner: Arc::clone(&self.owner),
                sandbox: sandbox.clone(),
                socket,
            }),
        }
    }

    /// Where the server of a sandbox that was placed before listens.
    async fn again(&self, sandbox: &SandboxId) -> Result<Address, SandboxError> {
        let far_side = self.far_side().await?;
        match far_side.state(sandbox).await? {
            State::Running { socket } => Ok(self.address(sandbox, socket)),
            State::Ended => Err(lost(format!("its server on {} has ended", far_side.connection.place()))),
            State::Missing => Err(lost(format!("it is not on {} any more", far_side.connection.place()))),
        }
    }
}

#[async_trait]
impl SandboxProvider for SshProvider {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        let limit = self.config.start_timeout;
        let deadline = Instant::now() + limit;
        let late = || {
            let target = &self.config.target;
            start_error(format!("the sandbox on {target} was not ready within {} s", limit.as_secs()))
        };
        on_progress(StartProgress::Starting);
        let far_side = timeout_at(deadline, self.far_side()).await.unwrap_or_else(|_| Err(late()))?;

        let (shared, owner, left) = (Arc::clone(&self.shared), Arc::clone(&self.owner), sandbox.clone());
        let unfinished = UnfinishedStart::new(&self.removals, async move {
            let removal = async { self::far_side(&shared, &owner).await?.remove(&left).await };
            let removed = timeout(REMOVAL_LIMIT, removal).await;
            if let Err(error) = removed.unwrap_or_else(|_| Err(start_error("it takes too long"))) {
                tracing::warn!(sandbox = %left, %error, "removing what a failed start left");
            }
        });
        let placing = self.place(far_side, &sandbox, spec, unfinished.steps(), on_progress);
        let started = timeout_at(deadline, placing).await.unwrap_or_else(|_| Err(late()));
        Ok(Box::new(unfinished.end(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.again(&lease.sandbox_id).await?;
        Ok(Box::new(ActionClient::again(address, Some(&lease.boot_id)).await?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(Box::new(ActionClient::again(self.again(sandbox).await?, None).await?))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.far_side().await?.list().await
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        self.far_side().await?.logs(sandbox).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.far_side().await?.remove(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.removals.close();
        self.removals.wait().await;
    }
}

async fn far_side(shared: &SharedConnection, owner: &Arc<str>) -> Result<FarSide, SandboxError> {
    Ok(FarSide { connection: shared.get().await?, owner: Arc::clone(owner) })
}

/// A path of the other side: only it can say whether it is there.
fn workspace_of(spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
    let Some(path) = &spec.workspace else { return Ok(None) };
    match path.to_str() {
        Some(text) if text.starts_with('/') || text == "~" || text.starts_with("~/") => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(unusable_workspace(path, "it is a path on the other side, and must begin with / or ~/")),
    }
}

fn lost(detail: String) -> SandboxError {
    SandboxError::Lost { detail }
}
