//! View, create and edit files.

use protocol::Action;
use protocol::action::{EditAction, EditCommand, FileImplementation, ReadAction};
use serde::Deserialize;
use serde_json::json;

use super::ToolError;
use crate::llm::Tool;

pub(super) const NAME: &str = "str_replace_editor";

pub(super) fn definition() -> Tool {
    Tool {
        name: NAME.into(),
        description: "Views, creates and edits files. `view` shows a file with line numbers, or a folder two levels \
                      deep; `create` writes a new file and refuses to replace one; `str_replace` replaces `old_str`, \
                      which must occur exactly once, white space included, by `new_str`; `insert` puts `new_str` after \
                      line `insert_line`; `undo_edit` takes the last edit of the file back."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
                "path": {"type": "string", "description": "Absolute."},
                "file_text": {"type": "string", "description": "For `create`: the whole file."},
                "old_str": {"type": "string", "description": "For `str_replace`: the text to replace."},
                "new_str": {"type": "string", "description": "For `str_replace` and `insert`: the new text."},
                "insert_line": {"type": "integer", "description": "For `insert`: 0 is before the first line."},
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "For `view` of a file: first and last line, from 1; a last line of -1 is the end.",
                },
            },
            "required": ["command", "path"],
        }),
    }
}

#[derive(Deserialize)]
pub(super) struct Arguments {
    command: EditCommand,
    path: String,
    file_text: Option<String>,
    old_str: Option<String>,
    new_str: Option<String>,
    insert_line: Option<i64>,
    view_range: Option<Vec<i64>>,
}

pub(super) fn to_action(arguments: Arguments, thought: &str) -> Result<Action, ToolError> {
    match arguments.command {
        EditCommand::View => Ok(ReadAction {
            thought: thought.to_owned(),
            impl_source: FileImplementation::OhAci,
            view_range: arguments.view_range,
            ..ReadAction::whole_file(arguments.path)
        }
        .into()),
        command @ (EditCommand::Create
        | EditCommand::StrReplace
        | EditCommand::Insert
        | EditCommand::UndoEdit) => Ok(EditAction {
            file_text: arguments.file_text,
            old_str: arguments.old_str,
            new_str: arguments.new_str,
            insert_line: arguments.insert_line,
            thought: thought.to_owned(),
            ..EditAction::new(arguments.path, command)
        }
        .into()),
        command @ (EditCommand::Unspecified | EditCommand::Unknown(_)) => {
            Err(ToolError::NoSuchCommand {
                tool: NAME,
                command: command.into(),
            })
        }
    }
}
