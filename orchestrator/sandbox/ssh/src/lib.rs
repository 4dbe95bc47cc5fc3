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
use engine::sandbox::{
    ProviderCapabilities, ResourceUsage, SandboxDetails, SandboxError, SandboxMonitoring,
    SandboxSpec, SandboxSummary, StartProgress,
};
use protocol::SandboxId;
use sandbox_client::provisioning::unusable_workspace;
use sandbox_client::{
    Backend, OnPaused, Provider, ProvisionRequest, Provisioned, ServerLocation, StartTimeout,
    StartedServer,
};
use tokio::time::timeout;

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

/// Provides sandboxes on a remote host, without isolation from the remote account.
pub type SshProvider = Provider<SshBackend>;

/// Provisions action servers on a remote host.
pub struct SshBackend {
    config: Arc<SshConfig>,
    shared: Arc<SharedConnection>,
    refuses_sockets: Arc<AtomicBool>,
    program: Arc<Program>,
    owner: Arc<str>,
}

/// The connection is opened by the first operation.
impl From<SshConfig> for SshBackend {
    fn from(config: SshConfig) -> Self {
        let config = Arc::new(config);
        Self {
            shared: Arc::new(SharedConnection::new(Arc::clone(&config))),
            refuses_sockets: Arc::default(),
            program: Arc::new(Program::new(config.server.clone())),
            owner: config.secret.owner().into(),
            config,
        }
    }
}

impl SshBackend {
    async fn remote_host(&self) -> Result<RemoteHost, SandboxError> {
        Ok(RemoteHost {
            connection: self.shared.get().await?,
            owner: Arc::clone(&self.owner),
        })
    }

    fn location(&self, sandbox: &SandboxId, socket: String) -> ServerLocation {
        ServerLocation {
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
}

#[async_trait]
impl Backend for SshBackend {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError> {
        let ProvisionRequest { sandbox, spec, .. } = *request;
        (request.on_progress)(StartProgress::Starting);
        // Has its own timeouts, and may wait for the user to confirm a host key.
        let remote_host = self.remote_host().await?;
        let timeout = StartTimeout::new(
            format_args!("the sandbox on {}", self.config.target),
            self.config.start_timeout,
        );
        let start = ServerStart {
            remote_host,
            program: Arc::clone(&self.program),
            sandbox: sandbox.clone(),
            lifetime: spec.lifetime,
            workspace: workspace_of(spec)?,
            key: self.config.secret.derive_key(sandbox),
            idle_timeout: self.config.idle_timeout,
        };
        let socket = timeout.bound(request.steps().run(start.run())).await?;
        Ok(Provisioned::Started(StartedServer {
            location: self.location(sandbox, socket),
            connect_timeout: FIRST_STREAM_TIMEOUT,
            start_timeout: Some(timeout),
            has_environment: false,
        }))
    }

    async fn locate(
        &self,
        sandbox: &SandboxId,
        _: OnPaused,
    ) -> Result<ServerLocation, SandboxError> {
        let remote_host = self.remote_host().await?;
        let destination = remote_host.connection.destination();
        match remote_host.state(sandbox).await? {
            State::Running { socket } => Ok(self.location(sandbox, socket)),
            State::Ended => Err(lost(format!("its server on {destination} has ended"))),
            State::Missing => Err(lost(format!("it is not on {destination} any more"))),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        self.remote_host().await?.list().await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.remote_host().await?.remove(sandbox).await
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities {
            monitoring: Some(self),
            ..ProviderCapabilities::default()
        }
    }

    /// Its clients would have all rights of the remote account.
    fn is_leasable(&self) -> bool {
        false
    }

    async fn remove_unfinished(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        timeout(CLEANUP_TIMEOUT, self.destroy(sandbox))
            .await
            .unwrap_or_else(|elapsed| {
                let subject = format_args!("the sandbox {sandbox}");
                Err(SandboxError::host("remove", subject, elapsed))
            })
    }
}

#[async_trait]
impl SandboxMonitoring for SshBackend {
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
