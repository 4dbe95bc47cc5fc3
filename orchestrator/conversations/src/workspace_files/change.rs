//! Creates folders, and moves and removes files.

use protocol::client_api::v2::files::{MoveFile, RemoveFile};
use protocol::sandbox_api::FileKind;

use super::WorkspaceFiles;
use super::error::WorkspaceError;

/// Creates a folder, with missing parents, unless it exists.
pub(super) async fn make_folder(
    workspace: &WorkspaceFiles,
    path: &str,
) -> Result<(), WorkspaceError> {
    let folder = workspace.resolve(path).await?;
    match folder.status.as_ref().map(|status| status.kind) {
        None if !folder.is_root() => {
            let made = workspace.files()?.make_folder(&folder.absolute).await;
            made.map_err(WorkspaceError::from_sandbox)
        }
        None | Some(FileKind::Directory) => Ok(()),
        Some(_) => Err(WorkspaceError::Exists(folder.relative)),
    }
}

/// Renames or moves a file, a link or a folder.
pub(super) async fn rename(
    workspace: &WorkspaceFiles,
    request: &MoveFile,
) -> Result<(), WorkspaceError> {
    let from = workspace.resolve_name(&request.from).await?;
    if from.status.is_none() {
        return Err(WorkspaceError::NotFound(from.relative));
    }
    let to = workspace.resolve_name(&request.to).await?;
    if to.status.is_some() && !request.overwrite {
        return Err(WorkspaceError::Exists(to.relative));
    }
    let files = workspace.files()?;
    let renamed = files.rename(&from.absolute, &to.absolute, request.overwrite);
    renamed.await.map_err(WorkspaceError::from_sandbox)
}

/// Removes a file, a link or a folder.
pub(super) async fn remove(
    workspace: &WorkspaceFiles,
    request: &RemoveFile,
) -> Result<(), WorkspaceError> {
    let path = workspace.resolve_name(&request.path).await?;
    if path.status.is_none() {
        return Err(WorkspaceError::NotFound(path.relative));
    }
    let removed = workspace.files()?.remove(&path.absolute, request.recursive);
    removed.await.map_err(WorkspaceError::from_sandbox)
}
