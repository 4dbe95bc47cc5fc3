//! TCP ports inside the sandbox.

use serde::{Deserialize, Serialize};

/// A TCP port with a listener: an element of the response to `GET /v1/ports`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListeningPort {
    /// The port number.
    pub port: u16,
    /// The local addresses it is bound to. `0.0.0.0` and `::` mean every address.
    pub addresses: Vec<String>,
    /// The listening processes that the server is allowed to see.
    pub processes: Vec<PortProcess>,
}

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortProcess {
    /// Its process id inside the sandbox.
    pub pid: i32,
    /// Its name as the kernel reports it: at most 15 bytes.
    pub name: String,
}

/// The response to `GET /v1/ports/{port}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The requested port.
    pub port: u16,
    /// Whether a process listens on it.
    pub listening: bool,
}
