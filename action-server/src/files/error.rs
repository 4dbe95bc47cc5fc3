//! Errors of file operations. The agent reads the texts.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a file operation failed. Not worth a retry unless something else changes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("file not found: {0}")]
    NotFound(PathBuf),
    #[error("path is a directory: {0}")]
    Directory(PathBuf),
    #[error("{0} is neither a file nor a directory (a pipe, a socket or a device)")]
    Special(PathBuf),
    #[error("{path} has more than {limit} bytes; use the shell to read parts of it")]
    TooLarge { path: PathBuf, limit: usize },
    /// V0's text.
    #[error("ERROR_BINARY_FILE")]
    Binary,
    #[error(
        "{0} is UTF-16, which cannot be shown or edited; convert it with `iconv -f UTF-16 -t UTF-8`"
    )]
    Utf16(PathBuf),
    /// The file has another encoding than the text.
    #[error(
        "{0} is not UTF-8, so text with other characters than ASCII would mix two encodings; convert the file \
         with `iconv`, or edit it with a program that knows its encoding"
    )]
    MixedEncodings(PathBuf),
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// The path is outside of the root, or a link leads out of it.
    #[error("{0} is not beneath the root that files are confined to, or a link leads out of it")]
    OutsideRoot(PathBuf),
    /// The type or state of the file does not allow the operation.
    #[error("{path} {problem}")]
    Unfit {
        path: PathBuf,
        problem: &'static str,
    },
    /// An invalid parameter or field of the request.
    #[error("`{name}`: {problem}")]
    Parameter { name: &'static str, problem: String },
    /// An archive that is malformed or hostile.
    #[error("the archive is rejected: {0}")]
    Archive(String),
    /// A limit on concurrent operations is reached.
    #[error("too many {what}: the maximum is {limit}")]
    TooMany { limit: usize, what: &'static str },
    /// A file operation failed. `operation` is a verb, such as "read".
    #[error("cannot {operation} {path}: {source}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl FileError {
    /// Maps the kinds of errors that the agent treats differently.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound(path),
            io::ErrorKind::IsADirectory => Self::Directory(path),
            _ => Self::Io {
                operation,
                path,
                source,
            },
        }
    }

    /// Returns the text for an action that reads or writes, with V0's wording.
    pub(super) fn to_observation_text(&self, verb: &'static str, working_dir: &Path) -> String {
        match self {
            Self::NotFound(path) => format!(
                "File not found: {}. Your current working directory is {}.",
                path.display(),
                working_dir.display()
            ),
            Self::Directory(path) => {
                format!(
                    "Path is a directory: {}. You can only {verb} files",
                    path.display()
                )
            }
            other => other.to_string(),
        }
    }
}
