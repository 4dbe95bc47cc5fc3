//! Log a thought.

use protocol::Action;
use protocol::action::ThinkAction;
use serde::Deserialize;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "think";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description:
            "Logs a thought and changes nothing: a plan, possible causes of a failure, or something learned."
                .into(),
        parameters: json!({
            "type": "object",
            "properties": {"thought": {"type": "string", "description": "The thought."}},
            "required": ["thought"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    /// As in V0, may be missing.
    #[serde(default)]
    thought: String,
}

/// Prepends the text of the response to the thought, as V0 does.
pub(super) fn to_action(arguments: Arguments, thought: &str) -> Action {
    let thought = match thought {
        "" => arguments.thought,
        text => format!("{text}\n{}", arguments.thought)
            .trim_end()
            .to_owned(),
    };
    ThinkAction { thought }.into()
}
