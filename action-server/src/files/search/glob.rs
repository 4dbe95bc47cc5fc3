//! Searches for paths that match a pattern.

use std::path::Path;

use protocol::sandbox_api::{FileList, GlobQuery};

use super::pattern::PathPattern;
use super::{WalkFilter, below, kind_of, walk};
use crate::files::Files;
use crate::files::error::FileError;
use crate::files::list::{MAX_ENTRIES, describe};
use crate::files::stop::StopSignal;

/// Returns all matching paths below `path`.
pub(crate) fn glob(
    files: &Files,
    path: &Path,
    query: &GlobQuery,
    stop: &StopSignal,
) -> Result<FileList, FileError> {
    let pattern = PathPattern::new("pattern", &query.pattern, query.case_insensitive)?;
    let folder = files.resolve(path)?;
    if !kind_of(&folder)?.is_dir() {
        return Err(FileError::Unfit {
            path: path.to_owned(),
            problem: "is not a folder",
        });
    }
    let filter = WalkFilter {
        hidden: query.hidden,
        ignored: query.ignored,
    };
    let found = walk(files, &folder, filter, stop).map(|entry| below(folder.path(), entry.path()));
    let mut entries: Vec<_> = found
        .filter(|below| pattern.matches(below))
        .filter_map(|below| describe(folder.entry(&below).ok()?.path(), &below))
        .take(MAX_ENTRIES + 1)
        .collect();
    let truncated = entries.len() > MAX_ENTRIES || stop.is_set();
    entries.truncate(MAX_ENTRIES);
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(FileList { entries, truncated })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn ignored_and_hidden_files_are_found_only_when_requested() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("src/target")).unwrap();
        fs::create_dir(dir.path().join(".hidden")).unwrap();
        fs::write(dir.path().join(".gitignore"), "target/\n*.log\n").unwrap();
        for file in [
            "a.rs",
            "a.log",
            "src/b.rs",
            "src/target/c.rs",
            ".hidden/d.rs",
        ] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let found = |pattern: &str, hidden, ignored| -> Vec<String> {
            let query = GlobQuery {
                path: String::new(),
                pattern: pattern.into(),
                hidden,
                ignored,
                case_insensitive: true,
            };
            let list = glob(
                &Files::unconfined(),
                dir.path(),
                &query,
                &StopSignal::never(),
            )
            .unwrap();
            list.entries.into_iter().map(|entry| entry.path).collect()
        };
        assert_eq!(found("*.RS", false, false), ["a.rs", "src/b.rs"]);
        assert_eq!(
            found("*.rs", true, false),
            [".hidden/d.rs", "a.rs", "src/b.rs"]
        );
        assert_eq!(
            found("**/*.rs", false, true),
            ["a.rs", "src/b.rs", "src/target/c.rs"]
        );
        assert_eq!(found("*.log", false, false), [""; 0]);
        assert_eq!(found("s*", false, false), ["src"]);
    }
}
