//! The content of blobs.

use bytes::Bytes;
pub(super) use object_store::PutPayload;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::BlobError;
use super::reference::BlobReference;

/// Reads an object. Does not read one whose length is not the one of the reference, which bounds
/// the memory.
pub(super) async fn read_checked_length(
    store: &dyn ObjectStore,
    path: &Path,
    reference: &BlobReference,
) -> Result<Bytes, BlobError> {
    let found = store.get(path).await?;
    if found.meta.size != reference.length {
        return Err(BlobError::Altered);
    }
    Ok(found.bytes().await?)
}
