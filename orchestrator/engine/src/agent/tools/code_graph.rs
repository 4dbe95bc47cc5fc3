//! The three code localization tools of V0's `LocAgent`. V0 builds a graph with packages in the
//! sandbox; here a script parses the workspace's Python files with Python's own parser at each call
//! and keeps nothing. The action is a run action, as for the other searches. The command finds the
//! script in its environment, so that the log holds the query and not the script.

use protocol::Action;
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use serde_json::Value;

use super::ToolError;
use super::search::quote;

const VARIABLE: &str = "GLOVEBOX_CODE_GRAPH";

const SCRIPT: &str = include_str!("code_graph.py");

/// `-I`: no module of the workspace is imported.
const COMMAND: &str = "python3 -I -c \"$GLOVEBOX_CODE_GRAPH\"";

/// Maximum length of the arguments as JSON, in bytes: far below the kernel's limit of one argument.
const MAX_ARGUMENT_BYTES: usize = 32 << 10;

/// Returns the action of a call.
pub(super) fn action(
    tool: &'static str,
    arguments: &Value,
    thought: &str,
) -> Result<Action, ToolError> {
    let arguments = arguments.to_string();
    if arguments.len() > MAX_ARGUMENT_BYTES {
        let problem = format!("at most {MAX_ARGUMENT_BYTES} bytes");
        return Err(ToolError::Arguments {
            tool: tool.into(),
            problem,
        });
    }
    let command = format!("{COMMAND} {tool} {}", quote(tool, &arguments)?);
    Ok(RunAction {
        command,
        thought: thought.to_owned(),
        is_static: true,
        blocking: true,
        ..Default::default()
    }
    .into())
}

/// Puts the script into the environment of a command that runs it.
pub(crate) fn add_code_graph(request: &mut ActionRequest) {
    if matches!(&request.action, SandboxAction::Run(run) if !run.is_input && run.command.starts_with(COMMAND))
    {
        request.environment.0.insert(VARIABLE.into(), SCRIPT.into());
    }
}
