//! Blobs in a folder: a folder of each conversation, a file of each blob.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use object_store::ObjectStoreExt as _;
use object_store::local::LocalFileSystem;
use protocol::ConversationId;
use uuid::Uuid;

use super::BlobError;
use super::content::{PutPayload, read_checked_length};
use super::reference::BlobReference;

/// The folder. Created with the first blob, accessible to its owner only.
///
/// A file is synced before it gets its name, and so are the folders that name it, also if commits
/// of the event store are not synced: after a power failure a row must not exist without its blob.
pub(super) struct BlobFolder {
    root: PathBuf,
}

impl BlobFolder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) async fn put(
        &self,
        conversation: &ConversationId,
        reference: &BlobReference,
        content: PutPayload,
    ) -> Result<(), BlobError> {
        let (root, folder) = (self.root.clone(), self.folder(conversation));
        let files =
            run_blocking(move || create(&root, &folder).and_then(|()| open(&folder))).await?;
        files.put(&reference.to_string().into(), content).await?;
        Ok(())
    }

    pub(super) async fn get(
        &self,
        conversation: &ConversationId,
        reference: &BlobReference,
    ) -> Result<bytes::Bytes, BlobError> {
        let folder = self.folder(conversation);
        let files = run_blocking(move || open(&folder)).await?;
        read_checked_length(&files, &reference.to_string().into(), reference).await
    }

    /// Checks that files can be written and read. Creates the folder.
    pub(super) async fn check(&self) -> Result<(), BlobError> {
        let root = self.root.clone();
        run_blocking(move || write_and_read(&root))
            .await
            .map_err(BlobError::Folder)
    }

    /// Checks that the folder of a conversation is there or missing, as if to remove it.
    pub(super) async fn probe(&self, conversation: &ConversationId) -> Result<(), BlobError> {
        let folder = self.folder(conversation);
        let found = run_blocking(move || std::fs::metadata(folder)).await;
        found.map(drop).or_else(ignore_missing)
    }

    /// Removes the folder of a conversation, also with unfinished files, which a crash leaves.
    pub(super) async fn remove(&self, conversation: &ConversationId) -> Result<(), BlobError> {
        let folder = self.folder(conversation);
        let removed = run_blocking(move || std::fs::remove_dir_all(folder)).await;
        removed.or_else(ignore_missing)
    }

    /// The folder of a conversation, whose id is a valid name of a file.
    fn folder(&self, conversation: &ConversationId) -> PathBuf {
        self.root.join(conversation.as_str())
    }
}

fn ignore_missing(error: io::Error) -> Result<(), BlobError> {
    if error.kind() == ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error.into())
    }
}

/// Creates the folder of a conversation. Syncs an existing one, too, which another process may have
/// created just now.
fn create(root: &Path, folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    if !root.exists() {
        builder.recursive(true).create(root)?;
        root.parent().map_or(Ok(()), sync)?;
        builder.recursive(false);
    }
    match builder.create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => sync(root),
    }
}

/// Writes, reads and removes a file, whose name no conversation has.
fn write_and_read(root: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(root)?;
    // Other processes may check the same folder.
    let file = root.join(format!(".check-{}", Uuid::now_v7()));
    let checked = std::fs::write(&file, "check")
        .and_then(|()| std::fs::read(&file))
        .map(drop);
    // Also a file that could not be written completely.
    let removed = std::fs::remove_file(&file);
    checked.and(removed)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn open(folder: &Path) -> io::Result<LocalFileSystem> {
    std::fs::metadata(folder)?; // for an error with a kind
    let files = LocalFileSystem::new_with_prefix(folder).map_err(io::Error::other)?;
    Ok(files.with_fsync(true))
}

async fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(operation)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
