//! `POST /execute_action`: applies V0's rules for commands, then executes the action as the native
//! API does.

use axum::extract::State;
use axum::response::Response;
use protocol::Observation;
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};

use super::V0;
use crate::api::error::ApiError;
use crate::api::execute_action::{observation_response, perform, performed_elsewhere, take_event};
use crate::api::extract::{JsonBody, action_request};

pub(super) async fn execute_action(
    State(v0): State<V0>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let event = take_event(body)?;
    let _in_progress = v0.start_action();
    if let Some(kind) = performed_elsewhere(&event) {
        return observation_response(&Observation::error(missing_plugin(kind), ""));
    }
    let mut request = action_request(event)?;
    apply_rules(&mut request);
    perform(v0.executor(), request).await
}

/// Applies V0's interpretation of a request.
fn apply_rules(request: &mut ActionRequest) {
    // In V0, 0 means no timeout.
    request.timeout = request.timeout.filter(|timeout| *timeout != 0.0);
    if let SandboxAction::Run(run) = &mut request.action {
        normalize(run);
    }
}

fn normalize(run: &mut RunAction) {
    if run.command.trim().is_empty() {
        run.command.clear();
    }
    // Keys are recognized with surrounding whitespace. Other input is not trimmed.
    if run.is_input
        && let key @ [b'C', b'-', _] = run.command.trim().as_bytes()
    {
        run.command = String::from_utf8_lossy(key).into_owned();
    }
}

/// Returns the error for an action that a plugin would perform.
fn missing_plugin(kind: &str) -> String {
    let plugin = match kind {
        "browse" | "browse_interactive" => "browser",
        "call_tool_mcp" => "mcp",
        _ => return format!("The action `{kind}` is not one that a sandbox performs."),
    };
    format!(
        "The action `{kind}` needs the plugin `{plugin}`, which this action server does not have."
    )
}
