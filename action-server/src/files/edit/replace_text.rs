//! `str_replace`: the one occurrence of a text becomes another. Found exactly, or else as the file's line ends have it,
//! or else without the blanks around it, which models add and lose.

use std::path::Path;

use super::{Change, EditError, Outcome, REVIEW, nearest, snippet};
use crate::files::lines::{Lines, with_line_ends_of};
use crate::files::{Files, open, replace};

/// Named when a text is not unique; a model that hears of a hundred knows enough.
const MAX_NAMED_LINES: usize = 100;

/// A text repeated in an error, in characters.
const MAX_QUOTED_CHARS: usize = 4_000;

pub(super) fn replace_text(
    files: &Files,
    path: &Path,
    old: &str,
    new: &str,
    is_exact: bool,
) -> Result<Outcome, EditError> {
    let target = files.target(path).map_err(EditError::File)?;
    let _changing = files.change(&target);
    let before = open::text(&target).map_err(|error| EditError::of_path(path, error))?;
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if old == new {
        return Err(EditError::SameText);
    }
    let Some(found) = Match::find(&before, old, new, is_exact) else {
        let nearest = nearest::told(&before, old);
        return Err(EditError::NotFound { old: quoted(old), path: path.to_owned(), nearest });
    };
    let [at] = *found.offsets else {
        return Err(EditError::NotUnique { old: quoted(old), lines: found.line_numbers(&before) });
    };
    let mut after = before[..at].to_vec();
    after.extend_from_slice(found.new.as_bytes());
    after.extend_from_slice(&before[at + found.old.len()..]);
    replace::replace(&target, &after).map_err(|error| EditError::of_path(path, error))?;
    files.history().push(&target.key(), before.clone());
    let content = format!(
        "The file {} has been edited. Here's the result of running `cat -n` on a snippet of {}:\n{}{REVIEW}",
        path.display(),
        path.display(),
        snippet(&after, at, at + found.new.len()),
    );
    Ok(Outcome { content, change: Some(Change { old: Some(before), new: after }) })
}

/// Where a text occurs, and what it and its replacement are there.
struct Match {
    old: String,
    new: String,
    offsets: Vec<usize>,
}

impl Match {
    fn find(file: &[u8], old: &str, new: &str, is_exact: bool) -> Option<Self> {
        let stripped = (old.trim(), new.trim());
        let exact = (old.to_owned(), new.to_owned());
        let candidates = [
            (old.to_owned(), with_line_ends_of(file, new)),
            (with_line_ends_of(file, old), with_line_ends_of(file, new)),
            (with_line_ends_of(file, stripped.0), with_line_ends_of(file, stripped.1)),
        ];
        let candidates = if is_exact { vec![exact] } else { candidates.into() };
        candidates.into_iter().filter(|(old, _)| !old.is_empty()).find_map(|(old, new)| {
            let offsets = occurrences(file, &old);
            (!offsets.is_empty()).then_some(Self { old, new, offsets })
        })
    }

    fn line_numbers(&self, file: &[u8]) -> String {
        let lines = Lines::of(file);
        let numbers: Vec<String> = self
            .offsets
            .iter()
            .take(MAX_NAMED_LINES)
            .map(|offset| (lines.index_at(*offset) + 1).to_string())
            .collect();
        let more = if self.offsets.len() > MAX_NAMED_LINES { ", …" } else { "" };
        format!("[{}{more}]", numbers.join(", "))
    }
}

/// Searches the parts of the file that are UTF-8: the text is, so it cannot reach over a byte that is not. The
/// standard library's search takes linear time, which one over bytes by windows would not.
fn occurrences(file: &[u8], text: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut chunk_start = 0;
    for chunk in file.utf8_chunks() {
        offsets.extend(chunk.valid().match_indices(text).map(|(at, _)| chunk_start + at));
        chunk_start += chunk.valid().len() + chunk.invalid().len();
    }
    offsets
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
