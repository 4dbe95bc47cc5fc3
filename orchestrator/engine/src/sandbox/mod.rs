//! The traits of sandboxes. A provider creates a sandbox with an action server, and returns a client of it.

mod access;
mod error;
mod snapshot;
mod spec;
mod summary;
mod transfer;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{
    ActionRequest, FileMode, FileStatus, ListeningPort, ProcessExit, ProcessRequest, ServerInfo,
};
use protocol::{ActionId, Observation, ProcessId, SandboxId};

pub use access::{ByteStream, OpenStream, ServerAccess};
pub use error::SandboxError;
pub use snapshot::{Snapshot, SnapshotPurpose, sweep_snapshots};
pub use spec::{Lifetime, ResourceLimits, SandboxSpec, Volume, VolumeError};
pub use summary::{ResourceUsage, SandboxState, SandboxSummary, sweep};
pub use transfer::{ByteSource, OnProgramOutput, StreamTarget, TransferKind};

/// Creates and manages the sandboxes of one runtime. What happens inside them does not depend on the runtime.
#[async_trait]
pub trait SandboxProvider: Send + Sync {
    /// Returns the runtime's name in the configuration: `docker`, `local`, …
    fn runtime(&self) -> &'static str;

    /// Creates the sandbox of a conversation and waits until its action server responds. Its id is derived from the
    /// conversation's, so that one that a crash left behind is removed first. An error leaves nothing behind.
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

    /// Attaches to a sandbox by its id, without a lease. Accepts an action server that has restarted.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if there is none, or its action server does not respond.
    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Returns all sandboxes of this installation.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError>;

    /// Freezes the processes of a sandbox; memory and files are kept. Idempotent.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn pause(&self, _sandbox: &SandboxId) -> Result<(), SandboxError> {
        Err(self.unsupported("pause a sandbox"))
    }

    /// Resumes a paused sandbox. Idempotent.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn resume(&self, _sandbox: &SandboxId) -> Result<(), SandboxError> {
        Err(self.unsupported("resume a sandbox"))
    }

    /// Creates an image of a sandbox's files, without its mounts, from which sandboxes can be created. Returns its name.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn snapshot(
        &self,
        _sandbox: &SandboxId,
        _purpose: SnapshotPurpose<'_>,
    ) -> Result<String, SandboxError> {
        Err(self.unsupported("make a snapshot"))
    }

    /// Returns all snapshots of this installation. Empty if the runtime does not support snapshots.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn snapshots(&self) -> Result<Vec<Snapshot>, SandboxError> {
        Ok(Vec::new())
    }

    /// Removes a snapshot of this installation. Idempotent.
    ///
    /// # Errors
    /// [`SandboxError::InUse`] while sandboxes or snapshots are based on it, [`SandboxError::NoSuchImage`] if the image is
    /// not a snapshot of this installation, or see [`SandboxError`].
    async fn remove_snapshot(&self, _image: &str) -> Result<(), SandboxError> {
        Err(self.unsupported("remove a snapshot"))
    }

    /// Returns the current resource usage of a sandbox.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn usage(&self, _sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        Err(self.unsupported("measure the resource usage of a sandbox"))
    }

    /// Returns the last 64 KiB of the logs of a sandbox's action server.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn logs(&self, _sandbox: &SandboxId) -> Result<String, SandboxError> {
        Err(self.unsupported("show the logs of a sandbox"))
    }

    /// Returns direct access to a sandbox's action server, for a sandbox host. Does not check whether the sandbox exists.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn server_access(&self, _sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(self.unsupported("lease a sandbox to clients"))
    }

    /// Returns the error of an operation that this runtime does not support.
    fn unsupported(&self, what: &'static str) -> SandboxError {
        SandboxError::Unsupported { runtime: self.runtime(), what }
    }

    /// Removes a sandbox and everything in it. Idempotent.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Waits until the sandboxes of abandoned starts are removed. A program that exits earlier would leave them behind.
    /// Takes at most as long as removals may.
    async fn wait_for_cleanup(&self);
}

/// A client of one sandbox.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Returns what the log must hold to re-attach to it.
    fn lease(&self) -> &SandboxLeased;

    /// Runs an action to completion. The same id never runs twice: if the sandbox knows the id, this attaches, and replays
    /// the retained output. Survives lost connections. Dropping the future does not stop the action;
    /// [`Sandbox::cancel`] does.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the sandbox or its server is gone. The result of the action is unknown then.
    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError>;

    /// Kills the process tree of an action. Its observation still follows. Does nothing if the action has completed or was
    /// never sent.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError>;

    /// Returns the version, capabilities and limits of the action server.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn info(&self) -> Result<ServerInfo, SandboxError> {
        Err(unsupported("describe itself"))
    }

    /// Sets the environment variables of all processes that are started from now on. Replaces those of an earlier call.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn set_environment(&self, _variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
        Err(unsupported("set an environment"))
    }

    /// Runs a program without a terminal until it exits. The same id never runs twice. Survives lost connections, except
    /// while input is being sent: then the program is killed. Dropping the future does not stop it;
    /// [`Sandbox::kill_process`] does.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn exec(
        &self,
        _id: &ProcessId,
        _request: &ProcessRequest,
        _stdin: Option<ByteSource>,
        _on_output: &OnProgramOutput<'_>,
    ) -> Result<ProcessExit, SandboxError> {
        Err(unsupported("run programs without a terminal"))
    }

    /// Kills the process tree of a program. Its exit still follows. Does nothing if the program has exited.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn kill_process(&self, _id: &ProcessId) -> Result<(), SandboxError> {
        Err(unsupported("run programs without a terminal"))
    }

    /// Opens a byte stream into the sandbox.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if the target does not accept it, [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn open(&self, _target: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError> {
        Err(unsupported("open a stream"))
    }

    /// Returns the ports on which processes in the sandbox listen.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError> {
        Err(unsupported("list its ports"))
    }

    /// Waits until a process listens on a port. Returns whether it does before the timeout.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn wait_for_port(&self, _port: u16, _timeout: Duration) -> Result<bool, SandboxError> {
        Err(unsupported("wait for a port"))
    }

    /// Returns the metadata of a file, following links. `None` if it does not exist. A relative path is resolved against
    /// the initial working directory of shells.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn status(&self, _path: &str) -> Result<Option<FileStatus>, SandboxError> {
        Err(unsupported("inspect files"))
    }

    /// Returns the content of a file or folder.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn download(&self, _path: &str, _kind: TransferKind) -> Result<ByteSource, SandboxError> {
        Err(unsupported("download files"))
    }

    /// Writes a file, or unpacks an archive, at a path in the sandbox. Atomic: if the source fails, nothing changes. Creates
    /// missing parent folders. The mode applies to a file.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn upload(
        &self,
        _path: &str,
        _kind: TransferKind,
        _mode: Option<FileMode>,
        _content: ByteSource,
    ) -> Result<(), SandboxError> {
        Err(unsupported("upload files"))
    }
}

/// Returns the error of an operation that a kind of sandbox does not support.
fn unsupported(what: &'static str) -> SandboxError {
    SandboxError::Unsupported { runtime: "of this sandbox", what }
}

/// Receives the output of an action. An alias, because `async_trait` would name the lifetime of the chunk.
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
