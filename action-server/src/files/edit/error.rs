//! Errors of the editor, as the model reads them. Some parts of the texts are V0's, which clients
//! match.

use std::path::{Path, PathBuf};

use protocol::action::EditCommand;

use crate::files::error::FileError;

/// Reason why an edit failed. Not worth a retry with the same parameters.
#[derive(Debug, thiserror::Error)]
pub(in crate::files) enum EditError {
    #[error(
        "Unrecognized command `{0}`. There are `view`, `create`, `str_replace`, `insert` and `undo_edit`."
    )]
    Command(EditCommand),
    #[error("Parameter `{parameter}` is required for command: {command}.")]
    Missing {
        parameter: &'static str,
        command: EditCommand,
    },
    #[error("Invalid `path` parameter: {0}. The path {0} does not exist; give the path of a file that does.", path.display())]
    NoSuchPath { path: PathBuf },
    #[error("Invalid `path` parameter: {0}. It is a directory, and directories can only be viewed.", path.display())]
    IsDirectory { path: PathBuf },
    #[error("Invalid `path` parameter: {0}. File already exists at: {0}; `create` does not overwrite it.", path.display())]
    Exists { path: PathBuf },
    #[error("Invalid `view_range` parameter: {0}.")]
    ViewRange(String),
    #[error(
        "Invalid `insert_line` parameter: {line}. It should be within the range of allowed values: [0, {count}]"
    )]
    InsertLine { line: i64, count: usize },
    #[error("Invalid `old_str` parameter: it is empty. To add text, use `insert`.")]
    EmptyOld,
    #[error("No replacement was performed. `new_str` and `old_str` must be different.")]
    SameText,
    #[error("No replacement was performed, old_str `{old}` did not appear verbatim in {}.{nearest}", path.display())]
    NotFound {
        old: String,
        path: PathBuf,
        nearest: String,
    },
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{old}` in lines {lines}. Please ensure it is unique."
    )]
    NotUnique { old: String, lines: String },
    #[error("No edit history found for {}.", .0.display())]
    NoHistory(PathBuf),
    #[error(transparent)]
    File(FileError),
}

impl EditError {
    /// Replaces errors of a file for which the editor has its own text.
    pub(in crate::files) fn from_file_error(path: &Path, error: FileError) -> Self {
        match error {
            FileError::NotFound(_) => Self::NoSuchPath {
                path: path.to_owned(),
            },
            FileError::Directory(_) => Self::IsDirectory {
                path: path.to_owned(),
            },
            other => Self::File(other),
        }
    }

    /// Returns the content of the observation.
    pub(in crate::files) fn to_content(&self) -> String {
        format!("ERROR:\n{self}")
    }
}
