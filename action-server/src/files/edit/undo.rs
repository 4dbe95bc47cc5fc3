//! `undo_edit`: restores the file as it was before the editor's last change, even if it was changed
//! otherwise since.

use std::path::Path;

use super::{EditError, EditOutcome, FileChange};
use crate::files::lines::Lines;
use crate::files::{Files, open, replace};

pub(super) fn undo(files: &Files, path: &Path) -> Result<EditOutcome, EditError> {
    let target = files.resolve_target(path).map_err(EditError::File)?;
    let _lock = files.lock(&target);
    let now = open::whole(&target).map_err(|error| EditError::from_file_error(path, error))?;
    let before = files
        .history()
        .pop(&target.key())
        .ok_or_else(|| EditError::NoHistory(path.to_owned()))?;
    if let Err(error) = replace::replace(&target, &before) {
        files.history().push(&target.key(), before);
        return Err(EditError::from_file_error(path, error));
    }
    let content = format!(
        "Last edit to {} undone successfully. Here's the result of running `cat -n` on {}:\n{}",
        path.display(),
        path.display(),
        Lines::new(&before).numbered_whole(),
    );
    Ok(EditOutcome {
        content,
        change: Some(FileChange {
            old: Some(now),
            new: before,
        }),
    })
}
