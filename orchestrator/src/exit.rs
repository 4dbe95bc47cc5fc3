//! How the program ends, as scripts see it.

use std::process::ExitCode;

use conversations::ConversationsError;

use crate::config::ConfigError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The task is finished. 0.
    Finished,
    /// It failed. 1.
    Failed,
    /// The command line or the configuration is wrong. 2, as clap ends too.
    Usage,
    /// A limit stopped the agent. 3.
    Limit,
    /// The agent waits for an answer, or for the user's word on an action. 4.
    Waiting,
    /// ^C, or a request to end. 130.
    Interrupted,
    /// What the command in the sandbox ended with.
    OfCommand(u8),
}

/// As a shell tells the end by ^C.
pub(crate) const INTERRUPTED: u8 = 130;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Finished => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Limit => 3,
            Exit::Waiting => 4,
            Exit::Interrupted => INTERRUPTED,
            Exit::OfCommand(code) => code,
        })
    }
}

/// An error in what the user wrote; it is mended by writing something else.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// How the program ends after an error.
pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
    let is_usage = error.chain().any(|cause| {
        let is_bad_request = |cause: &ConversationsError| cause.is_bad_request();
        cause.is::<UsageError>()
            || cause.is::<ConfigError>()
            || cause.downcast_ref::<ConversationsError>().is_some_and(is_bad_request)
    });
    if is_usage { Exit::Usage } else { Exit::Failed }
}
