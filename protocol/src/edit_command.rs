//! Commands of the file editor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A command of the file editor. On the wire a string; any string, so that older logs can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EditCommand {
    /// No command, `""`: a draft, or an edit of an older log.
    #[default]
    Unspecified,
    /// Show the file.
    View,
    /// Create the file, or replace its content.
    Create,
    /// Replace a text that occurs exactly once.
    StrReplace,
    /// Insert a text after a line.
    Insert,
    /// Undo the latest edit of the file.
    UndoEdit,
    /// A command that the editor does not have.
    Unknown(String),
}

impl EditCommand {
    /// Returns the name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unspecified => "",
            Self::View => "view",
            Self::Create => "create",
            Self::StrReplace => "str_replace",
            Self::Insert => "insert",
            Self::UndoEdit => "undo_edit",
            Self::Unknown(name) => name,
        }
    }
}

impl From<String> for EditCommand {
    fn from(name: String) -> Self {
        let known = [
            Self::Unspecified,
            Self::View,
            Self::Create,
            Self::StrReplace,
            Self::Insert,
            Self::UndoEdit,
        ];
        known
            .into_iter()
            .find(|command| command.as_str() == name)
            .unwrap_or(Self::Unknown(name))
    }
}

impl From<EditCommand> for String {
    fn from(command: EditCommand) -> Self {
        match command {
            EditCommand::Unknown(name) => name,
            known => known.as_str().to_owned(),
        }
    }
}

impl fmt::Display for EditCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::EditCommand;

    #[test]
    fn any_name_of_a_command_round_trips() {
        for name in [
            "",
            "view",
            "create",
            "str_replace",
            "insert",
            "undo_edit",
            "View",
            "rename",
        ] {
            let command = EditCommand::from(name.to_owned());
            assert_eq!(
                matches!(command, EditCommand::Unknown(_)),
                ["View", "rename"].contains(&name)
            );
            assert_eq!(serde_json::to_value(&command).unwrap(), name);
        }
    }
}
