//! The shells of a server.

use serde::{Deserialize, Serialize};

use crate::ids::SessionName;

/// One of the answers to `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// Its name.
    pub name: SessionName,
    /// Where its shell is; absolute.
    pub working_dir: String,
    /// Whether an action is performed in it, or a command of one still runs.
    pub busy: bool,
}
