//! `insert`: inserts whole lines after a line. A last line without a line end gets one if another
//! line follows.

use std::path::Path;

use super::{EditError, EditOutcome, FileChange, REVIEW, snippet};
use crate::files::lines::{Lines, after_mark, with_line_ends_of};
use crate::files::{Files, encoding, open, replace};

pub(super) fn insert(
    files: &Files,
    path: &Path,
    line: i64,
    text: &str,
) -> Result<EditOutcome, EditError> {
    let target = files.resolve_target(path).map_err(EditError::File)?;
    let _lock = files.lock(&target);
    let old = open::text(&target).map_err(|error| EditError::from_file_error(path, error))?;
    let count = Lines::new(&old).count();
    let after_line = usize::try_from(line).ok().filter(|line| *line <= count);
    let after_line = after_line.ok_or(EditError::InsertLine { line, count })?;
    encoding::check_text(&target, &old, text).map_err(EditError::File)?;
    let (new, start, end) = inserted(&old, after_line, text);
    replace::replace(&target, &new).map_err(|error| EditError::from_file_error(path, error))?;
    files.history().push(&target.key(), old.clone());
    let content = format!(
        "The file {} has been edited. Here's the result of running `cat -n` on a snippet of the edited file:\n{}{REVIEW}",
        path.display(),
        snippet(&new, start, end),
    );
    Ok(EditOutcome {
        content,
        change: Some(FileChange {
            old: Some(old),
            new,
        }),
    })
}

/// Returns the new content, and the start and end of the text in it.
fn inserted(old: &[u8], after_line: usize, text: &str) -> (Vec<u8>, usize, usize) {
    let at = Lines::new(old).start(after_line).max(after_mark(old));
    let (before, after) = old.split_at(at);
    let line_end = with_line_ends_of(old, "\n");
    let text = with_line_ends_of(old, text);
    let mut new = before.to_vec();
    let is_unended = at > after_mark(old) && !before.ends_with(b"\n");
    if is_unended {
        new.extend_from_slice(line_end.as_bytes());
    }
    let start = new.len();
    new.extend_from_slice(text.as_bytes());
    let end = new.len().saturating_sub(1).max(start);
    if !is_unended && !text.ends_with('\n') {
        new.extend_from_slice(line_end.as_bytes());
    }
    new.extend_from_slice(after);
    (new, start, end)
}
