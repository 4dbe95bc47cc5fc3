//! View a file or a folder.

use protocol::Action;
use protocol::action::{FileImplementation, ReadAction};
use serde::Deserialize;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "view";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Shows a file with line numbers, or a folder two levels deep.".into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute."},
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "Of a file: first and last line, from 1; a last line of -1 is the end.",
                },
            },
            "required": ["path"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    path: String,
    view_range: Option<Vec<i64>>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Action {
    ReadAction {
        thought: thought.to_owned(),
        impl_source: FileImplementation::OhAci,
        view_range: arguments.view_range,
        ..ReadAction::whole_file(arguments.path)
    }
    .into()
}
