//! The ports of a sandbox.

use serde::{Deserialize, Serialize};

/// A TCP port that something listens on: one of the answers to `GET /v1/ports`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListeningPort {
    /// Its number.
    pub port: u16,
    /// The local addresses that it is bound to; `0.0.0.0` and `::` are all there are.
    pub addresses: Vec<String>,
    /// Who listens, as far as the server may see it.
    pub processes: Vec<PortProcess>,
}

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortProcess {
    /// Its process id inside the sandbox.
    pub pid: i32,
    /// Its name, as the kernel has it: at most 15 bytes.
    pub name: String,
}

/// The answer to `GET /v1/ports/{port}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The port that was asked for.
    pub port: u16,
    /// Whether something listens on it now.
    pub listening: bool,
}
