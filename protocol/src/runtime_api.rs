//! The requests and responses of a runtime API, as in V0. Our extensions are optional on both
//! sides, because V0's services and clients ignore unknown fields. The crate
//! `sandbox-remote` sends the requests, and `sandbox-host` serves them.
//!
//! | route | request → response |
//! |---|---|
//! | `POST /start` | [`StartRequest`] → [`Runtime`]; replaces the existing one of the session |
//! | `POST /stop`, `/pause`, `/resume` | [`RuntimeRequest`] → [`Runtime`], or any JSON |
//! | `GET /sessions/{session_id}` | → [`Runtime`]; 404 if there is none |
//! | `GET /runtime/{runtime_id}` | → [`Runtime`] with `pod_status` |
//! | `GET /list` | → [`Runtimes`] |
//! | `GET /registry_prefix` | → `{registry_prefix}` |
//! | `GET /image_exists?image=` | → `{exists}` |
//!
//! The key is in the header [`API_KEY_HEADER`]. The body of an error response is an
//! [`ApiErrorBody`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The header with the key of a runtime API.
pub const API_KEY_HEADER: &str = "x-api-key";

/// The protocol of an upgraded request, which is a stream to an action server.
pub const STREAM_PROTOCOL: &str = "glovebox-stream";

/// Request to create a sandbox.
#[derive(Serialize, Deserialize)]
pub struct StartRequest {
    /// `None` for the default of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The command that V0's services run in the image. Ignored by a sandbox host, which has its
    /// own action server.
    #[serde(default, skip_deserializing)]
    pub command: Vec<String>,
    /// The folder of `command`. Ignored by a sandbox host.
    #[serde(default, skip_deserializing)]
    pub working_dir: String,
    /// Environment variables of what runs in the sandbox.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The client's name of the sandbox: its conversation.
    pub session_id: String,
    /// Memory, CPUs and disk space, as a multiple of the service's default.
    #[serde(default = "one")]
    pub resource_factor: f64,
    /// Container runtime, such as `sysbox-runc`. `None` for the default of the service. Ignored by
    /// a sandbox host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<RuntimeLifetime>,
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceLimits>,
}

fn one() -> f64 {
    1.0
}

/// Request to stop, pause or resume a sandbox.
#[derive(Serialize, Deserialize)]
pub struct RuntimeRequest {
    /// The service's id of the sandbox.
    pub runtime_id: String,
}

/// A sandbox of a runtime API.
#[derive(Serialize, Deserialize)]
pub struct Runtime {
    /// The service's id of the sandbox.
    pub runtime_id: String,
    /// The client's name of the sandbox: its conversation.
    #[serde(default)]
    pub session_id: String,
    /// The URL of its action server. V0's clients send their requests to paths below it.
    #[serde(default)]
    pub url: String,
    /// The key of its action server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_api_key: Option<String>,
    /// [`RuntimeStatus::Unknown`] if the service does not report it.
    #[serde(default)]
    pub status: RuntimeStatus,
    /// `ready`, `pending`, `failed`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_status: Option<String>,
    /// An extension: the URL at which a request is upgraded to a stream to the action server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_url: Option<String>,
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<RuntimeLifetime>,
    /// The image that it was created from. `None` if the service does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An extension, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// The sandboxes of a key.
#[derive(Serialize, Deserialize)]
pub struct Runtimes {
    /// In no particular order.
    pub runtimes: Vec<Runtime>,
}

/// State of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeStatus {
    /// It is being created, and has no usable server yet.
    Starting,
    /// Its server can be reached.
    Running,
    /// It can be resumed.
    Paused,
    /// It has ended.
    Stopped,
    /// Unknown to this version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// When a sandbox is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeLifetime {
    /// Once its conversation no longer needs it.
    Conversation,
    /// When a user removes it.
    UntilRemoved,
    /// At this time, in RFC 3339.
    Until(String),
}

/// The resource limits of a sandbox, for runtimes that can enforce them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Number of CPUs.
    pub cpus: f64,
    /// Number of processes and threads.
    pub pids: u32,
    /// Size of its writable disk, in bytes.
    pub disk_bytes: u64,
}

impl Default for ResourceLimits {
    /// Enough for a build, and low enough to protect the host from a fork bomb or a leak.
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            cpus: 2.0,
            pids: 4096,
            disk_bytes: 20 << 30,
        }
    }
}

/// The body of an error response. V0's services send only `detail`.
#[derive(Default, Serialize, Deserialize)]
pub struct ApiErrorBody {
    /// [`ApiErrorCode::Unknown`] from a service of V0.
    #[serde(default)]
    pub code: ApiErrorCode,
    /// A message for users.
    #[serde(default)]
    pub detail: String,
    /// The end of the logs of a sandbox that did not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub logs: String,
}

/// The kind of an error, with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiErrorCode {
    /// The key is missing or wrong. 403.
    Forbidden,
    /// The request is malformed, or exceeds a limit. 400, 413.
    Invalid,
    /// No such route, or no such sandbox of this key. 404.
    NotFound,
    /// The sandbox is being started or removed. 409; can be retried.
    Conflict,
    /// The sandbox or its server is gone. 410.
    Lost,
    /// The sandbox is paused. 503; can be retried after it is resumed.
    Paused,
    /// The image does not exist. 422.
    NoSuchImage,
    /// The sandbox did not start. 422.
    StartFailed,
    /// The quota of the key is exhausted. 429; can be retried.
    QuotaOfKey,
    /// The quota of all keys together is exhausted. 429; can be retried.
    QuotaOfAll,
    /// Too many concurrent requests. 429; can be retried.
    Busy,
    /// The runtime does not support the operation. 501.
    Unsupported,
    /// The runtime does not respond, or fails. 502, 503; can be retried.
    Unavailable,
    /// The sandbox does not respond, and may still run. 503, 504; can be retried.
    Unreachable,
    /// Missing, or unknown to this version.
    #[default]
    #[serde(other)]
    Unknown,
}
