//! Requests and responses for processes without a terminal.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ProcessId;

/// A process to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessRequest {
    /// The program and its arguments. A name without a slash is looked up in the process's own
    /// `PATH`.
    pub argv: Vec<String>,
    /// Environment variables to set or override.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether it inherits the server's environment. If not, it gets `env` and one variable of the
    /// server's.
    #[serde(default = "yes")]
    pub inherit_env: bool,
    /// The working directory, relative to the server's. `None` for the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `user` or `user:group`, each a name or a number. A number without an account needs a group.
    /// An account sets `HOME`, `USER`, `LOGNAME` and the supplementary groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its standard input.
    #[serde(default)]
    pub stdin: ProcessStdin,
    /// Initial standard input, in base64; at most 1 MiB of bytes. The end of input follows, unless
    /// `stdin` is a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Its resource limits.
    #[serde(default)]
    pub limits: ProcessLimits,
    /// After this time the process tree is killed. `None` for no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

impl ProcessRequest {
    /// Creates a request for a program with the server's environment, user and working directory,
    /// with empty standard input and no limits.
    pub fn new(argv: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            inherit_env: true,
            cwd: None,
            user: None,
            stdin: ProcessStdin::Null,
            stdin_base64: None,
            limits: ProcessLimits::default(),
            timeout_seconds: None,
        }
    }
}

fn yes() -> bool {
    true
}

/// The standard input of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessStdin {
    /// Empty.
    #[default]
    Null,
    /// The bytes of later requests, until one closes it.
    Pipe,
}

/// Resource limits that the kernel applies to each process of the tree separately. The exception is
/// `processes`, which counts all processes of the user and does not apply to root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessLimits {
    /// Maximum address space, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Maximum CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Maximum number of processes and threads of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Maximum number of open file descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Maximum length of a file that it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

/// The state of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessInfo {
    /// The id that the host chose.
    pub id: ProcessId,
    /// The kernel's process id.
    pub pid: i32,
    /// The program and its arguments, as requested.
    pub argv: Vec<String>,
    /// Whether it is running.
    pub state: ProcessState,
    /// Its exit. `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// Number of bytes written to stdout so far.
    pub stdout_bytes: u64,
    /// Number of bytes written to stderr so far.
    pub stderr_bytes: u64,
}

/// Whether a process is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It has not exited.
    Running,
    /// It has exited. Its child processes may still run.
    Exited,
    /// A value unknown to this version.
    #[serde(other)]
    Unknown,
}

/// The exit of a process. Has a code or a signal, unless it has an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessExit {
    /// The exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that terminated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it exited.
    pub reason: ExitReason,
    /// The server's failure, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the kernel's OOM killer was active while it ran. It may have killed another process
    /// of the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// CPU time of the process and of those of its children that it has waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
}

/// Why a process exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It exited by itself, or by a signal of any sender other than the server.
    Exited,
    /// The server killed it, on `DELETE` or at its own shutdown.
    Killed,
    /// The server killed it after its timeout.
    TimedOut,
    /// The server failed to watch it.
    Failed,
    /// A value unknown to this version.
    #[serde(other)]
    Unknown,
}

/// The CPU time of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessUsage {
    /// In user mode, in microseconds.
    pub user_us: u64,
    /// In kernel mode, in microseconds.
    pub system_us: u64,
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `"TERM"`, `"SIGTERM"` or 15.
    pub signal: SignalName,
    /// Its receivers.
    #[serde(default)]
    pub scope: SignalScope,
}

/// A signal, by name or number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum SignalName {
    /// A name from `kill -l`, with or without `SIG`.
    Name(String),
    /// The kernel's number.
    Number(i32),
}

impl fmt::Display for SignalName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(formatter, "`{name}`"),
            Self::Number(number) => number.fmt(formatter),
        }
    }
}

/// The receivers of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// Only the process.
    #[default]
    Process,
    /// The process and all its descendants, even if the process itself has exited.
    Tree,
}
