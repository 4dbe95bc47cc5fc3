//! Workspaces of conversations.

use async_trait::async_trait;
use conversations::{ByteSource, ServiceError, WorkspaceService};
use http::Method;
use protocol::ConversationId;
use protocol::client_api::v2::files::{
    ArchiveFolder, FileEntryPage, FilePath, ListFiles, MoveFile, ReadFile, RemoveFile,
};
use protocol::client_api::v2::git::{
    ChangeList, CompareFile, DiffFiles, FileVersions, ListChanges,
};

use crate::RemoteConversations;
use crate::connection::{ApiRequest, Repetition};

#[async_trait]
impl WorkspaceService for RemoteConversations {
    async fn list_files(
        &self,
        id: &ConversationId,
        request: ListFiles,
    ) -> Result<FileEntryPage, ServiceError> {
        let list = ApiRequest::of_conversation(Method::GET, id, "/files").with_query(&request);
        self.0.send(list).await
    }

    async fn read_file(
        &self,
        id: &ConversationId,
        request: ReadFile,
    ) -> Result<ByteSource, ServiceError> {
        let read =
            ApiRequest::of_conversation(Method::GET, id, "/files/content").with_query(&request);
        self.0.download(read).await
    }

    async fn write_file(
        &self,
        id: &ConversationId,
        request: FilePath,
        content: ByteSource,
    ) -> Result<(), ServiceError> {
        let write =
            ApiRequest::of_conversation(Method::PUT, id, "/files/content").with_query(&request);
        self.0.upload(write, content).await
    }

    async fn make_folder(
        &self,
        id: &ConversationId,
        request: FilePath,
    ) -> Result<(), ServiceError> {
        let make =
            ApiRequest::of_conversation(Method::POST, id, "/files/folder").with_body(&request);
        self.0.send_for_bytes(make).await.0.map(drop)
    }

    async fn move_file(&self, id: &ConversationId, request: MoveFile) -> Result<(), ServiceError> {
        let path = format!("/conversations/{id}/files/move");
        // After a lost reply, the file may be gone from its old path.
        let rename = ApiRequest::new(Method::POST, &path, Repetition::IfUnsent);
        let rename = rename.with_body(&request);
        self.0.send_for_bytes(rename).await.0.map(drop)
    }

    async fn remove_file(
        &self,
        id: &ConversationId,
        request: RemoveFile,
    ) -> Result<(), ServiceError> {
        let remove = ApiRequest::of_conversation(Method::DELETE, id, "/files").with_query(&request);
        self.0.remove(remove).await
    }

    async fn archive_folder(
        &self,
        id: &ConversationId,
        request: ArchiveFolder,
    ) -> Result<ByteSource, ServiceError> {
        let archive =
            ApiRequest::of_conversation(Method::GET, id, "/files/archive").with_query(&request);
        self.0.download(archive).await
    }

    async fn list_changes(
        &self,
        id: &ConversationId,
        request: ListChanges,
    ) -> Result<ChangeList, ServiceError> {
        let list =
            ApiRequest::of_conversation(Method::GET, id, "/git/changes").with_query(&request);
        self.0.send(list).await
    }

    async fn diff_files(
        &self,
        id: &ConversationId,
        request: DiffFiles,
    ) -> Result<Vec<u8>, ServiceError> {
        let diff = ApiRequest::of_conversation(Method::GET, id, "/git/diff").with_query(&request);
        self.0.send_for_bytes(diff).await.0
    }

    async fn compare_file(
        &self,
        id: &ConversationId,
        request: CompareFile,
    ) -> Result<FileVersions, ServiceError> {
        let compare =
            ApiRequest::of_conversation(Method::GET, id, "/git/versions").with_query(&request);
        self.0.send(compare).await
    }
}
