//! Errors of sandboxes and their providers.

/// An error of creating a sandbox or of communicating with it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The runtime does not respond, for example because no container engine runs. A retry may
    /// succeed once it does.
    #[error("the runtime {runtime} is not available: {detail}")]
    RuntimeUnavailable {
        /// The runtime's name.
        runtime: &'static str,
        /// What was tried, and the cause of the failure.
        detail: String,
    },
    /// The image exists neither locally nor at its registry.
    #[error("the image {image} is not on this machine and cannot be pulled: {detail}")]
    NoSuchImage {
        /// The requested image.
        image: String,
        /// The message of the engine.
        detail: String,
    },
    /// The sandbox could not be started. A retry with the same spec will not succeed.
    #[error("cannot start the sandbox: {detail}")]
    Start {
        /// What failed.
        detail: String,
        /// The end of the sandbox's logs; empty if there are none.
        logs: String,
    },
    /// The sandbox or its action server is gone, with everything that ran in it.
    #[error("the sandbox is lost: {detail}")]
    Lost {
        /// The cause.
        detail: String,
    },
    /// The sandbox cannot be reached, and may still exist with what runs in it, as during an outage
    /// of the network or of its runtime. It can be attached to later.
    #[error("the sandbox cannot be reached, and may still be running: {detail}")]
    Unreachable {
        /// The cause.
        detail: String,
    },
    /// The sandbox exists but is paused. It does not respond until it is resumed.
    #[error("the sandbox is paused: {detail}")]
    Paused {
        /// The cause.
        detail: String,
    },
    /// This runtime does not support the operation.
    #[error("the runtime {runtime} cannot {what}")]
    Unsupported {
        /// The runtime's name.
        runtime: &'static str,
        /// The operation, such as `pause a sandbox`.
        what: &'static str,
    },
    /// The object to remove is in use. A retry may succeed once it is not.
    #[error("{what} is in use: {detail}")]
    InUse {
        /// The object to remove.
        what: String,
        /// What uses it.
        detail: String,
    },
    /// The action server rejected the request.
    #[error("the action server refuses: {detail}")]
    Refused {
        /// The message of the server.
        detail: String,
    },
    /// The program to start does not exist or is not executable. Nothing was started.
    #[error("{detail}")]
    NoProgram {
        /// The message of the server, with the program's name.
        detail: String,
        /// Whether the program exists.
        exists: bool,
    },
    /// The request names what does not exist or has no valid value, such as a user or a folder.
    /// Nothing was started.
    #[error("{detail}")]
    Invalid {
        /// The value, and what is wrong with it.
        detail: String,
    },
    /// The response of the action server is malformed.
    #[error("the action server sent a malformed response: {detail}")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// An operation on the host, or of an engine on an existing sandbox, failed. A retry may
    /// succeed.
    #[error("cannot {operation} {subject}")]
    Host {
        /// The operation, such as `remove`.
        operation: &'static str,
        /// What the operation is applied to, such as `the container c1`.
        subject: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl SandboxError {
    /// Whether the connection to the sandbox has ended for good.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Unreachable { .. })
    }

    /// Builds a [`Self::Host`].
    pub fn host(
        operation: &'static str,
        subject: impl std::fmt::Display,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::Host {
            operation,
            subject: subject.to_string(),
            source: source.into(),
        }
    }
}
