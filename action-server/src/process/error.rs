//! Errors of processes. The module `api::error` maps them to HTTP statuses.

use std::io;

use protocol::ProcessId;

/// Reason why a process is not started, found or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// Not worth a retry: a new process needs a new id.
    #[error("the process id `{0}` belongs to another process")]
    Conflict(ProcessId),
    /// Not worth a retry: it is not started again.
    #[error("the process `{0}` has exited and is no longer retained")]
    Gone(ProcessId),
    #[error("there is no process `{0}`")]
    Unknown(ProcessId),
    /// Only a process that has exited can be acknowledged.
    #[error("the process `{0}` is still running")]
    StillRuns(ProcessId),
    /// Worth a retry when a process has exited.
    #[error("{0} processes are running, which is the maximum")]
    Busy(usize),
    /// Not started; the id can be used again.
    #[error("field `{field}`: {problem}")]
    Invalid {
        field: &'static str,
        problem: String,
    },
    /// Not started; the id can be used again.
    #[error("field `argv`: there is no program `{name}`{detail}")]
    NoProgram { name: String, detail: String },
    /// Not started; the id can be used again.
    #[error("field `argv`: `{name}` cannot be started: {error}")]
    NotExecutable { name: String, error: io::Error },
    /// Not started; the id can be used again. Worth a retry.
    #[error("the system has no resources for a new process: {0}")]
    Short(io::Error),
    #[error("the process `{0}` was started without a pipe as its stdin")]
    NoStdin(ProcessId),
    #[error("the stdin of the process `{0}` is closed")]
    StdinClosed(ProcessId),
    #[error("the process `{0}` has exited")]
    Ended(ProcessId),
}

impl ProcessError {
    pub(super) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            problem: problem.into(),
        }
    }
}
