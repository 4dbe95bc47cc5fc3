//! Why a file is not read or written. The texts are for the agent.

use std::io;
use std::path::{Path, PathBuf};

/// None is worth a retry before something else has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("file not found: {0}")]
    NotFound(PathBuf),
    #[error("path is a directory: {0}")]
    Directory(PathBuf),
    #[error("{0} is neither a file nor a directory (a pipe, a socket or a device)")]
    Special(PathBuf),
    #[error("{path} has more than {limit} bytes; use the shell to look at parts of it")]
    TooLarge { path: PathBuf, limit: usize },
    /// The literal is V0's.
    #[error("ERROR_BINARY_FILE")]
    Binary,
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// There is a root, and this is not beneath it, or a link on the way leads out of it.
    #[error("{0} is not beneath the root that files are confined to, or a link leads out of it")]
    OutsideRoot(PathBuf),
    /// What is there, or what it is, does not let this be done.
    #[error("{path} {problem}")]
    Unfit { path: PathBuf, problem: &'static str },
    /// A parameter or field of the request that no file system could make sense of.
    #[error("`{name}`: {problem}")]
    Parameter { name: &'static str, problem: String },
    /// An archive that is damaged, or that is not taken from anybody.
    #[error("the archive is refused: {0}")]
    Archive(String),
    /// As much as is taken on is being done.
    #[error("no more than {limit} {what}")]
    TooMany { limit: usize, what: &'static str },
    #[error("{doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl FileError {
    /// Tells what the system said apart where that makes a difference to the agent.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound(path),
            io::ErrorKind::IsADirectory => Self::Directory(path),
            _ => Self::Io { doing, path, source },
        }
    }

    /// For reading and writing, in V0's words.
    pub(super) fn told(&self, verb: &'static str, working_dir: &Path) -> String {
        match self {
            Self::NotFound(path) => format!(
                "File not found: {}. Your current working directory is {}.",
                path.display(),
                working_dir.display()
            ),
            Self::Directory(path) => {
                format!("Path is a directory: {}. You can only {verb} files", path.display())
            }
            other => other.to_string(),
        }
    }
}
