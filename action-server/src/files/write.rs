//! Writes a file, or replaces some of its lines.

use std::path::Path;

use protocol::Observation;
use protocol::action::WriteAction;
use protocol::observation::WriteObservation;

use super::error::FileError;
use super::lines::{Lines, with_line_ends_of};
use super::resolved_path::ResolvedPath;
use super::{Files, encoding, open, replace};

pub(super) fn observe(
    files: &Files,
    path: &Path,
    action: &WriteAction,
    working_dir: &Path,
) -> Observation {
    match write(files, path, action) {
        Ok(()) => Observation::without_content(WriteObservation {
            path: path.display().to_string(),
        }),
        Err(error) => Observation::error(error.to_observation_text("write to", working_dir), ""),
    }
}

fn write(files: &Files, path: &Path, action: &WriteAction) -> Result<(), FileError> {
    let target = files.resolve_target(path)?;
    let _lock = files.lock(&target);
    let is_whole = action.start <= 0 && action.end < 0;
    let before = if is_whole { None } else { existing(&target)? };
    match before {
        None => replace::replace(&target, action.content.as_bytes()),
        Some(before) => {
            encoding::check_text(&target, &before, &action.content)?;
            replace::replace(&target, &with_slice(&before, action))
        }
    }
}

fn existing(target: &ResolvedPath) -> Result<Option<Vec<u8>>, FileError> {
    match open::whole(target) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the lines from `start` to `end` (exclusive, from 0) by the text, which gets a line end
/// if lines follow.
fn with_slice(before: &[u8], action: &WriteAction) -> Vec<u8> {
    let lines = Lines::new(before);
    let first = usize::try_from(action.start).unwrap_or(0);
    let last = usize::try_from(action.end).map_or(usize::MAX, |end| end.max(first));
    let (head, tail) = (&before[..lines.start(first)], &before[lines.start(last)..]);
    let line_end = with_line_ends_of(before, "\n");
    let mut after = head.to_vec();
    if !head.is_empty() && !head.ends_with(b"\n") && !action.content.is_empty() {
        after.extend_from_slice(line_end.as_bytes());
    }
    after.extend_from_slice(with_line_ends_of(before, &action.content).as_bytes());
    if !tail.is_empty() && !action.content.is_empty() && !action.content.ends_with('\n') {
        after.extend_from_slice(line_end.as_bytes());
    }
    after.extend_from_slice(tail);
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(before: &[u8], content: &str, start: i64, end: i64) -> Vec<u8> {
        let action = WriteAction {
            path: String::new(),
            content: content.into(),
            start,
            end,
            thought: String::new(),
            security_risk: protocol::SecurityRisk::default(),
        };
        with_slice(before, &action)
    }

    #[test]
    fn other_lines_are_unchanged_when_a_slice_is_written() {
        assert_eq!(
            sliced(b"a\r\n\xffb\r\nc", "X\nY", 1, 2),
            b"a\r\nX\r\nY\r\nc"
        );
        assert_eq!(sliced(b"a\nb\n", "X", 1, -1), b"a\nX");
        assert_eq!(sliced(b"a\nb\n", "", 0, 1), b"b\n");
        assert_eq!(sliced(b"a", "X", 7, -1), b"a\nX");
        assert_eq!(sliced(b"a\nb\n", "X\n", 1, 0), b"a\nX\nb\n");
    }
}
