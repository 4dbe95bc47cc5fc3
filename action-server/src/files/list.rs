//! Lists a folder level by level. If there are too many entries, those of the upper levels are
//! listed.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use protocol::sandbox_api::{FileList, FileStatus, ListQuery};

use super::error::FileError;
use super::resolved_path::ResolvedPath;
use super::stop::StopSignal;
use super::{Files, status};

/// Maximum number of listed entries, about 2 MB of JSON.
pub(super) const MAX_ENTRIES: usize = 10_000;

/// Maximum number of names in memory for sorting.
const MAX_NAMES: usize = 100_000;

/// Lists a folder. A subfolder that cannot be read is listed without its contents.
pub(crate) fn list(
    files: &Files,
    path: &Path,
    query: &ListQuery,
    stop: &StopSignal,
) -> Result<FileList, FileError> {
    let root = files.resolve(path)?;
    let metadata = root
        .metadata()
        .map_err(|error| FileError::io("inspect", path, error))?;
    if !metadata.is_dir() {
        return Err(FileError::Unfit {
            path: path.to_owned(),
            problem: "is not a folder",
        });
    }
    let mut list = FileList {
        entries: Vec::new(),
        truncated: false,
    };
    let mut folders = VecDeque::from([(PathBuf::new(), query.depth)]);
    while let Some((below, depth)) = folders.pop_front() {
        let Some(deeper) = depth.checked_sub(1) else {
            continue;
        };
        let opened = root
            .folder(&below)
            .and_then(|folder| Ok((names(&folder, query.hidden, stop)?, folder)));
        let (names, folder) = match opened {
            Ok(opened) => opened,
            Err(_) if !below.as_os_str().is_empty() => continue,
            Err(error) => return Err(FileError::io("list", path, error)),
        };
        list.truncated |= names.is_cut;
        for name in names.sorted {
            if stop.is_set() || list.entries.len() >= MAX_ENTRIES {
                list.truncated = true;
                break;
            }
            let resolved = folder.path().join(&name);
            let below = below.join(name);
            // Skipped if it was removed concurrently.
            let Some(entry) = describe(&resolved, &below) else {
                continue;
            };
            if entry.kind == protocol::sandbox_api::FileKind::Directory {
                folders.push_back((below, deeper));
            }
            list.entries.push(entry);
        }
    }
    list.entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(list)
}

/// Describes an entry: the file at `path`, which is `below` in the listed folder.
pub(super) fn describe(path: &Path, below: &Path) -> Option<FileStatus> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some(status::describe(
        below.to_string_lossy().into_owned(),
        path,
        &metadata,
    ))
}

struct FolderNames {
    sorted: Vec<std::ffi::OsString>,
    is_cut: bool,
}

fn names(
    folder: &ResolvedPath,
    is_hidden_shown: bool,
    stop: &StopSignal,
) -> io::Result<FolderNames> {
    let entries = fs::read_dir(folder.path())?;
    let names = entries
        .map_while(|entry| if stop.is_set() { None } else { Some(entry) })
        .filter_map(Result::ok);
    let shown = names
        .map(|entry| entry.file_name())
        .filter(|name| is_hidden_shown || !name.as_encoded_bytes().starts_with(b"."));
    let mut sorted: Vec<_> = shown.take(MAX_NAMES + 1).collect();
    let is_cut = sorted.len() > MAX_NAMES || stop.is_set();
    sorted.truncate(MAX_NAMES);
    sorted.sort();
    Ok(FolderNames { sorted, is_cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(folder: &Path, depth: usize, hidden: bool) -> FileList {
        list(
            &Files::unconfined(),
            folder,
            &ListQuery {
                path: String::new(),
                depth,
                hidden,
            },
            &StopSignal::never(),
        )
        .unwrap()
    }

    fn paths(list: &FileList) -> Vec<&str> {
        list.entries
            .iter()
            .map(|entry| entry.path.as_str())
            .collect()
    }

    #[test]
    fn list_contains_the_requested_levels_and_hidden_names() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/deep/deeper")).unwrap();
        fs::create_dir(dir.path().join(".hidden")).unwrap();
        fs::write(dir.path().join(".hidden/x"), "x").unwrap();
        fs::write(dir.path().join("a"), "12").unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
        assert_eq!(paths(&listed(dir.path(), 1, false)), ["a", "b", "link"]);
        assert_eq!(
            paths(&listed(dir.path(), 2, false)),
            ["a", "b", "b/deep", "link"]
        );
        assert_eq!(
            paths(&listed(dir.path(), 9, true)),
            [
                ".hidden",
                ".hidden/x",
                "a",
                "b",
                "b/deep",
                "b/deep/deeper",
                "link"
            ]
        );
        assert_eq!(paths(&listed(dir.path(), 0, true)), [""; 0]);
        let list = listed(dir.path(), 1, false);
        assert_eq!(
            (list.entries[0].size, list.entries[2].target.as_deref()),
            (2, Some("b"))
        );
        let file = list_error(&dir.path().join("a"));
        assert!(matches!(file, FileError::Unfit { .. }), "{file}");
    }

    fn list_error(path: &Path) -> FileError {
        let query = ListQuery {
            path: String::new(),
            depth: 1,
            hidden: false,
        };
        list(&Files::unconfined(), path, &query, &StopSignal::never()).unwrap_err()
    }

    #[test]
    fn list_is_truncated_to_the_upper_levels_when_too_long() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        for number in 0..MAX_ENTRIES {
            fs::write(dir.path().join(format!("a/{number:05}")), "").unwrap();
        }
        fs::write(dir.path().join("z"), "").unwrap();
        let list = listed(dir.path(), 2, false);
        assert!(list.truncated);
        assert_eq!(list.entries.len(), MAX_ENTRIES);
        assert_eq!(list.entries.last().unwrap().path, "z");
        assert!(!listed(dir.path(), 1, false).truncated);
    }
}
