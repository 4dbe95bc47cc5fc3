//! Edit a file with a draft, which a model turns into an edit.

use protocol::Action;
use protocol::action::{EditAction, EditCommand, FileImplementation};
use serde::Deserialize;
use serde_json::json;

use crate::llm::Tool;

pub(super) const NAME: &str = "edit_file";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Edits a file by a draft: say in `content` what the lines from `start` to `end` are to become, and \
                      another model writes them out. Lines that stay can be left out where a comment such as \
                      `# ... existing code ...` stands for them; show enough around each change for its place to be \
                      plain. A range has at most 300 lines: in a longer file find the place first and give one. \
                      `start` = -1 adds `content` at the end of the file as it is, and a file that does not exist is \
                      created with it. The answer shows the lines as they are then: look whether they are what you meant."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute."},
                "content": {"type": "string", "description": "The draft, with the file's own indentation."},
                "start": {"type": "integer", "description": "The first line, from 1; -1 is after the end. Usually 1."},
                "end": {"type": "integer", "description": "The last line; -1, as without it, is the end of the file."},
            },
            "required": ["path", "content"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    path: String,
    content: String,
    start: Option<i64>,
    end: Option<i64>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Action {
    EditAction {
        content: arguments.content,
        start: arguments.start.unwrap_or(1),
        end: arguments.end.unwrap_or(-1),
        thought: thought.to_owned(),
        impl_source: FileImplementation::LlmBasedEdit,
        ..EditAction::new(arguments.path, EditCommand::Unspecified)
    }
    .into()
}
