//! The seam to sandboxes: a provider places an action server and hands back a way to speak with it.

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

/// Places sandboxes of one runtime. Only places: what is done in them is the same for all.
#[async_trait]
pub trait SandboxProvider: Send + Sync {
    /// The runtime's name in configuration: `docker`, `local`, …
    fn runtime(&self) -> &'static str;

    /// Places the sandbox of a conversation. One that is left from before a crash is removed first: its id is
    /// derived from the conversation's. Ends in a sandbox that answers or in an error, with nothing left behind.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Speaks again with a sandbox that was placed before.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] when it is gone, or its server lives another life.
    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Speaks with a sandbox of this name, whichever life its server lives: for whoever holds no lease.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] when there is none, or its server does not answer.
    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Every sandbox of this installation that the runtime knows of.
    ///
    /// # Errors
    /// See [`SandboxError`]; worth a retry.
    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError>;

    /// Freezes what runs in a sandbox; memory and files stay. One that is frozen is no error.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn pause(&self, _sandbox: &SandboxId) -> Result<(), SandboxError> {
        Err(self.unsupported("pause a sandbox"))
    }

    /// Lets a frozen sandbox go on. One that runs is no error.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn resume(&self, _sandbox: &SandboxId) -> Result<(), SandboxError> {
        Err(self.unsupported("resume a sandbox"))
    }

    /// Makes an image of a sandbox's files: sandboxes are placed from it as from any other. Answers with its name. What is
    /// mounted into the sandbox is not in it.
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

    /// Every snapshot of this installation; none where the runtime makes none.
    ///
    /// # Errors
    /// See [`SandboxError`]; worth a retry.
    async fn snapshots(&self) -> Result<Vec<Snapshot>, SandboxError> {
        Ok(Vec::new())
    }

    /// Removes a snapshot of this installation. One that is not there is no error.
    ///
    /// # Errors
    /// [`SandboxError::InUse`] while there are sandboxes or snapshots that came of it, [`SandboxError::NoSuchImage`] when
    /// the image is no snapshot of this installation, or see [`SandboxError`].
    async fn remove_snapshot(&self, _image: &str) -> Result<(), SandboxError> {
        Err(self.unsupported("remove a snapshot"))
    }

    /// What a sandbox uses now.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn usage(&self, _sandbox: &SandboxId) -> Result<ResourceUsage, SandboxError> {
        Err(self.unsupported("measure what a sandbox uses"))
    }

    /// The end of what a sandbox's server wrote, at most 64 KiB.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn logs(&self, _sandbox: &SandboxId) -> Result<String, SandboxError> {
        Err(self.unsupported("show what a sandbox's server wrote"))
    }

    /// The way to a sandbox's server itself, for whoever lends the sandbox to others. Does not look whether it is there.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn server_access(&self, _sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(self.unsupported("lend a sandbox to others"))
    }

    /// The error for what this runtime has no way to do.
    fn unsupported(&self, what: &'static str) -> SandboxError {
        SandboxError::Unsupported { runtime: self.runtime(), what }
    }

    /// Removes a sandbox and everything in it. One that is not there is no error.
    ///
    /// # Errors
    /// See [`SandboxError`]; worth a retry.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Waits until what abandoned starts have placed is removed: a host program that ends before that would leave it
    /// behind. Bounded as removals are.
    async fn wait_for_cleanup(&self);
}

/// A placed sandbox.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// What the log must hold to attach to it again.
    fn lease(&self) -> &SandboxLeased;

    /// Performs an action to its end. The same id never runs twice: if the sandbox knows it, this attaches, and
    /// output is heard from its beginning as far as it is held. Survives a connection that breaks. Dropping the
    /// future does not stop the action; [`Sandbox::cancel`] does.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] when the sandbox or its server is gone, and what became of the action is unknown.
    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError>;

    /// Ends what an action started: the whole process tree. The action's observation still comes. One that has
    /// ended, or was never sent, is no error.
    ///
    /// # Errors
    /// See [`SandboxError`].
    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError>;

    /// What the sandbox's server is and can do.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn info(&self) -> Result<ServerInfo, SandboxError> {
        Err(unsupported("tell what it is"))
    }

    /// Sets what everything that is started from then on has in its environment, in the place of what was set before.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn set_environment(&self, _variables: &BTreeMap<String, String>) -> Result<(), SandboxError> {
        Err(unsupported("set an environment"))
    }

    /// Runs a program without a terminal to its exit; with `stdin` it reads that. The same id never runs twice. Survives a
    /// connection that breaks, unless input was on its way: then the program is ended. Dropping the future does not stop
    /// it; [`Sandbox::kill_process`] does.
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

    /// Ends a program and all that came of it; its exit still comes. One that has ended is no error.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn kill_process(&self, _id: &ProcessId) -> Result<(), SandboxError> {
        Err(unsupported("run programs without a terminal"))
    }

    /// Opens a byte stream to something inside.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when nothing answers there, [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn open(&self, _target: &StreamTarget) -> Result<Box<dyn ByteStream>, SandboxError> {
        Err(unsupported("open a stream"))
    }

    /// The ports that something inside listens on.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn ports(&self) -> Result<Vec<ListeningPort>, SandboxError> {
        Err(unsupported("list its ports"))
    }

    /// Waits until something listens on a port; whether it does by then.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn wait_for_port(&self, _port: u16, _timeout: Duration) -> Result<bool, SandboxError> {
        Err(unsupported("wait for a port"))
    }

    /// What lies at a path inside, links followed; nothing when nothing does. A relative path begins where shells do.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn status(&self, _path: &str) -> Result<Option<FileStatus>, SandboxError> {
        Err(unsupported("look at files"))
    }

    /// What a file or folder inside holds.
    ///
    /// # Errors
    /// [`SandboxError::Unsupported`], or see [`SandboxError`].
    async fn download(&self, _path: &str, _kind: TransferKind) -> Result<ByteSource, SandboxError> {
        Err(unsupported("send files"))
    }

    /// Puts a file, or what an archive holds, at a path inside: whole, or not at all when the source fails. Folders on the
    /// way are made. The mode is a file's.
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
        Err(unsupported("take files"))
    }
}

/// The error for what a kind of sandbox has no way to do.
fn unsupported(what: &'static str) -> SandboxError {
    SandboxError::Unsupported { runtime: "of this sandbox", what }
}

/// Hears an action's output. An alias because `async_trait` would give the chunk's lifetime a name.
pub type OnOutput<'a> = dyn for<'chunk> Fn(OutputChunk<'chunk>) + Send + Sync + 'a;

/// What happens while a sandbox is placed.
#[derive(Debug, Clone, PartialEq)]
pub enum StartProgress {
    /// An image is pulled. Sizes in bytes; the total is known when all its layers are.
    Pulling {
        /// The image.
        image: String,
        /// What has come.
        received_bytes: u64,
        /// What there is.
        total_bytes: Option<u64>,
    },
    /// The sandbox is created and started.
    Starting,
    /// Its server is waited for.
    Connecting,
}

/// A piece of an action's output as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputChunk<'a> {
    /// Bytes as the terminal gave them.
    Bytes {
        /// How many bytes were before these.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Output that is no longer held.
    Gap {
        /// The first missing byte.
        from: u64,
        /// The first byte that is held again.
        to: u64,
    },
}
