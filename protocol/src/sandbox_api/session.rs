//! Shell sessions of the action server.

use serde::{Deserialize, Serialize};

use crate::ids::SessionName;

/// An element of the response to `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// Its name.
    pub name: SessionName,
    /// The shell's working directory; absolute.
    pub working_dir: String,
    /// Whether an action or its command is running in it.
    pub busy: bool,
}
