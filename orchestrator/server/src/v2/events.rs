//! Events of a conversation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use protocol::event_query::SelectedEventPage;
use protocol::{ConversationId, EventQuery};

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters};
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
