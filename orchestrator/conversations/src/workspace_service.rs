//! The service for the workspaces of conversations.

use async_trait::async_trait;
use engine::sandbox::ByteSource;
use protocol::ConversationId;
use protocol::client_api::v2::files::{
    ArchiveFolder, FileEntryPage, FilePath, ListFiles, MoveFile, ReadFile, RemoveFile,
};
use protocol::client_api::v2::git::{
    ChangeList, CompareFile, DiffFiles, FileVersions, ListChanges,
};

use crate::service::ServiceError;

/// The workspaces of one user's conversations, or all of them for the operator. Implemented as
/// [`ConversationService`](crate::ConversationService) is.
///
/// A workspace is in the sandbox of its conversation, which must run: no method starts one. While a
/// sandbox is created or reached, a request waits for it.
#[async_trait]
pub trait WorkspaceService: Send + Sync {
    /// Lists a page of a folder.
    async fn list_files(
        &self,
        id: &ConversationId,
        request: ListFiles,
    ) -> Result<FileEntryPage, ServiceError>;

    /// Returns a file, or a part of it. The source fails if the content is incomplete.
    async fn read_file(
        &self,
        id: &ConversationId,
        request: ReadFile,
    ) -> Result<ByteSource, ServiceError>;

    /// Writes a file, with missing folders. An existing one is replaced, once all content has
    /// arrived. Never repeated, because the content is consumed.
    async fn write_file(
        &self,
        id: &ConversationId,
        request: FilePath,
        content: ByteSource,
    ) -> Result<(), ServiceError>;

    /// Creates a folder, with missing parents. Does nothing if it exists.
    async fn make_folder(&self, id: &ConversationId, request: FilePath)
    -> Result<(), ServiceError>;

    /// Renames or moves a file, a link or a folder.
    async fn move_file(&self, id: &ConversationId, request: MoveFile) -> Result<(), ServiceError>;

    /// Removes a file, a link or a folder.
    async fn remove_file(
        &self,
        id: &ConversationId,
        request: RemoveFile,
    ) -> Result<(), ServiceError>;

    /// Returns a folder as a zip archive. The source fails if the archive is incomplete.
    async fn archive_folder(
        &self,
        id: &ConversationId,
        request: ArchiveFolder,
    ) -> Result<ByteSource, ServiceError>;

    /// Lists the files that differ from a base.
    async fn list_changes(
        &self,
        id: &ConversationId,
        request: ListChanges,
    ) -> Result<ChangeList, ServiceError>;

    /// Returns the changes of a file or folder as a patch.
    async fn diff_files(
        &self,
        id: &ConversationId,
        request: DiffFiles,
    ) -> Result<Vec<u8>, ServiceError>;

    /// Returns two versions of a text file.
    async fn compare_file(
        &self,
        id: &ConversationId,
        request: CompareFile,
    ) -> Result<FileVersions, ServiceError>;
}
