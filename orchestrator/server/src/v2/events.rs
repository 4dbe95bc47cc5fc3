//! Events of a conversation, in pages and as a trajectory.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use protocol::client_api::v2::ExportConversation;
use protocol::event_query::SelectedEventPage;
use protocol::{ConversationId, EventQuery};

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters};
use crate::routes::trajectory::{self, Frame};
use crate::state::ServerState;
use crate::work::WorkPermit;

/// Returns a page of events.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation"), EventQuery),
    responses((status = 200, description = "The page", body = SelectedEventPage)))]
pub(crate) async fn page(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(query): QueryParameters<EventQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let page = state.conversations.events(&id, query).await?;
    permit.respond(page).await
}

/// Returns the trajectory of a conversation: an array of V0's events. If they cannot be read to
/// their end, the connection is closed without the end of the body.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/trajectory",
    params(("id" = ConversationId, Path, description = "The conversation"), ExportConversation),
    responses((status = 200, description = "The events", body = [Object])))]
pub(crate) async fn trajectory(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(request): QueryParameters<ExportConversation>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let conversations = state.conversations.conversations();
    let pages = conversations
        .trajectory(&id, request.with_screenshots)
        .await?;
    Ok(trajectory::respond(pages, Frame::ARRAY, permit))
}
