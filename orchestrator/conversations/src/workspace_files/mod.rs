//! The files of a running conversation's workspace, for its user.
//!
//! Reads, changes and packs files through the sandbox, and runs git in it. Never starts a sandbox
//! or a model call, and never changes the log. Everything from the sandbox is untrusted: sizes,
//! times, names and links are checked, and git runs without the configuration of the workspace.
//!
//! Paths are confined to the workspace. Links are resolved here, one component at a time, and not
//! by the sandbox. A program in the sandbox can exchange a link afterwards, which shows only what
//! that program could copy into the workspace too, and changes only what it could change.

mod archive;
mod change;
mod content;
mod entries;
mod error;
mod git;
mod list;
mod path;
mod text;

use std::sync::Arc;

use engine::memory::{KnowledgeEntry, Memory};
use engine::sandbox::{ByteSource, Sandbox, SandboxError, SandboxFiles, TransferKind};
use protocol::ConversationId;
use protocol::client_api::v2::files::{FileEntryPage, ListFiles, MoveFile, ReadFile, RemoveFile};
use protocol::client_api::v2::git::{ChangeList, FileChange, FileVersions, GitBase};
use protocol::sandbox_api::FileKind;

use crate::conversations::Conversations;
use crate::error::ConversationsError;

use path::WorkspacePath;

pub use error::WorkspaceError;
pub use list::FolderNames;

/// Access to the files of one workspace.
pub struct WorkspaceFiles {
    sandbox: Arc<dyn Sandbox>,
    /// Absolute path of the workspace, without a trailing slash.
    root: String,
    /// Folder of the cloned repository. `None` if none was cloned.
    repository: Option<String>,
    /// Folder of the organization's knowledge. `None` if there is none.
    organization: Option<String>,
    /// The user's own knowledge. `None` if knowledge is disabled.
    memory: Option<Memory>,
}

impl Conversations {
    /// Returns access to the files of a running conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::NotRunning`],
    /// [`ConversationsError::NoSandbox`], or [`ConversationsError::Store`].
    pub async fn workspace_files(
        &self,
        id: &ConversationId,
    ) -> Result<WorkspaceFiles, ConversationsError> {
        let sandbox = self.sandbox(id).await?;
        self.running.with(id, |running| {
            let state = running.conversation.state();
            WorkspaceFiles {
                root: sandbox.lease().working_dir.trim_end_matches('/').to_owned(),
                repository: state.repository_folder(),
                organization: state.organization_folder(),
                memory: running.parts.memory.clone(),
                sandbox,
            }
        })
    }

    /// Returns access to the files of a running conversation, once its sandbox is created or
    /// reached, for which it waits up to half a minute.
    ///
    /// # Errors
    /// See [`workspace_files`](Self::workspace_files).
    pub async fn connected_workspace(
        &self,
        id: &ConversationId,
    ) -> Result<WorkspaceFiles, ConversationsError> {
        self.wait_for_sandbox(id).await;
        self.workspace_files(id).await
    }
}

impl WorkspaceFiles {
    /// Lists a folder, V0's way: folders first, with a trailing `/`, without files that V0 ignores
    /// and those that the root `.gitignore` excludes. An empty path is the workspace. The names
    /// start with the path.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn list(&self, path: &str) -> Result<FolderNames, WorkspaceError> {
        list::list(self, path).await
    }

    /// Returns the content of a text file.
    ///
    /// # Errors
    /// [`WorkspaceError::Binary`] if it is not text in UTF-8, or see [`WorkspaceError`].
    pub async fn read_text(&self, path: &str) -> Result<String, WorkspaceError> {
        let path = self.resolve(path).await?;
        text::read(self.files()?, &path).await
    }

    /// Writes a file, and returns its absolute path in the sandbox. Missing folders are created, an
    /// existing file is replaced. Atomic: if the content fails, nothing changes.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn upload(&self, name: &str, content: ByteSource) -> Result<String, WorkspaceError> {
        let path = self.resolve(name).await?;
        if path.is_root()
            || path
                .status
                .as_ref()
                .is_some_and(|status| status.kind != FileKind::File)
        {
            return Err(WorkspaceError::NotAFile(path.relative));
        }
        self.files()?
            .upload(&path.absolute, TransferKind::File, None, content)
            .await?;
        Ok(path.absolute)
    }

    /// Lists a page of a folder, with all its entries.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn entries(&self, request: ListFiles) -> Result<FileEntryPage, WorkspaceError> {
        entries::list(self, request).await
    }

    /// Returns a file, or a part of it. The source fails if the content is incomplete.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn read(&self, request: &ReadFile) -> Result<ByteSource, WorkspaceError> {
        content::read(self, request).await
    }

    /// Writes a file of at most a gigabyte, like [`upload`](Self::upload).
    ///
    /// # Errors
    /// [`WorkspaceError::TooLarge`], or see [`WorkspaceError`].
    pub async fn write(&self, path: &str, content: ByteSource) -> Result<(), WorkspaceError> {
        content::write(self, path, content).await
    }

    /// Creates a folder, with its missing parents. Does nothing if it exists.
    ///
    /// # Errors
    /// [`WorkspaceError::Exists`] if it is a file, or see [`WorkspaceError`].
    pub async fn make_folder(&self, path: &str) -> Result<(), WorkspaceError> {
        change::make_folder(self, path).await
    }

    /// Renames or moves a file, a link or a folder.
    ///
    /// # Errors
    /// [`WorkspaceError::Exists`] if a file may not be replaced, or see [`WorkspaceError`].
    pub async fn rename(&self, request: &MoveFile) -> Result<(), WorkspaceError> {
        change::rename(self, request).await
    }

    /// Removes a file, a link or a folder.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn remove(&self, request: &RemoveFile) -> Result<(), WorkspaceError> {
        change::remove(self, request).await
    }

    /// Returns a folder as a zip archive that is packed while it is read. The source fails if it is
    /// incomplete. Special files are left out, and so are links that leave the folder.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn archive(&self, folder: &str) -> Result<ByteSource, WorkspaceError> {
        let folder = self.resolve(folder).await?;
        folder.check_folder()?;
        let tree = self
            .files()?
            .download(&folder.absolute, TransferKind::Tree)
            .await?;
        let packed = archive::zip(tree).await;
        Ok(packed.map_err(|error| SandboxError::host("pack", "a folder", error))?)
    }

    /// Returns the files that differ from a base, of the repository in the workspace, and of
    /// repositories in its folders. Without a remote branch, all files are new.
    ///
    /// # Errors
    /// [`WorkspaceError::NoRepository`], or see [`WorkspaceError`].
    pub async fn changes(&self, base: GitBase) -> Result<Vec<FileChange>, WorkspaceError> {
        git::changes(self, base).await
    }

    /// Returns the same files with the branch of the cloned repository.
    ///
    /// # Errors
    /// See [`changes`](Self::changes).
    pub async fn change_list(&self, base: GitBase) -> Result<ChangeList, WorkspaceError> {
        Ok(ChangeList {
            changes: self.changes(base).await?,
            branch: self.branch().await?,
        })
    }

    /// Returns the changes of a file or folder since a base as a patch of the workspace, of the
    /// same repositories. An empty path is the workspace.
    ///
    /// # Errors
    /// [`WorkspaceError::NoRepository`], or see [`WorkspaceError`].
    pub async fn diff(&self, path: &str, base: GitBase) -> Result<Vec<u8>, WorkspaceError> {
        git::diff(self, path, base).await
    }

    /// Returns a file as it is, and as it is in a base. The path is one of
    /// [`changes`](Self::changes), or absolute.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] if neither exists, [`WorkspaceError::NoRepository`], or see
    /// [`WorkspaceError`].
    pub async fn versions(
        &self,
        path: &str,
        base: GitBase,
    ) -> Result<FileVersions, WorkspaceError> {
        git::versions(self, path, base).await
    }

    /// Returns the branch that is checked out in the cloned repository. `None` if there is no
    /// repository, or no branch is checked out.
    ///
    /// # Errors
    /// See [`WorkspaceError`].
    pub async fn branch(&self) -> Result<Option<String>, WorkspaceError> {
        match &self.repository {
            Some(folder) => git::branch(self, folder).await,
            None => Ok(None),
        }
    }

    /// Returns the knowledge that the agent has: the user's own and the workspace's.
    pub async fn knowledge(&self) -> Vec<KnowledgeEntry> {
        let Some(memory) = self.memory.clone() else {
            return Vec::new();
        };
        let folder = self.repository.as_deref().unwrap_or(&self.root);
        let organization = self.organization.as_deref().unwrap_or_default();
        memory
            .load(self.sandbox.as_ref(), folder, organization)
            .await
            .entries()
    }

    fn files(&self) -> Result<&dyn SandboxFiles, WorkspaceError> {
        Ok(self.sandbox.files()?)
    }

    async fn resolve(&self, path: &str) -> Result<WorkspacePath, WorkspaceError> {
        path::resolve(self.files()?, &self.root, path).await
    }

    async fn resolve_name(&self, path: &str) -> Result<WorkspacePath, WorkspaceError> {
        path::resolve_name(self.files()?, &self.root, path).await
    }
}
