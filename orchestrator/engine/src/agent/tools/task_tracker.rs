//! View or set the task list.

use protocol::Action;
use protocol::action::{TaskTrackingAction, TrackedTask};
use serde::Deserialize;
use serde_json::json;

use super::ToolError;
use crate::llm::Tool;

pub(super) const NAME: &str = "task_tracker";

/// Maximum number of tasks. Each event holds the whole list.
const MAX_TASKS: usize = 200;

/// Maximum length of a task with its notes, in bytes.
const MAX_TASK_BYTES: usize = 8 << 10;

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Keeps the list of what is to be done. `plan` writes the whole list anew, with what has become of \
                      each task; `view` shows it. For work of several steps; not for what one or two calls do."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "plan"]},
                "task_list": {
                    "type": "array",
                    "description": "For `plan`: all tasks in order, also those that are done.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "description": "Stays with the task."},
                            "title": {"type": "string", "description": "What is to be done, in one line."},
                            "status": {"type": "string", "enum": ["todo", "in_progress", "done"]},
                            "notes": {"type": "string", "description": "What is worth keeping of it."},
                        },
                        "required": ["id", "title", "status"],
                    },
                },
            },
            "required": ["command"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    command: String,
    task_list: Option<Vec<TrackedTask>>,
}

/// Sets V0's defaults for fields that the model omitted.
fn with_defaults(task: TrackedTask, number: usize) -> TrackedTask {
    let or = |text: String, default: &str| {
        if text.is_empty() {
            default.to_owned()
        } else {
            text
        }
    };
    TrackedTask {
        id: or(task.id, &format!("task-{number}")),
        title: or(task.title, "Untitled task"),
        status: or(task.status, "todo"),
        notes: task.notes,
    }
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    let wrong = |problem: String| {
        Err(ToolError::Arguments {
            tool: NAME.into(),
            problem,
        })
    };
    let length = |task: &TrackedTask| {
        task.id.len() + task.title.len() + task.status.len() + task.notes.len()
    };
    let task_list = match (arguments.command.as_str(), arguments.task_list) {
        ("view", _) => Vec::new(),
        ("plan", Some(tasks)) if tasks.len() > MAX_TASKS => {
            return wrong(format!(
                "{} tasks in `task_list`: write at most {MAX_TASKS}",
                tasks.len()
            ));
        }
        ("plan", Some(tasks)) if tasks.iter().any(|task| length(task) > MAX_TASK_BYTES) => {
            return wrong(format!(
                "a task in `task_list` is longer than {MAX_TASK_BYTES} bytes: shorten it"
            ));
        }
        ("plan", Some(tasks)) => (1..)
            .zip(tasks)
            .map(|(number, task)| with_defaults(task, number))
            .collect(),
        ("plan", None) => return wrong("missing field `task_list`".to_owned()),
        _ => {
            return Err(ToolError::NoSuchCommand {
                tool: NAME,
                command: arguments.command,
            });
        }
    };
    Ok(TaskTrackingAction {
        command: arguments.command,
        task_list,
        thought: thought.to_owned(),
    }
    .into())
}
