//! Action servers on a remote host over SSH. Needs no root, no Docker and no installation there.
//!
//! **This backend does not isolate.** The agent's commands have all rights of the remote account.
//! Use a dedicated machine or account for isolation. Other processes of the account can read the
//! server's binary and its folder.
//!
//! The binary is stored under its hash in `~/.glovebox/bin`. Each sandbox has a folder in
//! `~/.glovebox/sandboxes`, with a socket that only its user can open. The server is detached and
//! outlives every connection. All sandboxes of a provider share one connection, which is reopened
//! if it breaks. `spec.workspace` is a path on the remote host and is never removed.

mod authentication;
mod client_config;
mod config;
mod connection;
mod error;
mod host_key;
mod known_hosts;
mod login;
mod pattern;
mod program;
mod remote_host;
mod script;
mod shared_connection;
mod start;
mod stream;
mod target;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use engine::errors::format_chain;
use engine::sandbox::{
    ResourceUsage, Sandbox, SandboxDetails, SandboxError, SandboxMonitoring, SandboxPausing,
    SandboxProvider, SandboxSnapshots, SandboxSpec, SandboxSummary, ServerAccess, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use sandbox_client::provisioning::{sandbox_id_of, start_error, unusable_workspace, with_logs};
use sandbox_client::{ActionClient, Address, Steps, UnfinishedStart};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub use config::{HostKeyQuestion, SshConfig, UnknownHosts};
use program::Program;
use remote_host::{RemoteHost, State};
use shared_connection::SharedConnection;
use start::ServerStart;
use stream::SshStream;
pub use target::{InvalidSshTarget, SshTarget};

const RUNTIME: &str = "ssh";

/// Time to open the first stream. The server already listens when its launcher returns.
const FIRST_STREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to remove a sandbox whose start failed, including a reconnect if necessary.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Provisions sandboxes on a remote host, without isolation from the remote account.
pub struct SshProvider {
    config: Arc<SshConfig>,
    shared: Arc<SharedConnection>,
    refuses_sockets: Arc<AtomicBool>,
    program: Arc<Program>,
    owner: Arc<str>,
    removals: TaskTracker,
}

impl SshProvider {
    /// Creates a provider. The connection is opened by the first operation.
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

    async fn remote_host(&self) -> Result<RemoteHost, SandboxError> {
        remote_host(&self.shared, &self.owner).await
    }

    async fn start_sandbox(
        &self,
        remote_host: RemoteHost,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        steps: Steps,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let start = ServerStart {
            remote_host: remote_host.clone(),
            program: Arc::clone(&self.program),
            sandbox: sandbox.clone(),
            lifetime: spec.lifetime,
            workspace: workspace_of(spec)?,
            key: self.config.secret.derive_key(sandbox),
            idle_timeout: self.config.idle_timeout,
        };
        let socket = steps.run(start.run()).await?;
        on_progress(StartProgress::Connecting);
        let starting = async {
            let client =
                ActionClient::connect(self.address(sandbox, socket), FIRST_STREAM_TIMEOUT).await?;
            client
                .set_initial_environment(&spec.environment)
                .await
                .map(|()| client)
        };
        match starting.await {
            Ok(client) => Ok(client),
            Err(error) => Err(with_logs(
                error,
                remote_host.logs(sandbox).await.unwrap_or_default(),
            )),
        }
    }

    fn address(&self, sandbox: &SandboxId, socket: String) -> Address {
        Address {
            runtime: RUNTIME,
            sandbox: sandbox.clone(),
            key: self.config.secret.derive_key(sandbox),
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

    /// Returns the address of an existing sandbox. `Err` if its server has exited or its folder is
    /// missing.
    async fn existing_address(&self, sandbox: &SandboxId) -> Result<Address, SandboxError> {
        let remote_host = self.remote_host().await?;
        match remote_host.state(sandbox).await? {
            State::Running { socket } => Ok(self.address(sandbox, socket)),
            State::Ended => Err(lost(format!(
                "its server on {} has ended",
                remote_host.connection.destination()
            ))),
            State::Missing => Err(lost(format!(
                "it is not on {} any more",
                remote_host.connection.destination()
            ))),
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
        on_progress(StartProgress::Starting);
        // Has its own timeouts, and may wait for the user to confirm a host key.
        let remote_host = self.remote_host().await?;

        let (shared, owner, left) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.owner),
            sandbox.clone(),
        );
        let unfinished = UnfinishedStart::new(&self.removals, async move {
            let removal = async {
                self::remote_host(&shared, &owner)
                    .await?
                    .remove(&left)
                    .await
            };
            let removed = timeout(CLEANUP_TIMEOUT, removal).await;
            let timed_out = |elapsed| {
                Err(SandboxError::host(
                    "remove",
                    format_args!("the sandbox {left}"),
                    elapsed,
                ))
            };
            if let Err(error) = removed.unwrap_or_else(timed_out) {
                tracing::warn!(sandbox = %left, error = format_chain(&error), "cannot clean up after a failed start");
            }
        });
        let starting =
            self.start_sandbox(remote_host, &sandbox, spec, unfinished.steps(), on_progress);
        let limit = self.config.start_timeout;
        let started = timeout(limit, starting).await.unwrap_or_else(|_| {
            let target = &self.config.target;
            Err(start_error(format!(
                "the sandbox on {target} was not ready within {} s",
                limit.as_secs()
            )))
        });
        Ok(Box::new(unfinished.finish(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.existing_address(&lease.sandbox_id).await?;
        Ok(Box::new(
            ActionClient::reconnect(address, Some(&lease.boot_id)).await?,
        ))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(Box::new(
            ActionClient::reconnect(self.existing_address(sandbox).await?, None).await?,
        ))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.remote_host().await?.list().await
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: RUNTIME,
            what: "pause a sandbox",
        })
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: RUNTIME,
            what: "make snapshots",
        })
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        Ok(self)
    }

    async fn server_access(&self, _: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: RUNTIME,
            what: "lease a sandbox to clients",
        })
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.remote_host().await?.remove(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.removals.close();
        self.removals.wait().await;
    }
}

#[async_trait]
impl SandboxMonitoring for SshProvider {
    async fn details(&self, _: &SandboxId) -> Result<SandboxDetails, SandboxError> {
        // Its processes have the network of the host, and no limits of ours.
        Ok(SandboxDetails {
            networks: vec!["host".to_owned()],
            ..SandboxDetails::default()
        })
    }

    async fn usage(&self, _: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: RUNTIME,
            what: "measure the resource usage of a sandbox",
        })
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        self.remote_host().await?.logs(sandbox).await
    }
}

async fn remote_host(
    shared: &SharedConnection,
    owner: &Arc<str>,
) -> Result<RemoteHost, SandboxError> {
    Ok(RemoteHost {
        connection: shared.get().await?,
        owner: Arc::clone(owner),
    })
}

/// Returns the remote workspace path. Its existence is checked by the start script.
fn workspace_of(spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
    let Some(path) = &spec.workspace else {
        return Ok(None);
    };
    match path.to_str() {
        Some(text) if text.starts_with('/') || text == "~" || text.starts_with("~/") => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(unusable_workspace(
            path,
            "it must be a path on the remote host and begin with / or ~/",
        )),
    }
}

fn lost(detail: String) -> SandboxError {
    SandboxError::Lost { detail }
}
