//! Searches folders with the libraries of ripgrep, which need not be installed: names with `glob`,
//! lines with `grep`. Links are not followed. The order is that of the names, so that truncated
//! results are deterministic.

mod found;
mod glob;
mod grep;
mod ignored;
mod lines;
mod matcher;
mod pattern;

use std::fs::FileType;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::WalkBuilder;

use super::Files;
use super::error::FileError;
use super::resolved_path::ResolvedPath;
use super::stop::StopSignal;

pub(crate) use glob::glob;
pub(crate) use grep::grep;
use ignored::IgnoreRules;

/// Maximum time of a search. It then returns what was found so far.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(60);

/// Entries that a walk includes.
#[derive(Debug, Clone, Copy)]
struct WalkFilter {
    /// Names that start with a dot.
    hidden: bool,
    /// Entries that `.gitignore` and similar files exclude.
    ignored: bool,
}

/// Walks all entries below `folder` until `stop` is set. Entries that cannot be read are skipped.
/// With a root, the paths must be resolved again beneath the folder, because they may have changed.
fn walk(
    files: &Files,
    folder: &ResolvedPath,
    filter: WalkFilter,
    stop: &StopSignal,
) -> impl Iterator<Item = ignore::DirEntry> + use<> {
    let rules = IgnoreRules::in_folder(files, folder, filter);
    let path = folder.path().to_owned();
    let stop = stop.clone();
    WalkBuilder::new(folder.path())
        .standard_filters(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !rules.excludes(&below(&path, entry.path()), is_folder)
        })
        .build()
        .take_while(move |_| !stop.is_set())
        .filter_map(Result::ok)
        .filter(|entry| entry.depth() > 0)
}

/// Returns the path of an entry relative to `folder`.
fn below(folder: &Path, found: &Path) -> PathBuf {
    found.strip_prefix(folder).unwrap_or(found).to_owned()
}

fn kind_of(resolved: &ResolvedPath) -> Result<FileType, FileError> {
    let metadata = resolved
        .metadata()
        .map_err(|error| FileError::io("inspect", resolved.display_path(), error))?;
    Ok(metadata.file_type())
}
