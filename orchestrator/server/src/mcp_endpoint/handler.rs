//! Handles the messages of the protocol.

use std::sync::Arc;

use accounts::Caller;
use http::StatusCode;
use http::request::Parts;
use protocol::ConversationId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use super::tool_calls::{self, Reply};
use super::tools::McpTool;
use crate::client_address::Client;
use crate::error::ApiError;
use crate::state::ServerState;

const INSTRUCTIONS: &str = "Conversations with agents that work in sandboxes. Start one with start_conversation, call wait until its \
    agent has finished or needs you, and answer with send_message or decide. read_events has the details.";

/// Serves one request, or all of them: it has no state of its own.
#[derive(Clone)]
pub(super) struct McpHandler {
    state: Arc<ServerState>,
}

impl McpHandler {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// Calls a tool, and records a change in the audit log.
    async fn call(
        &self,
        tool: McpTool,
        arguments: serde_json::Map<String, Value>,
        parts: &Parts,
    ) -> Result<Value, ApiError> {
        let caller: &Caller = parts.extensions.get().ok_or(ApiError::NoKey)?;
        if tool.is_change() {
            self.state.audit.catch_up().await?;
        }
        let named = arguments
            .get(super::arguments::CONVERSATION)
            .and_then(Value::as_str);
        let named: Option<ConversationId> = named.and_then(|id| id.parse().ok());
        let client = Client::find(&parts.extensions);
        // Appended also if the client is gone before there is a result.
        let pending = tool.is_change().then(|| {
            self.state
                .audit
                .pending(caller, client, tool.audit_action(), named.clone())
        });
        let result = tool_calls::call(&self.state, caller, tool, arguments).await;
        if let Some(pending) = pending {
            let status = result
                .as_ref()
                .map_or_else(ApiError::status_code, |_| StatusCode::OK);
            let created = result.as_ref().ok().and_then(|reply| reply.created.clone());
            pending.complete(created, status).await;
        }
        result.map(|Reply { json, .. }| json)
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("glovebox", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            McpTool::ALL.map(McpTool::definition).to_vec(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        McpTool::find(name).map(McpTool::definition)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Without the name, which may be long, and would be logged.
        let unknown = || ErrorData::invalid_params("there is no such tool: see tools/list", None);
        let tool = McpTool::find(&request.name).ok_or_else(unknown)?;
        let arguments = request.arguments.unwrap_or_default();
        let Some(parts) = context.extensions.get::<Parts>() else {
            return Err(ErrorData::invalid_request("not a request over HTTP", None));
        };
        let result = tokio::select! {
            result = self.call(tool, arguments, parts) => result,
            // A client that is gone waits no longer. A change is completed.
            () = context.ct.cancelled(), if !tool.is_change() => {
                return Err(ErrorData::internal_error("the client is gone", None));
            }
        };
        let result = match result {
            Ok(json) => CallToolResult::structured(json),
            Err(error) => to_error_result(&error),
        };
        Ok(result.into())
    }
}

/// Returns the result of a tool that failed, with the code and the text of the REST API.
fn to_error_result(error: &ApiError) -> CallToolResult {
    if error.status_code() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "cannot call a tool"
        );
    }
    let body = error.to_body();
    CallToolResult::structured_error(
        json!({"code": body.msg_id, "message": body.message, "field": body.field}),
    )
}
