//! Why something about a process does not work. Statuses are chosen in `crate::api::error`.

use std::io;

use protocol::ProcessId;

/// What was wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// Asking again with the same id is a mistake of the client; a new process needs a new id.
    #[error("the process id `{0}` belongs to another process")]
    Conflict(ProcessId),
    /// It is not started a second time.
    #[error("the process `{0}` has ended and is no longer held")]
    Gone(ProcessId),
    #[error("there is no process `{0}`")]
    Unknown(ProcessId),
    /// Only what has ended can be acknowledged.
    #[error("the process `{0}` still runs")]
    StillRuns(ProcessId),
    /// Worth a retry when one of them has ended.
    #[error("{0} processes are running, no more are started")]
    Busy(usize),
    /// Nothing was started, and the id is free.
    #[error("field `{field}`: {problem}")]
    Invalid { field: &'static str, problem: String },
    /// Nothing was started, and the id is free.
    #[error("field `argv`: there is no program `{name}`{detail}")]
    NoProgram { name: String, detail: &'static str },
    /// Nothing was started, and the id is free.
    #[error("field `argv`: `{name}` cannot be started: {error}")]
    NotExecutable { name: String, error: io::Error },
    /// Nothing was started, and the id is free; worth a retry.
    #[error("the system starts no process now: {0}")]
    Short(io::Error),
    #[error("the process `{0}` was not started with a pipe as its stdin")]
    NoStdin(ProcessId),
    #[error("the process `{0}` reads no more: its stdin is closed")]
    StdinClosed(ProcessId),
    #[error("the process `{0}` has ended")]
    Ended(ProcessId),
}

impl ProcessError {
    pub(super) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }
}
