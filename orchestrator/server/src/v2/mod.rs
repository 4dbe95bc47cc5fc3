//! Glovebox's own API. The stream of a conversation is in [`stream`](crate::stream).

pub(crate) mod commands;
pub(crate) mod conversations;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod sandbox;

use ::conversations::WorkspaceFiles;
use protocol::ConversationId;

use crate::error::ApiError;
use crate::state::ServerState;

/// Returns access to the files of a running conversation, once its sandbox is connected.
async fn workspace(state: &ServerState, id: &ConversationId) -> Result<WorkspaceFiles, ApiError> {
    let conversations = state.conversations.conversations();
    Ok(conversations.connected_workspace(id).await?)
}
