//! How placing a sandbox or speaking with it fails.

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
    /// The sandbox is there and frozen: nothing in it answers before it is resumed.
    #[error("the sandbox is paused: {detail}")]
    Paused {
        /// What was found.
        detail: String,
    },
    /// This runtime cannot do what it was asked for.
    #[error("the runtime {runtime} cannot {what}")]
    Unsupported {
        /// The runtime's name.
        runtime: &'static str,
        /// What it was asked for: `pause a sandbox`.
        what: &'static str,
    },
    /// What is to be removed is needed by others. May be tried again when they are gone.
    #[error("{what} is in use: {detail}")]
    InUse {
        /// What was to be removed.
        what: String,
        /// By whom.
        detail: String,
    },
    /// The server refused the request.
    #[error("the action server refuses: {detail}")]
    Refused {
        /// Its sentence.
        detail: String,
    },
    /// The program that was to be started is not there, or cannot be run. Nothing was started.
    #[error("{detail}")]
    NoProgram {
        /// The server's sentence, with the program's name.
        detail: String,
        /// Whether it is there.
        exists: bool,
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
