//! Looks through folders with libraries of ripgrep, so that nothing need be installed for it: names with `glob`, lines with
//! `grep`. Links are not followed; the order is that of the names, so that what is cut is always the same.

mod found;
mod glob;
mod grep;
mod lines;
mod matcher;
mod pattern;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;

use super::error::FileError;
use super::stop::Stop;

pub(crate) use glob::glob;
pub(crate) use grep::grep;

/// After this long what was found is the answer.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(60);

/// What is looked at.
#[derive(Debug, Clone, Copy)]
struct Looked {
    /// Names that begin with a dot.
    at_hidden: bool,
    /// What .gitignore and its like name.
    at_ignored: bool,
}

/// All below `folder`, as paths that begin with it. Until it is asked to stop; what cannot be read is passed over.
fn walk(folder: &Path, looked: Looked, stop: &Stop) -> impl Iterator<Item = ignore::DirEntry> {
    let mut builder = WalkBuilder::new(folder);
    builder
        .standard_filters(!looked.at_ignored)
        .hidden(!looked.at_hidden)
        // A folder need not be a repository to have a .gitignore, and the server's home says nothing about it.
        .require_git(false)
        .git_global(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp);
    let stop = stop.clone();
    builder
        .build()
        .take_while(move |_| !stop.is_asked())
        .filter_map(Result::ok)
        .filter(|entry| entry.depth() > 0)
}

/// The path below `folder` of something that was found in it.
fn below(folder: &Path, found: &Path) -> PathBuf {
    found.strip_prefix(folder).unwrap_or(found).to_owned()
}

fn kind_of(path: &Path) -> Result<fs::FileType, FileError> {
    let metadata = fs::metadata(path).map_err(|error| FileError::io("looking at", path, error))?;
    Ok(metadata.file_type())
}
