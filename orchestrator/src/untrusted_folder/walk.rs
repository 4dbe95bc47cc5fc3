//! Walks a folder while it may change.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{Dir, Mode, openat};

use super::{FOLDER, MAX_LEVELS, Node};

/// Maximum number of entries, because a program can create them faster than they are read.
const MAX_ENTRIES: u64 = 4_000_000;

/// A step of a walk. Paths are relative to the folder.
#[derive(Debug)]
pub(crate) enum Step {
    /// A folder, whose entries follow.
    Enter(PathBuf, Node),
    /// Anything but a folder.
    Entry(PathBuf, Node),
    /// A folder that this user may not list, or an entry whose kind this user may not know.
    Denied(PathBuf, io::Error),
    /// The end of a folder, at last of the folder that is walked.
    Leave,
}

/// Visits everything below a folder, depth first, in the order of the file system. Never leaves the
/// folder: links are visited and not followed. Skips entries that are removed meanwhile. Ends after
/// an error.
pub(crate) struct FolderWalk {
    /// From the folder that is walked to the current one.
    levels: Vec<Level>,
    entries_left: u64,
}

struct Level {
    /// Read piece by piece, because a folder may have millions of entries.
    entries: Dir,
    path: PathBuf,
}

impl FolderWalk {
    pub(crate) fn new(folder: OwnedFd) -> io::Result<Self> {
        let root = Level {
            entries: Dir::new(openat(folder, ".", FOLDER, Mode::empty())?)?,
            path: PathBuf::new(),
        };
        Ok(Self {
            levels: vec![root],
            entries_left: MAX_ENTRIES,
        })
    }

    fn next_step(&mut self) -> io::Result<Option<Step>> {
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.entries.read().transpose()? else {
                self.levels.pop();
                return Ok(Some(Step::Leave));
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            self.entries_left = self.entries_left.checked_sub(1).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("more than {MAX_ENTRIES} entries"),
                )
            })?;
            let path = level.path.join(&name);
            match self.visit(&name, path.clone()) {
                // Was removed after it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(Some(Step::Denied(path, error)));
                }
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("{}: {error}", path.display()),
                    ));
                }
                visited => return visited,
            }
        }
        Ok(None)
    }

    fn visit(&mut self, name: &OsStr, path: PathBuf) -> io::Result<Option<Step>> {
        let Some(level) = self.levels.last() else {
            return Ok(None);
        };
        let node = Node::open(level.entries.fd()?, name)?;
        if !node.metadata().is_dir() {
            return Ok(Some(Step::Entry(path, node)));
        }
        if self.levels.len() == MAX_LEVELS {
            return Err(io::Error::other(format!(
                "more than {MAX_LEVELS} folders deep"
            )));
        }
        self.levels.push(Level {
            entries: Dir::new(node.open_folder()?)?,
            path: path.clone(),
        });
        Ok(Some(Step::Enter(path, node)))
    }
}

impl Iterator for FolderWalk {
    type Item = io::Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.next_step();
        if step.is_err() {
            self.levels.clear();
        }
        step.transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::{Found, open, swap_folder_and_link};
    use super::*;

    #[test]
    fn walk_stays_in_its_folder_when_a_folder_becomes_a_link() {
        swap_folder_and_link().observe(|root| {
            let mut found = Found::Other;
            for step in FolderWalk::new(open(root)).unwrap() {
                let Step::Entry(path, node) = step.unwrap() else {
                    continue;
                };
                if node.metadata().is_file() {
                    let text = std::io::read_to_string(node.open_file().unwrap()).unwrap();
                    assert_eq!(
                        (text.as_str(), path.as_path()),
                        ("inside", Path::new("folder/key"))
                    );
                }
                found = if node.metadata().is_file() {
                    Found::Folder
                } else {
                    Found::Link
                };
            }
            found
        });
    }

    #[test]
    fn walk_ends_with_an_error_when_the_folder_is_too_deep() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d/".repeat(MAX_LEVELS));
        std::fs::create_dir_all(&deep).unwrap();
        let steps: Vec<_> = FolderWalk::new(open(folder.path())).unwrap().collect();
        let error = steps.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(error.ends_with("more than 128 folders deep"), "{error}");
        assert_eq!(steps.len(), MAX_LEVELS);
        std::fs::remove_dir(deep).unwrap();
        let steps = FolderWalk::new(open(folder.path())).unwrap();
        assert_eq!(
            steps.collect::<io::Result<Vec<_>>>().unwrap().len(),
            2 * MAX_LEVELS - 1
        );
    }
}
