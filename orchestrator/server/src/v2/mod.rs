//! Glovebox's own API. The stream of a conversation is in [`stream`](crate::stream).

pub(crate) mod commands;
pub(crate) mod events;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::state::ServerState;
use crate::stream;

pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v2/conversations/{id}/commands", post(commands::apply))
        .route("/v2/conversations/{id}/events", get(events::page))
        .route("/v2/conversations/{id}/stream", get(stream::stream))
}
