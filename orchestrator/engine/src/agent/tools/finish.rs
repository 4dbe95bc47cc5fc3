//! Say that the task is done.

use protocol::Action;
use protocol::action::FinishAction;
use serde::Deserialize;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "finish";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Ends the task. The message is what the user reads: what was done, what was checked, what is left."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {"message": {"type": "string", "description": "What the user reads."}},
            "required": ["message"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    #[serde(default)]
    message: String,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Action {
    FinishAction {
        final_thought: arguments.message,
        thought: thought.to_owned(),
        ..Default::default()
    }
    .into()
}
