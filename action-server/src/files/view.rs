//! The editor's view: numbered lines of a file, or the contents of a folder. Errors are content, as
//! V0's clients expect.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::Observation;
use protocol::action::FileImplementation;
use protocol::observation::ReadObservation;

use super::edit::EditError;
use super::error::FileError;
use super::lines::Lines;
use super::{Files, encoding, open};

/// Maximum number of entries of a folder, for both levels.
const MAX_ENTRIES: usize = 1000;

const NOT_UTF8: &str = "NOTE: The file is not UTF-8. Bytes that are not are shown as \u{fffd}, and edits leave them as they are.\n";

/// Performs a read action. V0 responds to a binary file with an error observation.
pub(super) fn observe(files: &Files, path: &Path, range: Option<&[i64]>) -> Observation {
    let read = ReadObservation {
        path: path.display().to_string(),
        impl_source: FileImplementation::OhAci,
    };
    match view(files, path, range) {
        Ok(content) => Observation::new(content, read),
        Err(EditError::File(error @ FileError::Binary)) => {
            Observation::error(error.to_string(), "")
        }
        Err(error) => Observation::new(error.to_content(), read),
    }
}

/// Returns the content of the view.
pub(super) fn view(files: &Files, path: &Path, range: Option<&[i64]>) -> Result<String, EditError> {
    if files.is_folder(path) {
        return match range {
            None => folder(files, path).map_err(EditError::File),
            Some(_) => Err(EditError::ViewRange("a directory has no lines".into())),
        };
    }
    let bytes = files
        .resolve(path)
        .and_then(|file| open::text(&file))
        .map_err(|error| EditError::from_file_error(path, error))?;
    let lines = Lines::new(&bytes);
    let foreign = if encoding::is_foreign(&bytes) {
        NOT_UTF8
    } else {
        ""
    };
    let (numbered, note) = match range {
        None => (lines.numbered_whole(), String::new()),
        Some(range) => {
            let (first, last, note) = shown_lines(range, lines.count())?;
            (lines.numbered(first - 1..last), note)
        }
    };
    Ok(format!(
        "Here's the result of running `cat -n` on {}:\n{numbered}{note}{foreign}",
        path.display()
    ))
}

/// Returns the first and last line, from 1, and a note about them.
fn shown_lines(range: &[i64], count: usize) -> Result<(usize, usize, String), EditError> {
    let [first, last] = *range else {
        return Err(EditError::ViewRange(format!(
            "{range:?} is not a list of two whole numbers"
        )));
    };
    let first = match usize::try_from(first) {
        Ok(first) if (1..=count.max(1)).contains(&first) => first,
        _ => {
            let problem = format!(
                "its first element `{first}` is not within the lines of the file, [1, {count}]"
            );
            return Err(EditError::ViewRange(problem));
        }
    };
    match usize::try_from(last) {
        Err(_) if last == -1 => Ok((first, count, String::new())),
        Ok(last) if last > count => {
            let note =
                format!("NOTE: The file has {count} lines, so line {last} cannot be shown.\n");
            Ok((first, count, note))
        }
        Ok(last) if last >= first => Ok((first, last, String::new())),
        _ => Err(EditError::ViewRange(format!(
            "its second element `{last}` is smaller than the first, `{first}`"
        ))),
    }
}

fn folder(files: &Files, path: &Path) -> Result<String, FileError> {
    let mut entries = vec![format!("{}/", path.display())];
    let (children, hidden) = visible_entries(files, path)?;
    for child in children {
        if entries.len() > MAX_ENTRIES {
            break;
        }
        entries.push(display_path(files, &child));
        // A subfolder that cannot be read is shown as empty.
        if files.is_folder(&child)
            && let Ok((grandchildren, _)) = visible_entries(files, &child)
        {
            entries.extend(grandchildren.iter().map(|entry| display_path(files, entry)));
        }
    }
    let mut content = format!(
        "Files and directories up to 2 levels deep in {}, without hidden ones:\n",
        path.display()
    );
    let cut = entries.len().saturating_sub(MAX_ENTRIES);
    entries.truncate(MAX_ENTRIES);
    content.push_str(&entries.join("\n"));
    if cut > 0 {
        content.push_str(
            "\n<response clipped><NOTE>There are more. Use `ls` or `find` to see them.</NOTE>",
        );
    }
    if hidden > 0 {
        let path = path.display();
        content.push_str(&format!(
            "\n\n{hidden} hidden files/directories in this directory are left out. Use `ls -la {path}` to see them."
        ));
    }
    content.push('\n');
    Ok(content)
}

/// Returns the visible entries, sorted, and the number of hidden ones. Reads at most 100 times as
/// many names as are shown.
fn visible_entries(files: &Files, path: &Path) -> Result<(Vec<PathBuf>, usize), FileError> {
    let entries = fs::read_dir(files.resolve(path)?.path())
        .map_err(|error| FileError::io("list", path, error))?;
    let names = entries
        .filter_map(Result::ok)
        .take(100 * MAX_ENTRIES)
        .map(|entry| entry.file_name());
    let (hidden, visible): (Vec<_>, Vec<_>) =
        names.partition(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut visible: Vec<PathBuf> = visible.into_iter().map(|name| path.join(name)).collect();
    visible.sort();
    Ok((visible, hidden.len()))
}

fn display_path(files: &Files, path: &Path) -> String {
    if files.is_folder(path) {
        format!("{}/", path.display())
    } else {
        path.display().to_string()
    }
}
