//! `str_replace`: replaces the only occurrence of a text. If it is not found exactly, it is
//! searched with the line ends of the file, and then without surrounding whitespace, which models
//! add and drop.

use std::path::Path;

use super::{EditError, EditOutcome, FileChange, REVIEW, nearest, snippet};
use crate::files::lines::{Lines, with_line_ends_of};
use crate::files::{Files, encoding, open, replace};

/// Maximum number of line numbers in the error for a text that is not unique.
const MAX_LISTED_LINES: usize = 100;

/// Maximum number of characters of the text in an error.
const MAX_QUOTED_CHARS: usize = 4_000;

pub(super) fn replace_text(
    files: &Files,
    path: &Path,
    old: &str,
    new: &str,
    is_exact: bool,
) -> Result<EditOutcome, EditError> {
    let target = files.resolve_target(path).map_err(EditError::File)?;
    let _lock = files.lock(&target);
    let before = open::text(&target).map_err(|error| EditError::from_file_error(path, error))?;
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if old == new {
        return Err(EditError::SameText);
    }
    for text in [old, new] {
        encoding::check_text(&target, &before, text).map_err(EditError::File)?;
    }
    let Some(found) = TextMatch::find(&before, old, new, is_exact) else {
        let nearest = nearest::describe(&before, old);
        return Err(EditError::NotFound {
            old: quoted(old),
            path: path.to_owned(),
            nearest,
        });
    };
    let [at] = *found.offsets else {
        return Err(EditError::NotUnique {
            old: quoted(old),
            lines: found.line_numbers(&before),
        });
    };
    let mut after = before[..at].to_vec();
    after.extend_from_slice(found.new.as_bytes());
    after.extend_from_slice(&before[at + found.old.len()..]);
    replace::replace(&target, &after).map_err(|error| EditError::from_file_error(path, error))?;
    files.history().push(&target.key(), before.clone());
    let content = format!(
        "The file {} has been edited. Here's the result of running `cat -n` on a snippet of {}:\n{}{REVIEW}",
        path.display(),
        path.display(),
        snippet(&after, at, at + found.new.len()),
    );
    Ok(EditOutcome {
        content,
        change: Some(FileChange {
            old: Some(before),
            new: after,
        }),
    })
}

/// The occurrences of a text, the text as it was found, and its replacement.
struct TextMatch {
    old: String,
    new: String,
    offsets: Vec<usize>,
}

impl TextMatch {
    fn find(file: &[u8], old: &str, new: &str, is_exact: bool) -> Option<Self> {
        let stripped = (old.trim(), new.trim());
        let exact = (old.to_owned(), new.to_owned());
        let candidates = [
            (old.to_owned(), with_line_ends_of(file, new)),
            (with_line_ends_of(file, old), with_line_ends_of(file, new)),
            (
                with_line_ends_of(file, stripped.0),
                with_line_ends_of(file, stripped.1),
            ),
        ];
        let candidates = if is_exact {
            vec![exact]
        } else {
            candidates.into()
        };
        candidates
            .into_iter()
            .filter(|(old, _)| !old.is_empty())
            .find_map(|(old, new)| {
                let offsets = occurrences(file, &old);
                (!offsets.is_empty()).then_some(Self { old, new, offsets })
            })
    }

    fn line_numbers(&self, file: &[u8]) -> String {
        let lines = Lines::new(file);
        let numbers: Vec<String> = self
            .offsets
            .iter()
            .take(MAX_LISTED_LINES)
            .map(|offset| (lines.index_at(*offset) + 1).to_string())
            .collect();
        let more = if self.offsets.len() > MAX_LISTED_LINES {
            ", …"
        } else {
            ""
        };
        format!("[{}{more}]", numbers.join(", "))
    }
}

/// Searches the parts of the file that are valid UTF-8; the text cannot span invalid bytes, or
/// start within a character. The search of the standard library takes linear time, unlike one with
/// `windows`.
fn occurrences(file: &[u8], text: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut chunk_start = 0;
    for chunk in file.utf8_chunks() {
        let found = chunk
            .valid()
            .match_indices(text)
            .map(|(at, _)| chunk_start + at);
        offsets.extend(found.filter(|at| !encoding::may_be_trail_byte(file, chunk_start, *at)));
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
