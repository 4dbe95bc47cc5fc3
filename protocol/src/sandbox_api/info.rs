//! What a server is and can do, and how it says no.

use serde::{Deserialize, Serialize};

use crate::ids::BootId;

/// The answer to `GET /v1/info`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerInfo {
    /// The server's version.
    pub version: String,
    /// This life of the server.
    pub boot_id: BootId,
    /// Where shells begin and relative paths are resolved first; absolute.
    pub working_dir: String,
    /// What it can do here.
    pub capabilities: Vec<Capability>,
    /// What it bounds.
    pub limits: ServerLimits,
}

/// Something a server may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Commands run in bash.
    Bash,
    /// Commands run in a POSIX shell: there is no bash.
    PosixShell,
    /// Files are read, written and edited.
    Files,
    /// Processes are started without a terminal.
    Processes,
    /// Terminals for people, and an environment that can be set.
    Terminals,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The server's bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerLimits {
    /// The longest request body, in bytes.
    pub body_bytes: u64,
    /// How much of an action's latest output, and of each stream of a process, is held, in bytes; less when the disk is
    /// short.
    pub output_bytes: u64,
    /// How many ended actions are held.
    pub ended_actions: u64,
    /// How long an ended action is held, in seconds.
    pub retention_seconds: u64,
}

/// How the server says no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what was wrong, with which field.
    pub detail: String,
}

/// What programs may branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The key is missing or wrong. 403.
    Forbidden,
    /// The system lets the server's user not do that. 403.
    Denied,
    /// The server keeps its files in a root, and the path is not beneath it. 403.
    OutsideRoot,
    /// The body or a parameter is malformed. 400 or 422.
    Invalid,
    /// The program that is to be started is not there. 422.
    NoProgram,
    /// It is there, and cannot be run by who is to run it. 422.
    NotExecutable,
    /// The body is longer than it may be. 413.
    TooLarge,
    /// No such route, or no action or process with this id, or no such file. 404.
    NotFound,
    /// The id belongs to another action or process, its state does not allow this, or something else is at the path. 409.
    Conflict,
    /// The action ended and is no longer held. It is not run again. 410.
    Gone,
    /// As much as the server takes is already running. 429.
    Busy,
    /// The range is not within the file. 416.
    Range,
    /// The disk or the quota is full. 507.
    NoSpace,
    /// The server failed. 500.
    Internal,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}
