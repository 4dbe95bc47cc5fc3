//! The action server's description of itself, and its errors.

use serde::{Deserialize, Serialize};

use crate::ids::BootId;

/// The response to `GET /v1/info`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerInfo {
    /// The server's version.
    pub version: String,
    /// Identifies this run of the server.
    pub boot_id: BootId,
    /// The initial working directory of shells, against which relative paths are resolved;
    /// absolute.
    pub working_dir: String,
    /// Features that it supports in this sandbox.
    pub capabilities: Vec<Capability>,
    /// Its limits.
    pub limits: ServerLimits,
}

/// An optional feature of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Commands run in bash.
    Bash,
    /// Commands run in a POSIX shell, because bash is not installed.
    PosixShell,
    /// Reads, writes and edits files.
    Files,
    /// Starts processes without a terminal.
    Processes,
    /// Opens interactive terminals, and accepts an environment.
    Terminals,
    /// A capability unknown to this version.
    #[serde(other)]
    Unknown,
}

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerLimits {
    /// Maximum length of a request body, in bytes.
    pub body_bytes: u64,
    /// How much of the latest output of an action, or of each stream of a process, is retained, in
    /// bytes. Less if the disk is nearly full.
    pub output_bytes: u64,
    /// Maximum number of completed actions that are retained.
    pub ended_actions: u64,
    /// How long a completed action is retained, in seconds.
    pub retention_seconds: u64,
}

/// The body of an error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The error code, for programs.
    pub code: ErrorCode,
    /// The error message, which names the field concerned.
    pub detail: String,
}

/// A stable code for programs to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The key is missing or wrong. 403.
    Forbidden,
    /// The operating system denies this to the server's user. 403.
    Denied,
    /// The path is outside of the server's root. 403.
    OutsideRoot,
    /// The body or a parameter is malformed. 400 or 422.
    Invalid,
    /// The program to start does not exist. 422.
    NoProgram,
    /// The program exists, but its user may not execute it. 422.
    NotExecutable,
    /// The body exceeds its maximum length. 413.
    TooLarge,
    /// No such route, action, process or file. 404.
    NotFound,
    /// The id belongs to another action or process, its state does not allow this, or the path is
    /// taken. 409.
    Conflict,
    /// The action completed and is no longer retained. It does not run again. 410.
    Gone,
    /// The server is at its limit of concurrent work. 429.
    Busy,
    /// The range is outside of the file. 416.
    Range,
    /// The disk or the quota is full. 507.
    NoSpace,
    /// The server failed. 500.
    Internal,
    /// A code unknown to this version.
    #[serde(other)]
    Unknown,
}
