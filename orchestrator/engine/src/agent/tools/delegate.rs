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
    let names: Vec<&str> = delegates.iter().map(|delegate| delegate.name.as_str()).collect();
    let lines: String = delegates
        .iter()
        .map(|DelegateAgent { name, description }| match description.trim() {
            "" => format!("\n- {name}"),
            description => format!("\n- {name}: {description}"),
        })
        .collect();
    Tool {
        name: DELEGATE.into(),
        description: format!(
            "Hands a task on to another agent and gives back what that agent says in the end. It works in the same files \
             with a shell of its own, knows nothing of this conversation but the task, and cannot ask. Tasks that do not \
             depend on each other can be handed on in one answer, with a call each: they are worked on at the same \
             time.\nThe agents:{lines}"
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": names, "description": "Who gets the task."},
                "task": {
                    "type": "string",
                    "description": "Everything the agent has to know: what is to be done, where, and what to tell in the end.",
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
        let known: Vec<&str> = delegates.iter().map(|delegate| delegate.name.as_str()).collect();
        let problem = format!("there is no agent {agent}: there are {}", known.join(", "));
        return Err(ToolError::Arguments { tool: DELEGATE.into(), problem });
    }
    let inputs = [("task".to_owned(), task.into())].into_iter().collect();
    Ok(DelegateAction { agent, inputs, thought: thought.to_owned() }.into())
}
