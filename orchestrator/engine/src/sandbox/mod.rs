//! The traits of sandboxes. A provider creates a sandbox with an action server, and returns a
//! client of it.

mod access;
mod capability;
pub mod decorator;
mod error;
mod runtime_api;
mod script;
mod snapshot;
mod spec;
mod summary;
mod transfer;

use std::time::Duration;

use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::ActionRequest;
use protocol::update::SandboxStart;
use protocol::{ActionId, Observation, SandboxId};

pub use access::{ByteStream, OpenStream, ServerAccess};
pub use capability::{
    SandboxFiles, SandboxMonitoring, SandboxPausing, SandboxProcesses, SandboxSnapshots,
    SandboxStreams,
};
pub use error::SandboxError;
pub use script::{Script, ScriptResult};
pub use snapshot::{Snapshot, SnapshotPurpose, sweep_snapshots};
pub use spec::{Lifetime, ResourceLimits, SandboxSpec, UnknownLifetime, Volume, VolumeError};
pub use summary::{ResourceUsage, SandboxDetails, SandboxState, SandboxSummary, sweep};
pub use transfer::{ByteSource, IncompleteArchive, OnProgramOutput, StreamTarget, TransferKind};

/// Creates and manages the sandboxes of one runtime. What happens inside them does not depend on
/// the runtime.
#[async_trait]
pub trait SandboxProvider: Send + Sync {
    /// Returns the runtime's name in the configuration: `docker`, `local`, …
    fn runtime(&self) -> &'static str;

    /// Creates the sandbox of a conversation and waits until its action server responds. Its id is
    /// derived from the conversation's, so that one that a crash left behind is removed first. An
    /// error leaves nothing behind.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Attaches to an existing sandbox.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if it is gone, or its action server has restarted since.
    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Attaches to a sandbox by its id, without a lease. Accepts an action server that has
    /// restarted.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if there is none, or its action server does not respond.
    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Returns all sandboxes of this installation.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError>;

    /// Returns what it can do beyond this trait.
    fn capabilities(&self) -> ProviderCapabilities<'_>;

    /// Returns the capability to pause sandboxes.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        supported(
            self.runtime(),
            self.capabilities().pausing,
            "pause a sandbox",
        )
    }

    /// Returns the capability to make snapshots of sandboxes.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        supported(
            self.runtime(),
            self.capabilities().snapshots,
            "make snapshots",
        )
    }

    /// Returns the capability to monitor sandboxes.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        supported(
            self.runtime(),
            self.capabilities().monitoring,
            "monitor sandboxes",
        )
    }

    /// Returns direct access to a sandbox's action server, for a sandbox host. Does not check
    /// whether the sandbox exists.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError>;

    /// Removes a sandbox and everything in it. Idempotent.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Waits until the sandboxes of abandoned starts are removed. A program that exits earlier
    /// would leave them behind. Takes at most as long as removals may.
    async fn wait_for_cleanup(&self);

    /// Ends what the provider does on its own, such as filling a warm pool, and waits as
    /// [`wait_for_cleanup`](Self::wait_for_cleanup) does.
    async fn shut_down(&self) {
        self.wait_for_cleanup().await;
    }
}

/// The capabilities of a provider. `None` if its runtime lacks one.
#[derive(Clone, Copy, Default)]
pub struct ProviderCapabilities<'a> {
    /// Pauses and resumes sandboxes.
    pub pausing: Option<&'a dyn SandboxPausing>,
    /// Makes snapshots of sandboxes.
    pub snapshots: Option<&'a dyn SandboxSnapshots>,
    /// Inspects and measures sandboxes, and reads their logs.
    pub monitoring: Option<&'a dyn SandboxMonitoring>,
}

fn supported<T>(
    runtime: &'static str,
    capability: Option<T>,
    what: &'static str,
) -> Result<T, SandboxError> {
    capability.ok_or(SandboxError::Unsupported { runtime, what })
}

/// A client of one sandbox.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Returns what the log must hold to re-attach to it.
    fn lease(&self) -> &SandboxLeased;

    /// Runs an action to completion. The same id never runs twice: if the sandbox knows the id,
    /// this attaches, and replays the retained output. Survives lost connections. Dropping the
    /// future does not stop the action; [`Sandbox::cancel`] does.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the sandbox or its server is gone. The result of the action is
    /// unknown then.
    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError>;

    /// Kills the process tree of an action. Its observation still follows. Does nothing if the
    /// action has completed or was never sent.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError>;

    /// Reconnects if the connection has ended. Sends nothing over an open one.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the sandbox or its server is gone.
    async fn check_connection(&self) -> Result<(), SandboxError>;

    /// Returns the capability to run programs.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError>;

    /// Returns the capability to open streams.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError>;

    /// Returns the capability to transfer files.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`].
    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError>;
}

/// Receives the output of an action. An alias, because `async_trait` would name the lifetime of the
/// chunk.
pub type OnOutput<'a> = dyn for<'chunk> Fn(OutputChunk<'chunk>) + Send + Sync + 'a;

/// The progress of creating a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub enum StartProgress {
    /// The image is being pulled.
    Pulling {
        /// The image.
        image: String,
        /// Bytes received so far.
        received_bytes: u64,
        /// Total size in bytes. `None` until the sizes of all layers are known.
        total_bytes: Option<u64>,
    },
    /// The sandbox is being created and started.
    Starting,
    /// Waiting for its action server.
    Connecting,
    /// An attempt has failed, and another one follows.
    Retrying {
        /// Why it failed, in one line.
        reason: String,
        /// The delay before the next attempt.
        after: Duration,
    },
}

impl From<StartProgress> for SandboxStart {
    fn from(progress: StartProgress) -> Self {
        match progress {
            StartProgress::Pulling {
                image,
                received_bytes,
                total_bytes,
            } => Self::Pulling {
                image,
                received_bytes,
                total_bytes,
            },
            StartProgress::Starting => Self::Starting {},
            StartProgress::Connecting => Self::Connecting {},
            StartProgress::Retrying { reason, after } => Self::Retrying {
                after_secs: after.as_secs_f64(),
                reason,
            },
        }
    }
}

/// A chunk of an action's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputChunk<'a> {
    /// Output as written to the terminal.
    Bytes {
        /// The number of bytes that precede these.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Output that is no longer retained.
    Gap {
        /// The offset of the first missing byte.
        from: u64,
        /// The offset of the first retained byte after the gap.
        to: u64,
    },
}
