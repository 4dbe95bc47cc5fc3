//! The sandbox of a conversation.

use serde::{Deserialize, Serialize};

use crate::ids::SandboxId;

/// The sandbox of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxInfo {
    /// Whether the conversation uses it.
    pub status: SandboxStatus,
    /// The runtime that it was created by. `None` if there is no sandbox.
    pub runtime: Option<String>,
    /// Its id, as the runtime knows it. `None` if there is no sandbox.
    pub id: Option<SandboxId>,
    /// The folder of the workspace in the sandbox. `None` if there is no sandbox.
    pub working_dir: Option<String>,
}

/// Whether a conversation uses its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    /// There is none. The next command that needs one creates it.
    Absent,
    /// It is being created or reached.
    Starting,
    /// The conversation runs, and is connected to it.
    Connected,
    /// This server does not use it at the moment, and the conversation continues in it. It may be
    /// paused.
    Kept,
    /// A status unknown to this version.
    #[serde(other)]
    Unknown,
}

/// The resource usage of a sandbox at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxUsage {
    /// Average number of busy CPUs over the latest interval measured.
    pub cpus: f64,
    /// Memory, in bytes, without what the kernel can reclaim.
    pub memory_bytes: u64,
    /// The memory limit, in bytes. `None` if there is none.
    pub memory_limit_bytes: Option<u64>,
    /// Number of processes and threads. `None` if the runtime does not count them.
    pub pids: Option<u64>,
}

/// The ports on which programs in a sandbox listen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxPortList {
    /// The ports, sorted by number.
    pub ports: Vec<SandboxPort>,
}

/// A port on which a program in a sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxPort {
    /// Its number.
    pub port: u16,
    /// Names of the listening processes, as far as they are known.
    pub processes: Vec<String>,
    /// A link that opens it in a browser. `None` in process, for a key that may only read, and if
    /// the server has no host names for ports.
    pub link: Option<String>,
}

/// The latest logs of a sandbox's action server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxLogs {
    /// The last 64 KiB, without secrets.
    pub text: String,
}
