//! `POST /execute_action`: applies V0's rules for commands, then executes the action as the native API does.

use axum::extract::State;
use axum::response::Response;
use protocol::Observation;
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};

use super::{V0, commands};
use crate::api::error::ApiError;
use crate::api::execute_action::{observation_response, perform, performed_elsewhere, take_event};
use crate::api::extract::{JsonBody, action_request};

/// Maximum number of characters of the commands in an error.
const MAX_REPEATED_CHARS: usize = 10_000;

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
    if let Some(observation) = apply_rules(&mut request) {
        return observation_response(&observation);
    }
    perform(v0.executor(), request).await
}

/// Applies V0's interpretation of a request. Returns an observation if the action is not performed.
fn apply_rules(request: &mut ActionRequest) -> Option<Observation> {
    // In V0, 0 means no timeout.
    request.timeout = request.timeout.filter(|timeout| *timeout != 0.0);
    match &mut request.action {
        SandboxAction::Run(run) => one_command(run),
        SandboxAction::RunIpython(_)
        | SandboxAction::Read(_)
        | SandboxAction::Write(_)
        | SandboxAction::Edit(_)
        | SandboxAction::Browse(_)
        | SandboxAction::BrowseInteractive(_) => None,
    }
}

fn one_command(run: &mut RunAction) -> Option<Observation> {
    if run.command.trim().is_empty() {
        run.command.clear();
    }
    if run.is_input {
        // Keys are recognized with surrounding whitespace. Other input is not trimmed.
        if let key @ [b'C', b'-', _] = run.command.trim().as_bytes() {
            run.command = String::from_utf8_lossy(key).into_owned();
        }
        return None;
    }
    match commands::split(&run.command).as_slice() {
        [] | [_] => None,
        several => Some(Observation::error(multiple_commands(several), "")),
    }
}

fn multiple_commands(commands: &[&str]) -> String {
    let mut text = "ERROR: Cannot execute multiple commands at once.\n\
                    Send each as an action of its own, or join them with && or ; in one line. The commands are:"
        .to_owned();
    for (index, command) in commands.iter().enumerate() {
        if text.chars().count() > MAX_REPEATED_CHARS {
            text.push_str("\n…");
            break;
        }
        let shown: String = command.trim().chars().take(MAX_REPEATED_CHARS).collect();
        text.push_str(&format!("\n({}) {shown}", index + 1));
    }
    text
}

/// Returns the error for an action that a plugin would perform.
fn missing_plugin(kind: &str) -> String {
    let plugin = match kind {
        "browse" | "browse_interactive" => "browser",
        "call_tool_mcp" => "mcp",
        _ => return format!("The action `{kind}` is not one that a sandbox performs."),
    };
    format!("The action `{kind}` needs the plugin `{plugin}`, which this action server does not have.")
}
