//! Blobs: the JSON of large events, outside of the database, in a folder or in a bucket of S3.
//!
//! A blob is stored before its row is appended, and removed after it. So a failed append, or a
//! process that dies in between, can leave a blob without a row, and never a row without its blob.
//! All blobs of a conversation have its id as a prefix, and are removed with it.
//!
//! A blob is named by its content. A host that has lost the lease of a conversation may store one,
//! and changes none.

mod content;
mod folder;
mod reference;
mod s3;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::events::StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use protocol::ConversationId;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use folder::BlobFolder;
pub(crate) use reference::BlobReference;
use s3::BlobBucket;
pub use s3::{S3_VARIABLES, S3Options};

use crate::failure::{causes, failed};

/// Default length from which the JSON of an event is stored as a blob, in bytes. Smaller ones are
/// read faster from the database.
const DEFAULT_MIN_LENGTH: usize = 64 << 10;

/// Blobs of one read or append that are transferred concurrently.
pub(crate) const CONCURRENT_BLOBS: usize = 4;

/// Blobs of all reads and appends that are transferred concurrently. Bounds the memory and the
/// connections.
const MAX_TRANSFERS: usize = 32;

/// Time to store or to read a blob, with all attempts.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time to remove the blobs of a conversation.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(300);

const CHECK: &str = "store and read blobs";
const PUT: &str = "store a blob";
const REMOVE: &str = "remove the blobs of a conversation";

/// The blobs of an event store. Clones share their connections.
#[derive(Clone)]
pub struct BlobStore {
    min_length: usize,
    removes: bool,
    backend: Arc<Backend>,
    transfers: Arc<Semaphore>,
}

enum Backend {
    Folder(BlobFolder),
    S3(BlobBucket),
}

/// Error of opening a blob store. A retry fails.
#[derive(Debug, thiserror::Error)]
pub enum BlobStoreError {
    /// The name of the bucket is invalid.
    #[error("{0:?} is no name of a bucket")]
    Bucket(String),
    /// The value of a variable is invalid. It may be secret.
    #[error("the value of {0} is invalid")]
    Variable(&'static str),
    /// The options of S3 are invalid.
    #[error("cannot use the options of S3")]
    Options(#[source] object_store::Error),
}

/// Error of an operation on a blob.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    /// Of a read: the blob does not exist. Of another operation: the bucket or the folder does not.
    #[error("not found")]
    Missing(#[source] Box<dyn Error + Send + Sync>),
    #[error("the blob has other content")]
    Altered,
    #[error("no space is left")]
    Full(#[source] io::Error),
    #[error("{0}")]
    Store(String),
    #[error("the place of blobs cannot be reached")]
    Unavailable(#[source] io::Error),
    #[error("the folder of blobs cannot be used")]
    Folder(#[source] io::Error),
    #[error("the place of blobs did not respond within {} s", limit.as_secs())]
    TimedOut { limit: Duration, source: Elapsed },
}

impl From<object_store::Error> for BlobError {
    fn from(error: object_store::Error) -> Self {
        let text = describe(&error);
        match (&error, full_disk(&error)) {
            (object_store::Error::NotFound { .. }, _) => Self::Missing(text.into()),
            (_, Some(kind)) => Self::Full(io::Error::new(kind, text)),
            (_, None) if is_unreachable(&error) => {
                Self::Unavailable(io::Error::new(io::ErrorKind::NotConnected, text))
            }
            (_, None) => Self::Store(text),
        }
    }
}

impl From<io::Error> for BlobError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(error.into()),
            _ => Self::Folder(error),
        }
    }
}

impl BlobStore {
    /// Returns the blobs in a folder, which is created with the first of them.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self::new(Backend::Folder(BlobFolder::new(path.into())))
    }

    /// Returns the blobs in a bucket. Does not connect.
    ///
    /// # Errors
    /// See [`BlobStoreError`].
    pub fn s3(options: &S3Options) -> Result<Self, BlobStoreError> {
        Ok(Self::new(Backend::S3(BlobBucket::new(options)?)))
    }

    fn new(backend: Backend) -> Self {
        let transfers = Arc::new(Semaphore::new(MAX_TRANSFERS));
        Self {
            min_length: DEFAULT_MIN_LENGTH,
            removes: true,
            backend: Arc::new(backend),
            transfers,
        }
    }

    /// Sets the length from which the JSON of an event is stored as a blob, in bytes. By default 64
    /// KiB.
    #[must_use]
    pub fn with_min_length(self, min_length: usize) -> Self {
        Self { min_length, ..self }
    }

    /// Keeps the blobs of conversations that are removed, because another event store may have the
    /// same ones.
    #[must_use]
    pub fn without_removal(self) -> Self {
        Self {
            removes: false,
            ..self
        }
    }

    /// Whether an event with this JSON is stored as a blob.
    pub(crate) fn holds(&self, json: &str) -> bool {
        json.len() >= self.min_length
    }

    /// Checks that blobs can be stored and read.
    ///
    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::Storage`].
    pub async fn check(&self) -> Result<(), StoreError> {
        let checking = async {
            match &*self.backend {
                Backend::Folder(folder) => folder.check().await,
                Backend::S3(bucket) => bucket.check().await,
            }
        };
        limited(TRANSFER_TIMEOUT, checking)
            .await
            .map_err(|error| failed(CHECK, error))
    }

    /// Stores a blob. Once this returns, it survives a power failure.
    pub(crate) async fn put(
        &self,
        conversation: &ConversationId,
        content: Bytes,
    ) -> Result<BlobReference, StoreError> {
        // On another thread, because megabytes take milliseconds.
        let hashing = tokio::task::spawn_blocking({
            let content = content.clone();
            move || BlobReference::to_content(&content)
        });
        let reference = hashing.await.map_err(|error| failed(PUT, error))?;
        let putting = async {
            let _permit = self.transfers.acquire().await;
            match &*self.backend {
                Backend::Folder(folder) => {
                    folder.put(conversation, &reference, content.into()).await
                }
                Backend::S3(bucket) => bucket.put(conversation, &reference, content.into()).await,
            }
        };
        limited(TRANSFER_TIMEOUT, putting)
            .await
            .map_err(|error| failed(PUT, error))?;
        Ok(reference)
    }

    /// Reads a blob, whose hash is not checked.
    pub(crate) async fn get(
        &self,
        conversation: &ConversationId,
        reference: &BlobReference,
    ) -> Result<Bytes, BlobError> {
        let getting = async {
            let _permit = self.transfers.acquire().await;
            match &*self.backend {
                Backend::Folder(folder) => folder.get(conversation, reference).await,
                Backend::S3(bucket) => bucket.get(conversation, reference).await,
            }
        };
        limited(TRANSFER_TIMEOUT, getting).await
    }

    /// Checks that the blobs of a conversation can probably be removed, before its rows are: what
    /// is removed cannot be named again in order to repeat a removal that failed.
    pub(crate) async fn prepare_removal(
        &self,
        conversation: &ConversationId,
    ) -> Result<(), StoreError> {
        if !self.removes {
            return Ok(());
        }
        let probing = async {
            match &*self.backend {
                Backend::Folder(folder) => folder.probe(conversation).await,
                Backend::S3(bucket) => bucket.probe(conversation).await,
            }
        };
        limited(TRANSFER_TIMEOUT, probing)
            .await
            .map_err(|error| failed(REMOVE, error))
    }

    /// Removes all blobs of a conversation, also those without a row. Idempotent.
    pub(crate) async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        if !self.removes {
            return Ok(());
        }
        let removing = async {
            match &*self.backend {
                Backend::Folder(folder) => folder.remove(conversation).await,
                Backend::S3(bucket) => bucket.remove(conversation).await,
            }
        };
        limited(REMOVAL_TIMEOUT, removing)
            .await
            .map_err(|error| failed(REMOVE, error))
    }
}

/// Returns an error with its causes as one text. Those of object_store repeat their causes in their
/// own text.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.contains(&own) {
            text.push_str(": ");
            text.push_str(&own);
        }
        cause = error.source();
    }
    text
}

/// Returns the kind of the cause that a disk or a server is full. `None` if it is another cause.
fn full_disk(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    causes(error).find_map(|cause| {
        let kind = cause.downcast_ref::<io::Error>()?.kind();
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
        .then_some(kind)
    })
}

/// Whether a server of S3 did not respond.
fn is_unreachable(error: &(dyn Error + 'static)) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    causes(error).any(|cause| {
        let kind = cause.downcast_ref::<HttpError>().map(HttpError::kind);
        matches!(kind, Some(Connect | Request | Timeout | Interrupted))
    })
}

async fn limited<T>(
    limit: Duration,
    operation: impl Future<Output = Result<T, BlobError>>,
) -> Result<T, BlobError> {
    timeout(limit, operation)
        .await
        .unwrap_or_else(|source| Err(BlobError::TimedOut { limit, source }))
}
