//! The editor: `view`, `create`, `str_replace`, `insert`, `undo_edit`. An error is content that
//! starts with `ERROR:`, which the model reads and corrects. It is never an error of the request.

mod create;
mod error;
mod insert;
mod nearest;
mod replace_text;
mod undo;

#[cfg(test)]
mod tests;

use std::path::Path;

use protocol::Observation;
use protocol::action::{EditAction, EditCommand, FileImplementation};
use protocol::observation::EditObservation;

pub(super) use error::EditError;

use super::lines::Lines;
use super::{Files, diff, view};

/// Number of lines shown before and after a change.
const SNIPPET_LINES: usize = 4;

const REVIEW: &str = "Review the changes and make sure they are as expected; if they are not, edit the file again.\n";

/// Result of a command.
#[derive(Debug, Default)]
struct EditOutcome {
    content: String,
    /// `None` if no file was changed.
    change: Option<FileChange>,
}

#[derive(Debug)]
struct FileChange {
    /// `None` if the file did not exist.
    old: Option<Vec<u8>>,
    new: Vec<u8>,
}

pub(super) fn observe(files: &Files, path: &Path, action: &EditAction) -> Observation {
    let outcome = match perform(files, path, action) {
        Ok(outcome) => outcome,
        Err(error) => EditOutcome {
            content: error.to_content(),
            change: None,
        },
    };
    let mut edit = EditObservation {
        path: path.display().to_string(),
        prev_exist: files
            .resolve(path)
            .is_ok_and(|found| found.metadata().is_ok()),
        impl_source: action.impl_source,
        ..EditObservation::default()
    };
    if let Some(FileChange { old, new }) = outcome.change {
        edit.prev_exist = old.is_some();
        edit.diff = Some(diff::unified(
            &edit.path,
            old.as_deref().unwrap_or_default(),
            &new,
        ));
        edit.old_content = old.map(|old| String::from_utf8_lossy(&old).into_owned());
        edit.new_content = Some(String::from_utf8_lossy(&new).into_owned());
    }
    Observation::new(outcome.content, edit)
}

fn perform(files: &Files, path: &Path, action: &EditAction) -> Result<EditOutcome, EditError> {
    let missing = |parameter| EditError::Missing {
        parameter,
        command: action.command.clone(),
    };
    match &action.command {
        EditCommand::View => Ok(EditOutcome {
            content: view::view(files, path, None)?,
            change: None,
        }),
        EditCommand::Create => create::create(
            files,
            path,
            action.file_text.as_ref().ok_or(missing("file_text"))?,
        ),
        EditCommand::StrReplace => {
            let old = action.old_str.as_ref().ok_or(missing("old_str"))?;
            let new = action.new_str.as_deref().unwrap_or_default();
            // The text of an LLM-based edit was computed from the exact content of the file.
            let is_exact = action.impl_source == FileImplementation::LlmBasedEdit;
            replace_text::replace_text(files, path, old, new, is_exact)
        }
        EditCommand::Insert => {
            let line = action.insert_line.ok_or(missing("insert_line"))?;
            insert::insert(
                files,
                path,
                line,
                action.new_str.as_ref().ok_or(missing("new_str"))?,
            )
        }
        EditCommand::UndoEdit => undo::undo(files, path),
        other @ (EditCommand::Unspecified | EditCommand::Unknown(_)) => {
            Err(EditError::Command(other.clone()))
        }
    }
}

/// Returns the lines with the bytes from `start` to `end` of `text`, and the lines around them.
fn snippet(text: &[u8], start: usize, end: usize) -> String {
    let lines = Lines::new(text);
    let first = lines.index_at(start).saturating_sub(SNIPPET_LINES);
    lines.numbered(first..lines.index_at(end) + SNIPPET_LINES + 1)
}
