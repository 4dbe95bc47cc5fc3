//! The engine's error for a failed operation of a store.

use std::error::Error;
use std::io;
use std::sync::Arc;

use engine::events::StoreError;
use tokio_postgres::error::SqlState;

/// Creates the error of an operation, with its cause.
pub(crate) fn failed(operation: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    let source = source.into();
    if is_full(source.as_ref()) {
        StoreError::Full { operation, source }
    } else {
        StoreError::Storage { operation, source }
    }
}

/// Returns the cause of an error. That a disk is full is an [`io::Error`], so that it is recognized without knowing the database.
pub(crate) fn cause(source: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    if is_full(source.as_ref()) { io::Error::new(io::ErrorKind::StorageFull, source).into() } else { source }
}

/// Whether an error, or one of its causes, is that a disk has no space left.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| {
        let shared = cause.downcast_ref::<Arc<rusqlite::Error>>().map(AsRef::as_ref);
        let sqlite = shared.or_else(|| cause.downcast_ref::<rusqlite::Error>());
        let postgres = cause.downcast_ref::<tokio_postgres::Error>();
        sqlite.and_then(rusqlite::Error::sqlite_error_code) == Some(rusqlite::ErrorCode::DiskFull)
            || postgres.and_then(tokio_postgres::Error::code) == Some(&SqlState::DISK_FULL)
    })
}
