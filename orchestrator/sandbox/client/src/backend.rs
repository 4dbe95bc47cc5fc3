//! What differs between runtimes: the seam below [`Provider`](crate::Provider).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    ProviderCapabilities, SandboxError, SandboxSpec, SandboxSummary, StartProgress,
};
use protocol::SandboxId;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::action_client::ActionClient;
use crate::provisioning::with_logs;
use crate::server_location::ServerLocation;
use crate::started_server::StartedServer;
use crate::unfinished_start::Steps;

/// Time for the logs that explain a failed start.
const LOGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Provisions action servers in one runtime.
///
/// A sandbox is known by its id alone, so that another process, or this one after a crash, finds,
/// lists and destroys it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the runtime's name in the configuration: `docker`, `local`, …
    fn runtime(&self) -> &'static str;

    /// Starts the action server of a new sandbox, in bounded time. Replaces an earlier sandbox of
    /// the same id. What a step of [`ProvisionRequest::steps`] creates outside of this program is
    /// removed after an error or a cancellation. [`Provider`](crate::Provider) sends the
    /// environment of the spec to the server, unless [`StartedServer::has_environment`].
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError>;

    /// Returns how to reach the server of an existing sandbox. A connector also renews a rental for
    /// as long as it is used.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the sandbox does not exist, unless the connector reports that.
    async fn locate(
        &self,
        sandbox: &SandboxId,
        on_paused: OnPaused,
    ) -> Result<ServerLocation, SandboxError>;

    /// Returns all sandboxes of this installation.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError>;

    /// Removes a sandbox and everything in it. Idempotent.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Returns what the runtime can do beyond this trait: by default nothing.
    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities::default()
    }

    /// Whether a sandbox host may lease the sandboxes to its clients.
    fn is_leasable(&self) -> bool {
        true
    }

    /// Removes what a failed or cancelled start has created, in bounded time.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn remove_unfinished(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.destroy(sandbox).await
    }

    /// Adds what the runtime knows to the error of a server that does not become ready, in bounded
    /// time: by default its logs, if the runtime has logs.
    async fn explain(&self, sandbox: &SandboxId, error: SandboxError) -> SandboxError {
        let Some(monitoring) = self.capabilities().monitoring else {
            return error;
        };
        let logs = timeout(LOGS_TIMEOUT, monitoring.logs(sandbox)).await;
        with_logs(error, logs.ok().and_then(Result::ok).unwrap_or_default())
    }

    /// Returns the tracker of the backend's own tasks, which a cleanup waits for.
    fn tasks(&self) -> TaskTracker {
        TaskTracker::new()
    }

    /// Ends what the backend does on its own, such as filling a warm pool.
    async fn shut_down(&self) {}
}

/// What [`Backend::locate`] does about a paused sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPaused {
    /// Resumes it, for a client that attaches.
    Resume,
    /// Leaves it paused, for a sandbox host that only describes it.
    Keep,
}

/// A request to provision the sandbox of a conversation.
pub struct ProvisionRequest<'a> {
    /// The id of the sandbox, under which it is found later.
    pub sandbox: &'a SandboxId,
    /// The specification of the sandbox.
    pub spec: &'a SandboxSpec,
    /// Receives the progress. The caller reports [`StartProgress::Connecting`] afterwards.
    pub on_progress: &'a (dyn Fn(StartProgress) + Send + Sync),
    pub(crate) steps: Steps,
    pub(crate) has_steps: Arc<AtomicBool>,
}

impl ProvisionRequest<'_> {
    /// Returns the steps that create the sandbox, and complete even if the request is dropped.
    /// From this call on, a failure removes the sandbox. What needs no removal precedes it: the
    /// connection to the runtime, the pull of an image.
    pub fn steps(&self) -> Steps {
        self.has_steps.store(true, Ordering::Relaxed);
        self.steps.clone()
    }
}

/// The result of [`Backend::provision`].
pub enum Provisioned {
    /// A new server, which may not respond yet.
    Started(StartedServer),
    /// A pre-warmed sandbox, whose server is connected.
    Connected(ActionClient),
}

impl Provisioned {
    /// Creates the result of a start whose parts have timeouts of their own.
    pub fn started(location: ServerLocation, connect_timeout: Duration) -> Self {
        Self::Started(StartedServer {
            location,
            connect_timeout,
            start_timeout: None,
            has_environment: false,
        })
    }
}
