//! The requests and responses of a runtime API, as in V0. Our extensions are optional on both
//! sides, because V0's services and clients ignore unknown fields.
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

use engine::sandbox::{Lifetime, ResourceLimits, SandboxState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The header with the key of a runtime API.
pub(crate) const API_KEY_HEADER: &str = "x-api-key";

/// The protocol of an upgraded request, which is a stream to an action server.
pub(crate) const STREAM_PROTOCOL: &str = "glovebox-stream";

#[derive(Serialize, Deserialize)]
pub(crate) struct StartRequest {
    /// `None` for the default of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// The command that V0's services run in the image. Ignored by a sandbox host, which has its
    /// own action server.
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
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<WireLifetime>,
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<WireLimits>,
}

fn one() -> f64 {
    1.0
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RuntimeRequest {
    pub(crate) runtime_id: String,
}

/// A sandbox of a runtime API.
#[derive(Serialize, Deserialize)]
pub(crate) struct Runtime {
    pub(crate) runtime_id: String,
    #[serde(default)]
    pub(crate) session_id: String,
    /// The URL of its action server. V0's clients send their requests to paths below it.
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
    /// An extension: the URL at which a request is upgraded to a stream to the action server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream_url: Option<String>,
    /// An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<WireLifetime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// An extension, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<String>,
}

/// The sandboxes of a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct Runtimes {
    pub(crate) runtimes: Vec<Runtime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Starting,
    Running,
    Paused,
    Stopped,
    /// Unknown to this version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl From<SandboxState> for Status {
    fn from(state: SandboxState) -> Self {
        match state {
            SandboxState::Running => Self::Running,
            SandboxState::Paused => Self::Paused,
            SandboxState::Ended => Self::Stopped,
        }
    }
}

/// [`Lifetime`] on the wire.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireLifetime {
    Conversation,
    UntilRemoved,
    Until(#[serde(with = "rfc3339")] Timestamp),
}

impl From<Lifetime> for WireLifetime {
    fn from(lifetime: Lifetime) -> Self {
        match lifetime {
            Lifetime::Conversation => Self::Conversation,
            Lifetime::UntilRemoved => Self::UntilRemoved,
            Lifetime::Until(time) => Self::Until(time),
        }
    }
}

impl From<WireLifetime> for Lifetime {
    fn from(lifetime: WireLifetime) -> Self {
        match lifetime {
            WireLifetime::Conversation => Self::Conversation,
            WireLifetime::UntilRemoved => Self::UntilRemoved,
            WireLifetime::Until(time) => Self::Until(time),
        }
    }
}

/// A time as text.
mod rfc3339 {
    use jiff::Timestamp;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Timestamp,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// [`ResourceLimits`] on the wire.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct WireLimits {
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: f64,
    pub(crate) pids: u32,
    pub(crate) disk_bytes: u64,
}

impl From<ResourceLimits> for WireLimits {
    fn from(
        ResourceLimits {
            memory_bytes,
            cpus,
            pids,
            disk_bytes,
        }: ResourceLimits,
    ) -> Self {
        Self {
            memory_bytes,
            cpus,
            pids,
            disk_bytes,
        }
    }
}

impl From<WireLimits> for ResourceLimits {
    fn from(
        WireLimits {
            memory_bytes,
            cpus,
            pids,
            disk_bytes,
        }: WireLimits,
    ) -> Self {
        Self {
            memory_bytes,
            cpus,
            pids,
            disk_bytes,
        }
    }
}

/// The body of an error response. V0's services send only `detail`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct ApiErrorBody {
    #[serde(default)]
    pub(crate) code: ApiErrorCode,
    /// A message for users.
    #[serde(default)]
    pub(crate) detail: String,
    /// The end of the logs of a sandbox that did not start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) logs: String,
}

/// The kind of an error, with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApiErrorCode {
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
