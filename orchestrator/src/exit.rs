//! Exit codes.

use std::process::ExitCode;

use accounts::AccountError;
use conversations::{ConversationsError, ServiceError};
use engine::sandbox::SandboxError;
use storage::postgres::PostgresOpenError;
use storage::{BlobStoreError, OpenError};

use crate::config::ConfigError;

/// Outcome of the program, as its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: the task is finished.
    Finished,
    /// 1: the task or the command failed.
    Failed,
    /// 2, like clap: the command line or the configuration is invalid.
    Usage,
    /// 3: the agent reached a limit.
    Limit,
    /// 4: the agent waits for a message or a confirmation.
    Waiting,
    /// 130: Ctrl-C or a termination signal.
    Interrupted,
    /// The exit code of the command in the sandbox.
    OfCommand(u8),
}

/// Exit code after Ctrl-C, as in a shell.
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

/// An error in the command line or the configuration, which the user can correct.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// Returns what the user can do about an error whose text does not say it, to be appended.
pub(crate) fn next_step(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| match cause.downcast_ref()? {
        ConversationsError::Unknown(_) => Some(": `glovebox conversations ls` lists all"),
        ConversationsError::Locked(_) => Some(
            ": stop it there first, a run with ^C, a conversation of `glovebox serve` on its page",
        ),
        _ => None,
    })
}

/// The exit code of an error.
pub(crate) fn of_error(error: &anyhow::Error) -> Exit {
    let is_usage = error.chain().any(|cause| {
        let is_bad_request = |cause: &ConversationsError| cause.is_bad_request();
        cause.is::<UsageError>()
            || cause.is::<ConfigError>()
            || cause.is::<BlobStoreError>()
            || matches!(cause.downcast_ref(), Some(SandboxError::Invalid { .. }))
            || matches!(cause.downcast_ref(), Some(OpenError::TooNew { .. }))
            || cause
                .downcast_ref::<PostgresOpenError>()
                .is_some_and(PostgresOpenError::is_permanent)
            || cause
                .downcast_ref::<ConversationsError>()
                .is_some_and(is_bad_request)
            || cause
                .downcast_ref::<AccountError>()
                .is_some_and(AccountError::is_bad_request)
            || cause
                .downcast_ref::<ServiceError>()
                .is_some_and(|error| error.kind.is_bad_request())
    });
    if is_usage { Exit::Usage } else { Exit::Failed }
}
