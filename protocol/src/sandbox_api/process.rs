//! What is asked about processes that have no terminal, and what is answered.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ProcessId;

/// What to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessRequest {
    /// The program and its arguments. A name without a slash is looked for on the process's own `PATH`.
    pub argv: Vec<String>,
    /// Added to the environment, or replacing what is there.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether it begins with the server's environment. Without, it gets `env` and one variable of the server's.
    #[serde(default = "yes")]
    pub inherit_env: bool,
    /// Where it begins; relative to the server's working directory, which it is when this is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `user`, or `user:group`, each a name or a number. A number that no account has needs its group. With an
    /// account come its home (as `HOME`), its name (as `USER` and `LOGNAME`) and its other groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it reads.
    #[serde(default)]
    pub stdin: ProcessStdin,
    /// What it reads first, in base64, at most 1 MiB of bytes. After it comes the end, unless `stdin` is a pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// What it may use.
    #[serde(default)]
    pub limits: ProcessLimits,
    /// Then its whole tree is killed; never without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
}

impl ProcessRequest {
    /// Of a program that begins as the server would begin it, with nothing to read and no limit.
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

/// What a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessStdin {
    /// Nothing.
    #[default]
    Null,
    /// What is sent to it, until it is closed.
    Pipe,
}

/// The kernel's limits, for each process of the tree by itself but `processes`, which counts those of its user (and does
/// not hold root).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessLimits {
    /// Address space, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time on a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Processes and threads of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Open descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// The length of a file that it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessInfo {
    /// The host's name for it.
    pub id: ProcessId,
    /// The kernel's.
    pub pid: i32,
    /// As it was asked for.
    pub argv: Vec<String>,
    /// Whether it runs.
    pub state: ProcessState,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// When it was started, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// How much it has written to stdout so far.
    pub stdout_bytes: u64,
    /// How much it has written to stderr so far.
    pub stderr_bytes: u64,
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It has not ended.
    Running,
    /// It has ended; what it started may go on.
    Exited,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

/// How a process ended. There is a code or a signal, unless there is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessExit {
    /// What it exited with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Who ended it.
    pub reason: ExitReason,
    /// What the server could not do, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kernel has killed for lack of memory while it ran: it, or something else that is run here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// What it used, with those of its children that it has waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
}

/// Who ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Itself, or a signal, whoever sent it.
    Exited,
    /// `DELETE`, or the server's own end.
    Killed,
    /// Its timeout.
    TimedOut,
    /// The server failed to watch it.
    Failed,
    /// One that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a process used of the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessUsage {
    /// In its own code, in microseconds.
    pub user_us: u64,
    /// In the kernel, in microseconds.
    pub system_us: u64,
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `"TERM"`, `"SIGTERM"` or 15.
    pub signal: SignalName,
    /// To whom.
    #[serde(default)]
    pub scope: SignalScope,
}

/// A signal by its name or number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum SignalName {
    /// As `kill -l` lists it, with or without `SIG`.
    Name(String),
    /// As the kernel numbers it.
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

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// The process alone.
    #[default]
    Process,
    /// It and everything that came of it; also when it has ended itself.
    Tree,
}
