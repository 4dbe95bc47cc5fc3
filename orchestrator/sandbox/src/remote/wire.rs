//! What crosses between a runtime API and its clients, in V0's words. Ours beside them are optional on both sides: V0's
//! services and clients pass over what they do not know.
//!
//! | route | request → response |
//! |---|---|
//! | `POST /start` | [`StartRequest`] → [`Runtime`]; one that the session had before is replaced |
//! | `POST /stop`, `/pause`, `/resume` | [`RuntimeRequest`] → [`Runtime`], or anything |
//! | `GET /sessions/{session_id}` | → [`Runtime`]; 404 when there is none |
//! | `GET /runtime/{runtime_id}` | → [`Runtime`] with `pod_status` |
//! | `GET /list` | → [`Runtimes`] |
//! | `GET /registry_prefix` | → `{registry_prefix}` |
//! | `GET /image_exists?image=` | → `{exists}` |
//!
//! The key is in the header [`API_KEY_HEADER`]. An error is an [`ErrorAnswer`] with a fitting status.

use std::collections::BTreeMap;

use engine::sandbox::{Lifetime, ResourceLimits, SandboxState};
use serde::{Deserialize, Serialize};

/// The header of a runtime API's key.
pub(crate) const API_KEY_HEADER: &str = "x-api-key";

/// The protocol to which a request for a stream to an action server is upgraded.
pub(crate) const STREAM_PROTOCOL: &str = "glovebox-stream";

/// What is to be started.
#[derive(Serialize, Deserialize)]
pub(crate) struct StartRequest {
    /// Nothing: the service's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// What V0's services run in it. Ours brings its own server.
    #[serde(default, skip_deserializing)]
    pub(crate) command: Vec<String>,
    #[serde(default, skip_deserializing)]
    pub(crate) working_dir: String,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) session_id: String,
    #[serde(default = "one")]
    pub(crate) resource_factor: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runtime_class: Option<String>,
    /// Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<Stay>,
    /// Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<Bounds>,
}

fn one() -> f64 {
    1.0
}

/// Which runtime is meant.
#[derive(Serialize, Deserialize)]
pub(crate) struct RuntimeRequest {
    pub(crate) runtime_id: String,
}

/// A sandbox as a runtime API tells it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Runtime {
    pub(crate) runtime_id: String,
    #[serde(default)]
    pub(crate) session_id: String,
    /// Where its action server is reached; V0's plain requests go to paths below it.
    #[serde(default)]
    pub(crate) url: String,
    /// The key of its action server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_api_key: Option<String>,
    #[serde(default)]
    pub(crate) status: Status,
    /// `ready`, `pending`, `failed`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_status: Option<String>,
    /// Ours: where a request is upgraded to a stream to the action server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_url: Option<String>,
    /// Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<Stay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Ours: in RFC 3339's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<String>,
}

/// The sandboxes of a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Runtimes {
    pub(crate) runtimes: Vec<Runtime>,
}

/// What a sandbox does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Starting,
    Running,
    Paused,
    Stopped,
    /// One that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl From<SandboxState> for Status {
    fn from(condition: SandboxState) -> Self {
        match condition {
            SandboxState::Running => Self::Running,
            SandboxState::Paused => Self::Paused,
            SandboxState::Ended => Self::Stopped,
        }
    }
}

/// How long a sandbox stays, as `Lifetime` says.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stay {
    Conversation,
    UntilRemoved,
}

impl From<Lifetime> for Stay {
    fn from(lifetime: Lifetime) -> Self {
        match lifetime {
            Lifetime::Conversation => Self::Conversation,
            Lifetime::UntilRemoved => Self::UntilRemoved,
        }
    }
}

impl From<Stay> for Lifetime {
    fn from(stay: Stay) -> Self {
        match stay {
            Stay::Conversation => Self::Conversation,
            Stay::UntilRemoved => Self::UntilRemoved,
        }
    }
}

/// What a sandbox may use, as `ResourceLimits` says.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: f64,
    pub(crate) pids: u32,
    pub(crate) disk_bytes: u64,
}

impl From<ResourceLimits> for Bounds {
    fn from(ResourceLimits { memory_bytes, cpus, pids, disk_bytes }: ResourceLimits) -> Self {
        Self { memory_bytes, cpus, pids, disk_bytes }
    }
}

impl From<Bounds> for ResourceLimits {
    fn from(Bounds { memory_bytes, cpus, pids, disk_bytes }: Bounds) -> Self {
        Self { memory_bytes, cpus, pids, disk_bytes }
    }
}

/// How a runtime API says no. V0's services send only the sentence.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct ErrorAnswer {
    /// For programs.
    #[serde(default)]
    pub(crate) code: ApiErrorCode,
    /// For people.
    #[serde(default)]
    pub(crate) detail: String,
    /// The end of what a sandbox wrote that did not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) logs: String,
}

/// What programs may branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApiErrorCode {
    /// The key is missing or wrong. 403.
    Forbidden,
    /// The request is malformed, or asks for more than one may have. 400, 413.
    Invalid,
    /// No such route, or no such sandbox of this key. 404.
    NotFound,
    /// The sandbox is being started or removed. 409; worth a retry.
    Conflict,
    /// The sandbox or its server is gone. 410.
    Lost,
    /// The sandbox is frozen. 503; worth a retry when it was resumed.
    Paused,
    /// There is no such image. 422.
    NoSuchImage,
    /// The sandbox did not start. 422.
    StartFailed,
    /// The key has as many sandboxes as it may. 429; worth a retry.
    QuotaOfKey,
    /// All keys together have as many sandboxes as they may. 429; worth a retry.
    QuotaOfAll,
    /// As much as the service takes is under way. 429; worth a retry.
    Busy,
    /// The runtime cannot do that. 501.
    Unsupported,
    /// The runtime does not answer, or fails. 502, 503; worth a retry.
    Unavailable,
    /// One that this version does not know, or none.
    #[default]
    #[serde(other)]
    Unknown,
}
