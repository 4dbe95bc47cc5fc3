//! The capabilities of sandboxes and of their providers, a trait each.
//!
//! [`Sandbox`](super::Sandbox) and [`SandboxProvider`](super::SandboxProvider) return them without
//! default bodies, so that a decorator cannot lose one silently.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use protocol::sandbox_api::{
    FileList, FileMode, FileStatus, ListeningPort, ProcessExit, ProcessRequest,
};
use protocol::{ProcessId, SandboxId};

use super::{
    ByteSource, ByteStream, OnProgramOutput, ResourceUsage, SandboxDetails, SandboxError, Snapshot,
    SnapshotPurpose, StreamTarget, TransferKind,
};

/// Runs programs without a terminal.
#[async_trait]
pub trait SandboxProcesses: Send + Sync {
    /// Sets the environment variables of all processes that are started from now on. Replaces those
    /// of an earlier call.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn set_environment(
        &self,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), SandboxError>;

    /// Runs a program without a terminal until it exits. The same id never runs twice. Survives
    /// lost connections, except while input is being sent: then the program is killed. Dropping the
    /// future does not stop it; [`SandboxProcesses::kill_process`] does.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn exec(
        &self,
        id: &ProcessId,
        request: &ProcessRequest,
        stdin: Option<ByteSource>,
        on_output: &OnProgramOutput<'_>,
    ) -> Result<ProcessExit, SandboxError>;

    /// Kills the process tree of a program. Its exit still follows. Does nothing if the program has
    /// exited.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn kill_process(&self, id: &ProcessId) -> Result<(), SandboxError>;
}

/// Opens byte streams to ports, unix sockets and terminals.
#[async_trait]
pub trait SandboxStreams: Send + Sync {
    /// Opens a byte stream into the sandbox.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if the target does not accept it, or see [`SandboxError`].
    async fn open(&self, target: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError>;

    /// Returns the ports on which processes in the sandbox listen.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError>;

    /// Waits until a process listens on a port. Returns whether it does before the timeout.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn wait_for_port(&self, port: u16, timeout: Duration) -> Result<bool, SandboxError>;
}

/// Reads and changes files. A relative path is resolved against the initial working directory of
/// shells.
#[async_trait]
pub trait SandboxFiles: Send + Sync {
    /// Returns the metadata of a file, following links. `None` if it does not exist.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError>;

    /// Returns the metadata of a file or link, without following the link. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn link_status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError>;

    /// Lists a folder, including hidden files, without following links. The list is truncated to
    /// 10,000 files.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if it is not a folder, or see [`SandboxError`].
    async fn list(&self, folder: &str) -> Result<FileList, SandboxError>;

    /// Returns the content of a file or folder.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn download(&self, path: &str, kind: TransferKind) -> Result<ByteSource, SandboxError>;

    /// Returns a part of a file. It is shorter if the file ends earlier, and empty if the file ends
    /// before it.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn download_part(
        &self,
        path: &str,
        range: Range<u64>,
    ) -> Result<ByteSource, SandboxError>;

    /// Writes a file, or unpacks an archive, at a path in the sandbox. Atomic: if the source fails,
    /// nothing changes. Creates missing parent folders. The mode applies to a file.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn upload(
        &self,
        path: &str,
        kind: TransferKind,
        mode: Option<FileMode>,
        content: ByteSource,
    ) -> Result<(), SandboxError>;

    /// Creates a folder, with its missing parents. Does nothing if it exists.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if there is a file, or see [`SandboxError`].
    async fn make_folder(&self, path: &str) -> Result<(), SandboxError>;

    /// Renames or moves a file, link or folder. Links are not followed, and missing parent folders
    /// are created. An existing file is replaced only if `overwrite` is set, and of folders only
    /// an empty one.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] if it does not exist or may not replace what does, or see
    /// [`SandboxError`]. After [`SandboxError::Unreachable`] it may have been renamed.
    async fn rename(&self, from: &str, to: &str, overwrite: bool) -> Result<(), SandboxError>;

    /// Removes a file, a link or a folder. A folder with entries requires `recursive`. Links are
    /// not followed. Does nothing if it does not exist.
    ///
    /// # Errors
    /// [`SandboxError::Refused`], or see [`SandboxError`].
    async fn remove(&self, path: &str, recursive: bool) -> Result<(), SandboxError>;
}

/// Pauses and resumes the sandboxes of a provider.
#[async_trait]
pub trait SandboxPausing: Send + Sync {
    /// Freezes the processes of a sandbox; memory and files are kept. Idempotent.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Resumes a paused sandbox. Idempotent.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;
}

/// Creates, lists and removes images of the files of a provider's sandboxes.
#[async_trait]
pub trait SandboxSnapshots: Send + Sync {
    /// Creates an image of a sandbox's files, without its mounts, from which sandboxes can be
    /// created. Returns its name.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn create_snapshot(
        &self,
        sandbox: &SandboxId,
        purpose: SnapshotPurpose<'_>,
    ) -> Result<String, SandboxError>;

    /// Returns all snapshots of this installation.
    ///
    /// # Errors
    /// See [`SandboxError`]. A retry may succeed.
    async fn list_snapshots(&self) -> Result<Vec<Snapshot>, SandboxError>;

    /// Removes a snapshot of this installation. Idempotent.
    ///
    /// # Errors
    /// [`SandboxError::InUse`] while sandboxes or snapshots are based on it,
    /// [`SandboxError::NoSuchImage`] if the image is not a snapshot of this installation, or see
    /// [`SandboxError`].
    async fn remove_snapshot(&self, image: &str) -> Result<(), SandboxError>;
}

/// Inspects and measures the sandboxes of a provider and reads their logs.
#[async_trait]
pub trait SandboxMonitoring: Send + Sync {
    /// Returns the settings of a sandbox, as far as the runtime knows them.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn details(&self, sandbox: &SandboxId) -> Result<SandboxDetails, SandboxError>;

    /// Returns the current resource usage of a sandbox.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`] if the runtime has logs only, or see [`SandboxError`].
    async fn usage(&self, sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError>;

    /// Returns the last 64 KiB of the logs of a sandbox's action server.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError>;
}
