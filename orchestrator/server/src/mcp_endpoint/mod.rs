//! The Model Context Protocol at `/mcp`: tools with which other agents start, watch and steer
//! conversations.
//!
//! Streamable HTTP without sessions: the tools need none, so that nothing is kept between requests,
//! and any host of a store serves each of them. Keys, owners, rate limits, origins and the audit
//! log are those of the REST API. A key that may only read can call the tools that change nothing.

mod arguments;
mod events;
mod handler;
mod tool_calls;
mod tools;
mod transport_errors;

use std::sync::Arc;

use accounts::Caller;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use protocol::ConversationId;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use crate::audit::PendingEntry;
use crate::client_address::Client;
use crate::extract::read_body;
use crate::other_hosts::OtherHostResponse;
use crate::state::ServerState;
use crate::work::parse_body;
use crate::{auth, other_hosts};
use handler::McpHandler;
use tools::McpTool;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

/// Maximum size of a request, in bytes. It has a message and instructions at most, with escapes.
const MAX_REQUEST_BYTES: usize = 2 << 20;

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
        .layer(from_fn_with_state(
            Arc::clone(state),
            transport_errors::to_protocol_errors,
        ))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .layer(from_fn_with_state(Arc::clone(state), auth::require_any_key))
}

/// Forwards a call of a tool for a conversation that another host runs. Records a change in the
/// audit log if that host cannot be reached.
async fn forward(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    if state.other_hosts.is_none() {
        return next.run(request).await;
    }
    let (parts, body) = match read_body(request).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    let call = parse_body(&state, body.clone(), |body| Ok(ToolCall::find(body)))
        .await
        .ok()
        .flatten();
    let request = Request::from_parts(parts, Body::from(body));
    let Some(ToolCall {
        tool,
        conversation: id,
    }) = call
    else {
        return next.run(request).await;
    };
    let pending = request
        .extensions()
        .get::<Caller>()
        .filter(|_| tool.is_change())
        .map(|caller| {
            let client = Client::find(request.extensions());
            state
                .audit
                .pending(caller, client, tool.audit_action(), Some(id.clone()))
        });
    match other_hosts::forward_to_holder(&state, &id, request).await {
        Ok(response) => {
            if let Some(pending) = pending {
                match response.extensions().get::<OtherHostResponse>() {
                    Some(_) => pending.cancel(),
                    None => pending.complete(None, response.status()).await,
                }
            }
            response
        }
        Err(request) => {
            pending.into_iter().for_each(PendingEntry::cancel);
            next.run(request).await
        }
    }
}

/// A call of a tool for a conversation.
struct ToolCall {
    tool: McpTool,
    conversation: ConversationId,
}

impl ToolCall {
    /// Finds the call in a message. `None` for all other messages.
    fn find(message: &[u8]) -> Option<Self> {
        let message: Value = serde_json::from_slice(message).ok()?;
        let params = &message["params"];
        let tool = McpTool::find(params["name"].as_str()?)?;
        let conversation = params["arguments"][arguments::CONVERSATION]
            .as_str()?
            .parse()
            .ok()?;
        Some(Self { tool, conversation })
    }
}
