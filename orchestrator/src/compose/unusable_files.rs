//! Errors of the state folder's files that the user has to correct.

use std::io::ErrorKind;

use engine::errors::format_chain;
use storage::OpenError;

use crate::exit::UsageError;

/// What the user can do about files or a folder that cannot be used.
const UNUSABLE: &str = ": give it to the user who runs this program (chown), or set file_store_path under [core] to a folder of \
                        your own";

/// Returns the error of a database of the state folder that cannot be opened, with what the user
/// can do about it.
pub(super) fn cannot_open(what: &str, error: OpenError) -> anyhow::Error {
    let (next, is_usage) = match &error {
        OpenError::Full { .. } => (": free some space", false),
        OpenError::NotADatabase { .. } => (
            ": move it away, and restore a backup with `glovebox store restore`",
            true,
        ),
        OpenError::TooNew { .. } => ("", true),
        unusable if unusable.may_be_read_only() => (UNUSABLE, true),
        _ => ("", false),
    };
    let text = format!("cannot open {what}: {}{next}", format_chain(&error));
    if is_usage {
        UsageError(text).into()
    } else {
        anyhow::anyhow!(text)
    }
}

/// Returns the error of a file or folder as one that the user has to correct, if it is. A full
/// disk, for example, may have room again later.
pub(super) fn as_usage_error(error: anyhow::Error) -> anyhow::Error {
    let kind = error
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind);
    match kind {
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            UsageError(format!("{error:#}{UNUSABLE}")).into()
        }
        Some(
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::InvalidData
            | ErrorKind::Unsupported,
        ) => UsageError(format!("{error:#}")).into(),
        _ => error,
    }
}
