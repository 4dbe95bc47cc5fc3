//! `POST /execute_action`: V0's rules about commands, then the same executor as everybody's.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{Action, Observation};
use serde_json::Value;
use uuid::Uuid;

use super::{V0, commands};
use crate::api::extract::{JsonBody, action_request};
use crate::error::ApiError;
use crate::execute::is_performed;

/// Of the commands that an error repeats, in characters.
const MAX_REPEATED_CHARS: usize = 10_000;

pub(super) async fn execute_action(
    State(v0): State<V0>,
    JsonBody(mut body): JsonBody,
) -> Result<Response, ApiError> {
    let event = match body.get_mut("action") {
        Some(event @ Value::Object(_)) => event.take(),
        Some(_) => return Err(ApiError::Malformed("field `action`: expected an object, the event".into())),
        None => return Err(ApiError::Malformed("missing field `action`".into())),
    };
    let _acting = v0.acting();
    if let Some(observation) = not_here(&event) {
        return json_of(&observation);
    }
    let mut request = action_request(event)?;
    if let Some(observation) = apply_rules(&mut request) {
        return json_of(&observation);
    }
    let id = format!("v0.{}", Uuid::now_v7()).try_into()?;
    let ending = v0.executor().execute(id, request)?.ended().await;
    Ok(([(header::CONTENT_TYPE, "application/json")], ending.json()).into_response())
}

/// What V0 reads differently; the observation if it does not perform it.
fn apply_rules(request: &mut ActionRequest) -> Option<Observation> {
    // V0's word for none.
    request.timeout = request.timeout.filter(|timeout| *timeout != 0.0);
    match &mut request.action {
        SandboxAction::Run(run) => one_command(run),
        SandboxAction::Read(_) | SandboxAction::Write(_) | SandboxAction::Edit(_) => None,
    }
}

fn one_command(run: &mut RunAction) -> Option<Observation> {
    if run.command.trim().is_empty() {
        run.command.clear();
    }
    if run.is_input {
        // `C-c` with blanks around it is the key too. Other input may need its blanks.
        if let key @ [b'C', b'-', _] = run.command.trim().as_bytes() {
            run.command = String::from_utf8_lossy(key).into_owned();
        }
        return None;
    }
    match commands::split(&run.command).as_slice() {
        [] | [_] => None,
        several => Some(Observation::error(told(several), "")),
    }
}

fn told(commands: &[&str]) -> String {
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

/// V0's clients take any status but 200 for a broken sandbox, also for a part that it does not have.
fn not_here(event: &Value) -> Option<Observation> {
    let kind = event.get("action")?.as_str()?;
    if !Action::KINDS.contains(&kind) || is_performed(kind) {
        return None;
    }
    let text = match kind {
        "run_ipython" => missing(kind, "jupyter"),
        "browse" | "browse_interactive" => missing(kind, "browser"),
        "call_tool_mcp" => missing(kind, "mcp"),
        _ => format!("The action `{kind}` is not one that a sandbox performs."),
    };
    Some(Observation::error(text, ""))
}

fn missing(kind: &str, plugin: &str) -> String {
    format!("The action `{kind}` needs the plugin `{plugin}`, which this action server does not have.")
}

fn json_of(observation: &Observation) -> Result<Response, ApiError> {
    let json = serde_json::to_vec(observation).map_err(|error| {
        tracing::error!(%error, "encoding an observation");
        ApiError::Failed
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
