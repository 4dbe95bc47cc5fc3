//! Events of a conversation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use conversations::{EventQuery, SelectedEvents};
use protocol::client_api::SelectedEventPage;
use protocol::{ConversationId, EventId, EventSource};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters, parse_names};
use crate::state::ServerState;
use crate::view;
use crate::work::WorkPermit;

/// Maximum number of events of a page.
const MAX_PAGE_SIZE: usize = 1000;

/// Length of the events of a page, in bytes of JSON. The page ends with the event that exceeds it.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Selects events. All conditions hold for each.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct EventParameters {
    /// The first event.
    from: u64,
    /// The event after the last one. By default, the end of the log.
    until: Option<u64>,
    /// Whether the last event comes first. The next page is then `until` its `next_id`.
    reverse: bool,
    /// Maximum number of events: 1 to 1000.
    limit: usize,
    /// Kinds of actions and observations to select, separated by commas.
    kinds: Option<String>,
    /// Who caused the events.
    #[param(inline)]
    source: Option<EventSource>,
    /// Text that the event's JSON contains, in any case.
    text: Option<String>,
}

impl Default for EventParameters {
    fn default() -> Self {
        Self {
            from: 0,
            until: None,
            reverse: false,
            limit: 100,
            kinds: None,
            source: None,
            text: None,
        }
    }
}

/// Returns a page of events.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation"), EventParameters),
    responses((status = 200, description = "The page", body = SelectedEventPage)))]
pub(crate) async fn page(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(parameters): QueryParameters<EventParameters>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    if parameters.limit == 0 || parameters.limit > MAX_PAGE_SIZE {
        return Err(ApiError::invalid(
            "limit",
            format_args!("must be 1 to {MAX_PAGE_SIZE}"),
        ));
    }
    let query = EventQuery {
        from: EventId(parameters.from),
        until: parameters.until.map(EventId),
        is_reverse: parameters.reverse,
        limit: parameters.limit,
        max_bytes: MAX_PAGE_BYTES,
        kinds: parse_names(parameters.kinds.as_deref()),
        source: parameters.source,
        text: parameters.text,
        ..EventQuery::default()
    };
    let conversations = state.conversations.conversations();
    let SelectedEvents {
        events,
        has_more,
        next,
    } = conversations.query(&id, query, view::event_json).await?;
    permit
        .respond(SelectedEventPage {
            events,
            next_id: has_more.then_some(next),
        })
        .await
}
