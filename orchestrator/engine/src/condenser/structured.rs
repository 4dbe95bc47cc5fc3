//! `structured`: replaces forgotten events with a form on the state of the work that a model fills
//! in.

use protocol::untrusted_json;
use serde_json::{Map, Value, json};

use super::summarizing::SummaryForm;
use crate::llm::{AssistantMessage, Tool};

pub(super) const SUMMARY_FORM: SummaryForm = SummaryForm {
    instructions: include_str!("structured.md"),
    tools: || vec![tool()],
    read,
};

const NAME: &str = "note_state";

/// The fields: name, heading and description. The first three are required.
const FIELDS: [(&str, &str, &str); 11] = [
    (
        "request",
        "What the user wants",
        "The user's goals, requirements and limits, in their words where these matter.",
    ),
    ("done", "Done", "What is finished, and how it was checked."),
    (
        "to_do",
        "Still to do",
        "What is left, in the order in which it should be done.",
    ),
    (
        "now",
        "State of the work",
        "What is being worked on, values that are needed again, running processes.",
    ),
    (
        "files",
        "Files",
        "Paths of files that were made, changed or matter, and what of them.",
    ),
    (
        "code",
        "Code",
        "Functions, types and data structures that were made or changed, and how.",
    ),
    (
        "tests",
        "Tests",
        "Which tests there are, which pass and which fail.",
    ),
    (
        "errors",
        "Errors",
        "Unresolved errors, with the lines that identify them.",
    ),
    (
        "failed_attempts",
        "Tried without success",
        "What did not work, and why.",
    ),
    (
        "version_control",
        "Version control",
        "Branch, commits, pull requests.",
    ),
    (
        "notes",
        "Notes",
        "Anything else that must not be forgotten: dependencies, decisions, facts.",
    ),
];

fn tool() -> Tool {
    let properties: Map<String, Value> = FIELDS
        .iter()
        .map(|(name, _, description)| {
            (
                (*name).to_owned(),
                json!({"type": "string", "description": description}),
            )
        })
        .collect();
    let required: Vec<&str> = FIELDS.iter().take(3).map(|(name, ..)| *name).collect();
    Tool {
        name: NAME.to_owned(),
        description:
            "Records the state of the work for an agent that will not see the events again."
                .to_owned(),
        parameters: json!({"type": "object", "properties": properties, "required": required}),
    }
}

/// Formats the filled-in form. Without a tool call it is the text of the response.
fn read(message: &AssistantMessage) -> String {
    let call = message.tool_calls.iter().find(|call| call.name == NAME);
    let form =
        call.and_then(|call| untrusted_json::from_str::<Map<String, Value>>(&call.arguments).ok());
    let Some(form) = form else {
        return message.text.clone();
    };
    let sections = FIELDS.iter().filter_map(|(name, heading, _)| {
        let text = match form.get(*name)? {
            Value::Null => return None,
            Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        (!text.is_empty()).then(|| format!("## {heading}\n{text}"))
    });
    sections.collect::<Vec<_>>().join("\n\n")
}
