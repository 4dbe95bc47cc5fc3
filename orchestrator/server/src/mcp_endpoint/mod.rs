//! The Model Context Protocol at `/mcp`: tools with which other agents start, watch and steer conversations.
//!
//! Streamable HTTP without sessions: the tools need none, so that nothing is kept between requests, and any host of a store serves
//! each of them. Keys, owners, rate limits, origins and the audit log are those of the REST API. A key that may only read can
//! call the tools that change nothing.

mod arguments;
mod events;
mod handler;
mod tool_calls;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use protocol::ConversationId;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use crate::extract::read_body;
use crate::state::ServerState;
use crate::{auth, other_hosts};
use handler::McpHandler;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

/// Maximum size of a request, in bytes. It has a message of text at most.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The route.
pub(crate) fn router(state: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    let handler = McpHandler::new(Arc::clone(state));
    // Host and Origin are checked for all routes.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::<NeverSessionManager>::default(),
        config,
    );
    Router::new()
        .route_service(PATH, service)
        .layer(from_fn_with_state(Arc::clone(state), forward))
        .layer(from_fn_with_state(Arc::clone(state), auth::require_any_key))
}

/// Forwards a call of a tool for a conversation that another host runs.
async fn forward(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    if state.other_hosts.is_none() {
        return next.run(request).await;
    }
    let (parts, body) = match read_body(request).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    let id = conversation(&body);
    let request = Request::from_parts(parts, Body::from(body));
    match id {
        Some(id) => match other_hosts::forward_to_holder(&state, &id, request).await {
            Ok(response) => response,
            Err(request) => next.run(request).await,
        },
        None => next.run(request).await,
    }
}

/// Returns the conversation that a call of a tool is for.
fn conversation(body: &[u8]) -> Option<ConversationId> {
    let message: Value = serde_json::from_slice(body).ok()?;
    message["params"]["arguments"][arguments::CONVERSATION].as_str()?.parse().ok()
}
