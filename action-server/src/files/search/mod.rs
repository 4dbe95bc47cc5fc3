//! Looks through folders with libraries of ripgrep, so that nothing need be installed for it: names with `glob`, lines with
//! `grep`. Links are not followed; the order is that of the names, so that what is cut is always the same.

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
use super::place::Place;
use super::stop::Stop;

pub(crate) use glob::glob;
pub(crate) use grep::grep;
use ignored::Ignored;

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

/// All below `folder`, as paths that begin with its own. Until it is asked to stop; what cannot be read is passed over.
/// With a root, a path is worth no more than its name: what lies there has to be found again beneath the folder.
fn walk(
    files: &Files,
    folder: &Place,
    looked: Looked,
    stop: &Stop,
) -> impl Iterator<Item = ignore::DirEntry> + use<> {
    let mut builder = WalkBuilder::new(folder.path());
    builder
        .standard_filters(!looked.at_ignored)
        .hidden(!looked.at_hidden)
        // A folder need not be a repository to have a .gitignore, and the server's home says nothing about it.
        .require_git(false)
        .git_global(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp);
    if folder.is_held() {
        let ignored = Ignored::in_folder(files, folder, looked);
        let path = folder.path().to_owned();
        builder.standard_filters(false).filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !ignored.leaves_out(&below(&path, entry.path()), is_folder)
        });
    }
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

fn kind_of(place: &Place) -> Result<FileType, FileError> {
    let metadata = place.metadata().map_err(|error| FileError::io("looking at", place.told(), error))?;
    Ok(metadata.file_type())
}
