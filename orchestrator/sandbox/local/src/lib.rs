//! The local backend: an action server as a process of this host, isolated with the host's own
//! means. See [`Isolation`].
//!
//! Without isolation, which must be requested explicitly, the agent's commands have all rights of
//! the user: they can read every file and use the network. Memory, CPUs and processes are limited
//! in both cases if the host supports it. See [`Bounds`].
//!
//! The server outlives the host program, which attaches again through the server's socket. A server
//! without clients exits. Removing a sandbox kills its processes and deletes its folder, but never
//! the user's workspace.

mod bounds;
mod bubblewrap;
mod confine;
mod folder;
mod isolation;
mod probes;
mod process;
mod server_socket;
mod start;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    ProviderCapabilities, ResourceUsage, SandboxDetails, SandboxError, SandboxMonitoring,
    SandboxSummary, StartProgress, Volume,
};
use protocol::SandboxId;
use sandbox_client::provisioning::check_workspace;
use sandbox_client::{
    Backend, HostSecret, OnPaused, Provider, ProvisionRequest, Provisioned, ServerBinary,
    ServerLocation,
};
use tokio_util::task::TaskTracker;

pub use bounds::Bounds;
use bounds::ControlGroups;
pub use bubblewrap::BUBBLEWRAP_PROGRAMS;
pub use confine::confine_if_requested;
use folder::SandboxFolder;
pub use isolation::{Isolation, IsolationChoice, IsolationKind};
pub use probes::LocalProbes;
use server_socket::ServerSocket;
use start::{SandboxIsolation, SandboxLimits, ServerStart};
use view::View;

const RUNTIME: &str = "local";

/// Time to open the first connection. The server already listens when its launcher returns.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings of the local backend.
#[derive(Debug)]
pub struct LocalConfig {
    /// The parent of the sandboxes' folders. Its path must be short, because it contains unix
    /// sockets.
    pub state_dir: PathBuf,
    /// The server's binary.
    pub server: ServerBinary,
    /// Secret that sandbox keys are derived from.
    pub secret: HostSecret,
    /// The complete environment of the agent's commands. That of this program may contain keys and
    /// is not inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// A server without requests for this long exits.
    pub idle_timeout: Duration,
    /// The requested isolation.
    pub isolation: IsolationChoice,
    /// Whether isolated sandboxes can use the network.
    pub network: bool,
    /// Files and folders to hide from isolated sandboxes: an engine's socket, a configuration with
    /// keys.
    pub hidden: Vec<PathBuf>,
    /// A program that first calls [`crate::confine_if_requested`], usually this one
    /// (`/proc/PID/exe`).
    pub launcher: PathBuf,
    /// Candidates for the path of `bwrap`, usually [`BUBBLEWRAP_PROGRAMS`].
    pub bubblewrap: Vec<PathBuf>,
    /// The mount point of control groups, usually [`CONTROL_GROUPS`].
    pub control_groups: PathBuf,
    /// The user's runtime folder (`XDG_RUNTIME_DIR`). `None` to request no scopes of the user's
    /// systemd manager.
    pub runtime_dir: Option<PathBuf>,
    /// The user's name. `None` if unknown: then the manager may not outlive the user's sessions.
    pub user: Option<String>,
    /// What is known of this host. Shared by providers that differ in nothing but isolation,
    /// network and hidden files.
    pub probes: Arc<LocalProbes>,
}

/// The usual mount point of control groups.
pub const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

impl LocalConfig {
    /// The user's home.
    fn home(&self) -> Option<PathBuf> {
        let home = self.environment.iter().find(|(name, _)| name == "HOME")?;
        PathBuf::from(&home.1)
            .canonicalize()
            .ok()
            .filter(|path| path.is_dir() && path.parent().is_some())
    }
}

/// Provides sandboxes that are processes of this host.
pub type LocalProvider = Provider<LocalBackend>;

/// Provisions action servers as processes of this host.
pub struct LocalBackend {
    config: Arc<LocalConfig>,
    tasks: TaskTracker,
}

/// Does not access the host yet.
impl From<LocalConfig> for LocalBackend {
    fn from(config: LocalConfig) -> Self {
        Self {
            config: Arc::new(config),
            tasks: TaskTracker::new(),
        }
    }
}

impl LocalBackend {
    /// Returns the isolation of this host. The first call, or the first sandbox, probes it: in 20
    /// ms, at most 15 s.
    ///
    /// # Errors
    /// [`SandboxError::RuntimeUnavailable`] if the configured isolation does not work here, with
    /// the cause and a remedy.
    pub async fn isolation(&self) -> Result<Isolation, SandboxError> {
        let probe = || async {
            let config = Arc::clone(&self.config);
            // A separate task, which continues if this future is dropped.
            let probed = self
                .tasks
                .spawn(async move { isolation::probe(&config).await });
            probed
                .await
                .unwrap_or_else(|panic| Err(SandboxError::host("probe", "the isolation", panic)))
        };
        let probed = self
            .config
            .probes
            .isolation(self.config.isolation, self.config.network);
        probed.get_or_try_init(probe).await.cloned()
    }

    /// Returns the limits that this host can enforce. The first call, or the first sandbox, probes
    /// them.
    ///
    /// # Errors
    /// The probe was aborted.
    pub async fn bounds(&self) -> Result<&Bounds, SandboxError> {
        let probe = || async {
            let config = Arc::clone(&self.config);
            let probed = self
                .tasks
                .spawn(async move { Bounds::probe(&config).await });
            probed
                .await
                .map_err(|panic| SandboxError::host("probe", "the limits", panic))
        };
        self.config.probes.bounds.get_or_try_init(probe).await
    }

    fn network_name(&self, isolation: &Isolation) -> &'static str {
        if self.config.network || *isolation == Isolation::None {
            "host"
        } else {
            "none"
        }
    }

    /// Returns the isolation of one sandbox. `None` without isolation.
    fn sandbox_isolation(
        &self,
        isolation: &Isolation,
        folder: &SandboxFolder,
        working_dir: &Path,
        binary: &Path,
        volumes: &[Volume],
    ) -> Result<Option<SandboxIsolation>, SandboxError> {
        if *isolation == Isolation::None {
            return Ok(None);
        }
        View::link_tools(&self.config, folder).map_err(|source| {
            SandboxError::host(
                "create",
                format_args!("the home {}", folder.home().display()),
                source,
            )
        })?;
        Ok(Some(SandboxIsolation {
            isolation: isolation.clone(),
            view: View::for_sandbox(&self.config, folder, working_dir, binary, volumes)?,
            network: self.config.network,
        }))
    }

    fn folder(&self, sandbox: &SandboxId) -> Result<SandboxFolder, SandboxError> {
        SandboxFolder::new(&self.config.state_dir, sandbox)
    }

    fn location(&self, sandbox: &SandboxId) -> Result<ServerLocation, SandboxError> {
        Ok(ServerLocation {
            key: self.config.secret.derive_key(sandbox),
            connector: Box::new(ServerSocket {
                folder: self.folder(sandbox)?,
            }),
        })
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError> {
        let ProvisionRequest { sandbox, spec, .. } = *request;
        self.destroy(sandbox).await?;
        let isolation = self.isolation().await?;
        let bounds = self.bounds().await?.clone();
        let folder = self.folder(sandbox)?;
        let workspace = spec.workspace.as_deref().map(check_workspace).transpose()?;
        if let Some(workspace) = &workspace {
            view::check_owner(workspace, &isolation)?;
        }
        (request.on_progress)(StartProgress::Starting);
        let steps = request.steps();
        folder.create(spec.lifetime)?;
        let binary = self.config.server.path().await?;
        folder.record_details(&SandboxDetails {
            workspace: workspace
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
            networks: vec![self.network_name(&isolation).to_owned()],
            ..bounds.enforced(&spec.resources)
        })?;
        let working_dir = workspace.unwrap_or_else(|| folder.workspace());
        let start = ServerStart {
            folder: folder.clone(),
            key: self.config.secret.derive_key(sandbox),
            environment: self.config.environment.clone(),
            idle_timeout: self.config.idle_timeout,
            limits: SandboxLimits {
                bounds,
                name: self.config.secret.group_name(sandbox),
                resources: spec.resources,
                launcher: self.config.launcher.clone(),
            },
            isolation: self.sandbox_isolation(
                &isolation,
                &folder,
                &working_dir,
                &binary,
                &spec.volumes,
            )?,
            binary,
            working_dir,
        };
        steps.run(start.run()).await?;
        Ok(Provisioned::started(
            self.location(sandbox)?,
            CONNECT_TIMEOUT,
        ))
    }

    async fn locate(
        &self,
        sandbox: &SandboxId,
        _: OnPaused,
    ) -> Result<ServerLocation, SandboxError> {
        self.location(sandbox)
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        folder::list(&self.config.state_dir)
    }

    /// Kills the processes, removes the control groups and deletes the folder, with the record of
    /// the process last.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let folder = self.folder(sandbox)?;
        let group = self.config.secret.group_name(sandbox);
        let server = folder.server()?;
        let pid = server.as_ref().map(|processes| processes.server.pid);
        // Found before the processes end.
        let groups = ControlGroups::of_sandbox(&self.config.control_groups, &group, pid);
        if let Some(processes) = server {
            processes.terminate().await.map_err(|source| {
                let pid = processes.server.pid;
                SandboxError::host(
                    "terminate",
                    format_args!("the server of {sandbox}, process {pid}"),
                    source,
                )
            })?;
        }
        groups.remove(&group).await.map_err(|source| {
            SandboxError::host("remove", format_args!("the control groups {group}"), source)
        })?;
        folder.remove().await
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities {
            monitoring: Some(self),
            ..ProviderCapabilities::default()
        }
    }

    fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }
}

#[async_trait]
impl SandboxMonitoring for LocalBackend {
    async fn details(&self, sandbox: &SandboxId) -> Result<SandboxDetails, SandboxError> {
        self.folder(sandbox)?.details()
    }

    async fn usage(&self, _: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: RUNTIME,
            what: "measure the resource usage of a sandbox",
        })
    }

    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        Ok(self.folder(sandbox)?.log_tail())
    }
}
