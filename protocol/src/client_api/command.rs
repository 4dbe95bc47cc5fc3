//! Replies to commands.

use serde::{Deserialize, Serialize};

use crate::ids::EventId;

/// The reply to a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommandReply {
    /// The event that the command caused, now or when it was sent before. `None` if there was
    /// nothing to do.
    pub event_id: Option<EventId>,
}
