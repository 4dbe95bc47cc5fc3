//! The seam to sandboxes: a provider places an action server and hands back a way to speak with it.

use std::path::PathBuf;

use async_trait::async_trait;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, ConversationId, Observation, SandboxId};

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

    /// Removes a sandbox and everything in it. One that is not there is no error.
    ///
    /// # Errors
    /// See [`SandboxError`]; worth a retry.
    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError>;

    /// Waits until what abandoned starts have placed is removed: a host program that ends before that would leave it
    /// behind. Bounded as removals are.
    async fn settle(&self);
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
}

/// Hears an action's output. An alias because `async_trait` would give the chunk's lifetime a name.
pub type OnOutput<'a> = dyn for<'chunk> Fn(OutputChunk<'chunk>) + Send + Sync + 'a;

/// What is to be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// Whose sandbox it is.
    pub conversation: ConversationId,
    /// The image, for runtimes that have one; nothing: the runtime's default.
    pub image: Option<String>,
    /// A folder of the host that the agent works in; nothing: a fresh one inside.
    pub workspace: Option<PathBuf>,
    /// What it may use of the host.
    pub resources: Resources,
}

/// What a sandbox may use of its host, for runtimes that can bound it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Processors.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
}

impl Default for Resources {
    /// Enough for a build, and no fork bomb or leak reaches the host.
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, cpus: 2.0, pids: 4096 }
    }
}

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

/// How placing a sandbox or speaking with it failed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The runtime itself does not answer: no engine, no host. May be tried again when it does.
    #[error("the runtime {runtime} is not available: {detail}")]
    RuntimeUnavailable {
        /// The runtime's name.
        runtime: &'static str,
        /// What was tried and what came of it.
        detail: String,
    },
    /// There is no such image, here or where it would be pulled from.
    #[error("the image {image} does not exist: {detail}")]
    NoSuchImage {
        /// The image as it was asked for.
        image: String,
        /// What the engine said.
        detail: String,
    },
    /// The sandbox could not be started. Not worth a retry with the same spec.
    #[error("starting the sandbox: {detail}")]
    Start {
        /// What failed.
        detail: String,
        /// The end of what the sandbox wrote; empty when it wrote nothing.
        logs: String,
    },
    /// The sandbox or its server is gone; what ran in it is gone too.
    #[error("the sandbox is lost: {detail}")]
    Lost {
        /// What was found.
        detail: String,
    },
    /// The server refused the request.
    #[error("the action server refuses: {detail}")]
    Refused {
        /// Its sentence.
        detail: String,
    },
    /// The server's answer is not one.
    #[error("the action server answered with something that is not an answer: {detail}")]
    Malformed {
        /// What was wrong.
        detail: String,
    },
    /// Something on the host failed.
    #[error("{doing}")]
    Host {
        /// What was being done, to what.
        doing: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}
