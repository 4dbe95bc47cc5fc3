//! Run a shell command in the sandbox.

use protocol::Action;
use protocol::action::RunAction;
use serde::Deserialize;
use serde_json::json;

use super::ToolError;
use crate::llm::Tool;

pub(super) const NAME: &str = "execute_bash";

/// Maximum timeout, in seconds: a day.
const MAX_TIMEOUT_SECS: f64 = 86_400.0;

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Runs text in a shell session that stays from call to call. The answer holds the output and the \
                      exit code. If the command is silent for 10 seconds or takes longer than its timeout, the answer \
                      comes with exit code -1 and the command goes on: call with an empty `command` for more output, \
                      with `is_input` to type a line into it, or with `C-c`, `C-d` or `C-z` as input to press that key. \
                      Give a timeout for a long command: it may then be silent until the timeout."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "Shell text of any length. Empty: more output of what runs."},
                "is_input": {"type": "boolean", "description": "The text is input for what runs. Default: false."},
                "timeout": {"type": "number", "description": "Seconds until the answer comes in any case."},
            },
            "required": ["command"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    command: String,
    is_input: Option<bool>,
    timeout: Option<f64>,
}

pub(super) fn to_action(
    arguments: Arguments,
    thought: &str,
) -> Result<(Action, Option<f64>), ToolError> {
    let timeout = arguments.timeout;
    if timeout.is_some_and(|timeout| !(0.0..=MAX_TIMEOUT_SECS).contains(&timeout)) {
        let problem = format!("`timeout` is a number of seconds from 0 to {MAX_TIMEOUT_SECS}");
        return Err(ToolError::Arguments {
            tool: NAME.into(),
            problem,
        });
    }
    let action = RunAction {
        command: arguments.command,
        is_input: arguments.is_input.unwrap_or(false),
        thought: thought.to_owned(),
        // A model that sets a timeout expects to wait for it.
        blocking: timeout.is_some(),
        ..Default::default()
    };
    Ok((action.into(), timeout))
}
