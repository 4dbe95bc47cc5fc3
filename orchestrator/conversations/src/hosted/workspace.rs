//! What one user can do with the workspaces of own conversations.

use async_trait::async_trait;
use engine::sandbox::ByteSource;
use protocol::ConversationId;
use protocol::client_api::v2::files::{
    ArchiveFolder, FileEntryPage, FilePath, ListFiles, MoveFile, ReadFile, RemoveFile,
};
use protocol::client_api::v2::git::{
    ChangeList, CompareFile, DiffFiles, FileVersions, ListChanges,
};

use super::user::UserConversations;
use crate::service::ServiceError;
use crate::workspace_files::WorkspaceFiles;
use crate::workspace_service::WorkspaceService;

impl UserConversations {
    async fn workspace(&self, id: &ConversationId) -> Result<WorkspaceFiles, ServiceError> {
        self.authorize(id).await?;
        let conversations = self.hosted.conversations();
        Ok(conversations.connected_workspace(id).await?)
    }
}

#[async_trait]
impl WorkspaceService for UserConversations {
    async fn list_files(
        &self,
        id: &ConversationId,
        request: ListFiles,
    ) -> Result<FileEntryPage, ServiceError> {
        Ok(self.workspace(id).await?.entries(request).await?)
    }

    async fn read_file(
        &self,
        id: &ConversationId,
        request: ReadFile,
    ) -> Result<ByteSource, ServiceError> {
        Ok(self.workspace(id).await?.read(&request).await?)
    }

    async fn write_file(
        &self,
        id: &ConversationId,
        request: FilePath,
        content: ByteSource,
    ) -> Result<(), ServiceError> {
        let workspace = self.workspace(id).await?;
        Ok(workspace.write(&request.path, content).await?)
    }

    async fn make_folder(
        &self,
        id: &ConversationId,
        request: FilePath,
    ) -> Result<(), ServiceError> {
        Ok(self.workspace(id).await?.make_folder(&request.path).await?)
    }

    async fn move_file(&self, id: &ConversationId, request: MoveFile) -> Result<(), ServiceError> {
        Ok(self.workspace(id).await?.rename(&request).await?)
    }

    async fn remove_file(
        &self,
        id: &ConversationId,
        request: RemoveFile,
    ) -> Result<(), ServiceError> {
        Ok(self.workspace(id).await?.remove(&request).await?)
    }

    async fn archive_folder(
        &self,
        id: &ConversationId,
        request: ArchiveFolder,
    ) -> Result<ByteSource, ServiceError> {
        Ok(self.workspace(id).await?.archive(&request.path).await?)
    }

    async fn list_changes(
        &self,
        id: &ConversationId,
        request: ListChanges,
    ) -> Result<ChangeList, ServiceError> {
        Ok(self.workspace(id).await?.change_list(request.base).await?)
    }

    async fn diff_files(
        &self,
        id: &ConversationId,
        request: DiffFiles,
    ) -> Result<Vec<u8>, ServiceError> {
        let workspace = self.workspace(id).await?;
        Ok(workspace.diff(&request.path, request.base).await?)
    }

    async fn compare_file(
        &self,
        id: &ConversationId,
        request: CompareFile,
    ) -> Result<FileVersions, ServiceError> {
        let workspace = self.workspace(id).await?;
        Ok(workspace.versions(&request.path, request.base).await?)
    }
}
