//! What a model may call, one file a tool: its definition, and how a call becomes an action.

mod execute_bash;
mod finish;
mod mcp;
mod str_replace_editor;
mod think;

use protocol::Action;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

use crate::llm::{Tool, ToolCall};

/// Why a call cannot become an action. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// There is no such tool.
    #[error("there is no tool {0}")]
    NoSuchTool(String),
    /// The arguments are not JSON.
    #[error("the arguments of {tool} are not JSON: {problem}")]
    NotJson {
        /// The tool.
        tool: String,
        /// Where the text goes wrong.
        problem: String,
    },
    /// An argument is missing or has the wrong type.
    #[error("the arguments of {tool}: {problem}")]
    Arguments {
        /// The tool.
        tool: String,
        /// Which argument, and what is wrong.
        problem: String,
    },
    /// The tool has no such command.
    #[error("{tool} has no command {command}")]
    NoSuchCommand {
        /// The tool.
        tool: &'static str,
        /// The command.
        command: String,
    },
}

/// All tools.
pub fn definitions() -> Vec<Tool> {
    vec![
        execute_bash::definition(),
        str_replace_editor::definition(),
        think::definition(),
        finish::definition(),
    ]
}

/// The action that a call asks for, and how long it may take if the model says so, in seconds. `thought` is what the
/// model said beside it; `offered` are the tools of tool servers.
///
/// # Errors
/// See [`ToolError`].
pub fn to_action(
    call: &ToolCall,
    thought: &str,
    offered: &[Tool],
) -> Result<(Action, Option<f64>), ToolError> {
    match call.name.as_str() {
        execute_bash::NAME => execute_bash::to_action(arguments(call)?, thought),
        str_replace_editor::NAME => {
            str_replace_editor::to_action(arguments(call)?, thought).map(|action| (action, None))
        }
        think::NAME => Ok((think::to_action(arguments(call)?), None)),
        finish::NAME => Ok((finish::to_action(arguments(call)?, thought), None)),
        other if offered.iter().any(|tool| tool.name == other) => {
            Ok((mcp::to_action(other, arguments(call)?, thought), None))
        }
        other => Err(ToolError::NoSuchTool(other.to_owned())),
    }
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, ToolError> {
    // Some providers write nothing where there are no arguments.
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let tool = || call.name.clone();
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| ToolError::NotJson { tool: tool(), problem: error.to_string() })?;
    T::deserialize(value).map_err(|error| ToolError::Arguments { tool: tool(), problem: error.to_string() })
}

/// For `deserialize_with`: models write flags and numbers as text now and then.
fn from_text_too<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    use serde::de::Error;
    let value = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => {
            serde_json::from_str(&text.to_ascii_lowercase()).unwrap_or(serde_json::Value::String(text))
        }
        other => other,
    };
    Option::deserialize(value).map_err(D::Error::custom)
}
