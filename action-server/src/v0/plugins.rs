//! Routes of plugins that this server does not have.

use axum::Json;
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::extract::JsonBody;

/// Maximum number of names in a response.
const MAX_NAMED: usize = 20;

/// `GET /vscode/connection_token`: null means that VS Code is not available.
pub(super) async fn vscode_token() -> Json<Value> {
    Json(json!({"token": null}))
}

/// `POST /update_mcp_server`, with a list of servers to start. Responds with success, because a
/// client would end its conversation on an error; it shows the log to the user.
pub(super) async fn update_mcp_server(JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let Value::Array(servers) = body else {
        let problem = "Request must be a list of MCP tools to sync".to_owned();
        return Err(ApiError::Parameter {
            name: "body",
            problem,
        });
    };
    if servers.is_empty() {
        return Ok(Json(
            json!({"detail": "There was no MCP server to start.", "router_error_log": ""}),
        ));
    }
    let named = servers
        .iter()
        .take(MAX_NAMED)
        .map(|server| server.get("name").and_then(Value::as_str));
    let names: Vec<&str> = named
        .map(|name| name.unwrap_or("(without a name)"))
        .collect();
    let more = if servers.len() > MAX_NAMED {
        ", …"
    } else {
        ""
    };
    let log = format!(
        "this action server runs no MCP servers; not started: {}{more}",
        names.join(", ")
    );
    Ok(Json(
        json!({"detail": "No MCP server was started.", "router_error_log": log}),
    ))
}
