//! Delegate a task to another agent.

use protocol::Action;
use protocol::action::DelegateAction;
use serde::Deserialize;
use serde_json::json;

use super::ToolError;
use crate::agent::definition::DelegateAgent;
use crate::llm::Tool;

/// The name of the tool.
pub const DELEGATE: &str = "delegate";

pub(super) fn definition(delegates: &[DelegateAgent]) -> Tool {
    let names: Vec<&str> = delegates
        .iter()
        .map(|delegate| delegate.name.as_str())
        .collect();
    let lines: String = delegates
        .iter()
        .map(
            |DelegateAgent { name, description }| match description.trim() {
                "" => format!("\n- {name}"),
                description => format!("\n- {name}: {description}"),
            },
        )
        .collect();
    Tool {
        name: DELEGATE.into(),
        description: format!(
            "Delegates a task to another agent and returns its final message. The agent works on the same files in its own \
             shell, knows only the task and not this conversation, and cannot ask questions. To delegate independent tasks \
             concurrently, make one call for each of them in the same response.\nThe agents:{lines}"
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": names, "description": "The agent to delegate to."},
                "task": {
                    "type": "string",
                    "description": "Everything that the agent has to know: what to do, where, and what to report.",
                },
            },
            "required": ["agent", "task"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    agent: String,
    task: String,
}

pub(super) fn to_action(
    arguments: Arguments,
    delegates: &[DelegateAgent],
    thought: &str,
) -> Result<Action, ToolError> {
    let Arguments { agent, task } = arguments;
    if !delegates.iter().any(|delegate| delegate.name == agent) {
        let known: Vec<&str> = delegates
            .iter()
            .map(|delegate| delegate.name.as_str())
            .collect();
        let problem = format!("there is no agent {agent}: there are {}", known.join(", "));
        return Err(ToolError::Arguments {
            tool: DELEGATE.into(),
            problem,
        });
    }
    let inputs = [("task".to_owned(), task.into())].into_iter().collect();
    Ok(DelegateAction {
        agent,
        inputs,
        thought: thought.to_owned(),
    }
    .into())
}
