//! `undo_edit`: back to what the file was before the editor's last change of it, also when others changed it since.

use std::path::Path;

use super::{Change, EditError, Outcome};
use crate::files::lines::Lines;
use crate::files::{Files, open, replace};

pub(super) fn undo(files: &Files, path: &Path) -> Result<Outcome, EditError> {
    let target = files.target(path).map_err(EditError::File)?;
    let _changing = files.change(&target);
    let now = open::whole(&target).map_err(|error| EditError::of_path(path, error))?;
    let before = files.history().pop(&target.key()).ok_or_else(|| EditError::NoHistory(path.to_owned()))?;
    if let Err(error) = replace::replace(&target, &before) {
        files.history().push(&target.key(), before);
        return Err(EditError::of_path(path, error));
    }
    let content = format!(
        "Last edit to {} undone successfully. Here's the result of running `cat -n` on {}:\n{}",
        path.display(),
        path.display(),
        Lines::of(&before).numbered_whole(),
    );
    Ok(Outcome { content, change: Some(Change { old: Some(now), new: before }) })
}
